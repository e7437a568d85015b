//! Which files are read: whatever the code leads to, wherever it is.

use crate::workbench::{SPAWNS, Workbench};

fn check(files: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(Workbench::new(files).findings(&[]), expected, "{files:?}");
}

#[test]
fn a_mark_of_a_cache_hides_nothing() {
    let mark = "Signature: 8a477f597d28d172789f06886806bc55\n# by cargo\n";
    check(
        &[
            ("src/CACHEDIR.TAG", mark),
            ("src/lib.rs", SPAWNS),
            ("src/parts/.rustc_info.json", "{}"),
            ("src/parts/mod.rs", SPAWNS),
            ("out/CACHEDIR.TAG", mark),
            ("out/.rustc_info.json", "{}"),
            ("out/debug/gen.rs", SPAWNS),
            ("target/debug/gen.rs", SPAWNS),
        ],
        &["src/lib.rs:2 naked-spawn", "src/parts/mod.rs:2 naked-spawn"],
    );
}

#[test]
fn modules_are_followed_into_every_folder() {
    let root = "#[path = \"../tests/shared.rs\"]\nmod a;\n#[path = \"../target/made.rs\"]\nmod b;\n\
                #[path = \".hidden/odd.txt\"]\nmod c;\nmod d {\n    #[path = \"e.rs\"]\n    mod e;\n}\n\
                fn f() {\n    #[path = \"../benches/g.rs\"]\n    mod g;\n    g::go();\n}\n";
    check(
        &[
            ("src/lib.rs", root),
            ("tests/shared.rs", "mod below;\nfn x() { crate::b::go(y()); }\n"),
            ("tests/below.rs", SPAWNS),
            ("tests/other.rs", SPAWNS),
            ("target/made.rs", "pub use tokio::spawn as go;\n"),
            ("src/.hidden/odd.txt", SPAWNS),
            ("src/d/e.rs", SPAWNS),
            ("benches/g.rs", SPAWNS),
        ],
        &[
            "benches/g.rs:2 naked-spawn",
            "src/.hidden/odd.txt:2 naked-spawn",
            "src/d/e.rs:2 naked-spawn",
            "tests/below.rs:2 naked-spawn",
            "tests/shared.rs:2 naked-spawn",
        ],
    );
}

#[test]
fn includes_are_followed() {
    let root = "use tokio::spawn as go;\ninclude!(\"parts.in\");\nfn f() {\n    \
                include!(\"../tests/body.rs\");\n    let x = vec![include!(\"value.txt\")];\n}\n\
                mod inner {\n    std::include!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/more/code.rs\"));\n}\n\
                use core::include as take;\ntake!(\"taken.in\");\n\
                macro_rules! pull { () => { include!(\"pulled.in\") } }\n\
                include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\n\
                #[cfg(test)]\nmod tests { include!(\"../tests/cases.rs\"); }\n";
    check(
        &[
            ("src/lib.rs", root),
            ("src/parts.in", "fn part() {\n    go(y());\n}\n"),
            ("tests/body.rs", "let a = 3;\ntokio::spawn(y(a));\n"),
            ("tests/cases.rs", SPAWNS),
            ("src/value.txt", "{ std::thread::spawn(y) }"),
            ("more/code.rs", "fn more() {\n    super::go(y());\n}\n"),
            ("src/taken.in", SPAWNS),
            ("src/pulled.in", SPAWNS),
        ],
        &[
            "more/code.rs:2 naked-spawn",
            "src/parts.in:2 naked-spawn",
            "src/pulled.in:2 naked-spawn",
            "src/taken.in:2 naked-spawn",
            "src/value.txt:1 naked-spawn",
            "tests/body.rs:2 naked-spawn",
        ],
    );
}

#[test]
fn a_list_of_statements_is_a_file_only_if_it_is_included() {
    let body = "let a = 3;\nwork(a)\n";
    check(&[("src/lib.rs", "fn f() {}"), ("src/body.rs", body)], &["src/body.rs:1 parse-error"]);
    let root = "fn f() { include!(\"body.rs\") }";
    check(&[("src/lib.rs", root), ("src/body.rs", body)], &[]);
    check(&[("src/lib.rs", root), ("src/body.rs", "let ;")], &["src/body.rs:1 parse-error"]);
}

#[test]
fn conditional_paths_lead_to_modules_and_not_to_orphans() {
    let root = "pub use tokio::spawn as go;\n\
                #[cfg_attr(unix, path = \"sys/unix.rs\")]\n\
                #[cfg_attr(windows, allow(unused), path = \"sys/windows.rs\")]\nmod sys;\n\
                #[cfg_attr(unix, cfg_attr(target_os = \"linux\", path = \"sys/linux.rs\"))]\nmod io;\n";
    check(
        &[
            ("src/lib.rs", root),
            ("src/sys/unix.rs", "fn x() {\n    super::go(y());\n}\n"),
            ("src/sys/windows.rs", "fn x() {\n    crate::go(y());\n}\n"),
            ("src/sys/linux.rs", "fn x() {\n    super::go(y());\n}\n"),
            ("src/io.rs", "fn x() {\n    super::go(y());\n}\n"),
        ],
        &[
            "src/io.rs:2 naked-spawn",
            "src/sys/linux.rs:2 naked-spawn",
            "src/sys/unix.rs:2 naked-spawn",
            "src/sys/windows.rs:2 naked-spawn",
        ],
    );
}

#[test]
fn files_that_are_not_there_are_findings() {
    let root = "mod there;\nmod gone;\n#[path = \"nowhere.rs\"]\nmod named;\n\
                #[cfg_attr(unix, path = \"unix.rs\")]\nmod sys;\ninclude!(\"lost.in\");\n\
                mod inner {\n    mod deep;\n}\n#[cfg(feature = \"x\")]\nmod maybe;\n\
                #[cfg(test)]\nmod tests;\nconfigured! { mod anything; }\n\
                macro_rules! parts { ($name:ident) => { mod $name; mod fixed; } }\n\
                fn f() { parts! { mod within; } }\n";
    check(
        &[("src/lib.rs", root), ("src/there.rs", ""), ("src/sys.rs", "")],
        &[
            "src/lib.rs:2 unread-file",
            "src/lib.rs:4 unread-file",
            "src/lib.rs:6 unread-file",
            "src/lib.rs:7 unread-file",
            "src/lib.rs:9 unread-file",
            "src/lib.rs:12 unread-file",
        ],
    );
    let bench = Workbench::new(&[("src/lib.rs", "mod a;"), ("src/a.rs", ""), ("src/b.rs", root)]);
    assert_eq!(bench.findings(&["src/a.rs"]), [""; 0], "only what is checked is asked");
    let finding = &Workbench::new(&[("src/lib.rs", "mod gone;")]).report(&[]).findings[0];
    assert_eq!(finding.message, "the file of `mod gone` is not there, so it is not checked");
}

#[test]
fn a_file_that_nothing_leads_to_may_be_a_root_or_not() {
    let parts = "mod a;\nmod b;\nmod inner {\n    mod c;\n    mod d;\n    mod e;\n}\n";
    check(
        &[
            ("src/lib.rs", ""),
            ("src/orphan.rs", parts),
            ("src/a.rs", ""),
            ("src/orphan/b.rs", ""),
            ("src/inner/c.rs", ""),
            ("src/orphan/inner/d.rs", ""),
        ],
        &["src/orphan.rs:6 unread-file"],
    );
}

#[test]
fn targets_of_a_manifest_are_read_wherever_they_are() {
    let manifest = "[workspace]\n[package]\nname = \"bench\"\nbuild = \"tests/make.rs\"\n\
                    [lib]\npath = \"tests/lib/main.rs\"\n[[bin]]\nname = \"x\"\npath = \"target/x.rs\"\n\
                    [[test]]\nname = \"t\"\npath = \"checks/t.rs\"\n";
    check(
        &[
            ("Cargo.toml", manifest),
            ("tests/make.rs", SPAWNS),
            ("tests/lib/main.rs", "mod part;\n"),
            ("tests/lib/part.rs", SPAWNS),
            ("tests/it.rs", SPAWNS),
            ("target/x.rs", SPAWNS),
        ],
        &[
            "target/x.rs:2 naked-spawn",
            "tests/lib/part.rs:2 naked-spawn",
            "tests/make.rs:2 naked-spawn",
        ],
    );
}

#[test]
fn files_that_lead_to_each_other_end() {
    check(
        &[
            ("src/lib.rs", "mod a;\ninclude!(\"a.rs\");\n"),
            ("src/a.rs", "include!(\"lib.rs\");\ninclude!(\"a.rs\");\nmod a;\n"),
            ("src/a/a.rs", "#[path = \"../a.rs\"]\nmod again;\n"),
        ],
        &[],
    );
}

#[cfg(unix)]
#[test]
fn files_that_cannot_be_read_are_findings() {
    let bench = Workbench::new(&[("src/lib.rs", "mod linked;\n"), ("other/real.rs", SPAWNS)]);
    let link = |to: &str, from: &str| {
        std::os::unix::fs::symlink(to, bench.folder.join(from)).unwrap();
    };
    link("../other/real.rs", "src/linked.rs");
    link("nowhere", "src/dangling.rs");
    let expected = ["other/real.rs:2 naked-spawn", "src/dangling.rs:1 unread-file"];
    assert_eq!(bench.findings(&[]), expected);
}
