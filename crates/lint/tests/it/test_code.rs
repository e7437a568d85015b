//! What is test code and what only looks like it, and which files are read at all.

use crate::workbench::{SPAWNS, Workbench};

fn check(files: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(Workbench::new(files).findings(&[]), expected);
}

#[test]
fn test_modules_in_files_of_their_own_are_excluded_with_all_below() {
    let root = "#[cfg(test)]\nmod checks;\n#[cfg(all(test, unix))]\nmod more;\n\
                #[cfg(test)]\n#[path = \"elsewhere/odd.rs\"]\nmod third;\n";
    check(
        &[
            ("src/lib.rs", root),
            ("src/checks.rs", "mod deeper;\nfn x() { tokio::spawn(y()); }"),
            ("src/checks/deeper.rs", SPAWNS),
            ("src/more/mod.rs", SPAWNS),
            ("src/elsewhere/odd.rs", SPAWNS),
        ],
        &[],
    );
}

#[test]
fn a_file_is_checked_if_anything_but_tests_leads_to_it() {
    let root = "#[cfg(test)]\n#[path = \"shared.rs\"]\nmod a;\n#[path = \"shared.rs\"]\nmod b;\n";
    let files = [("src/lib.rs", root), ("src/shared.rs", SPAWNS)];
    check(&files, &["src/shared.rs:2 naked-spawn"]);
}

#[test]
fn code_that_only_looks_like_tests_is_checked() {
    let root = "mod tests;\n#[cfg(any(test, feature = \"x\"))]\nmod any;\n\
                #[cfg(not(test))]\nmod not;\nmod test { fn x() { tokio::spawn(y()); } }\n";
    check(
        &[
            ("src/lib.rs", root),
            ("src/tests.rs", SPAWNS),
            ("src/any.rs", SPAWNS),
            ("src/not.rs", SPAWNS),
            ("src/orphan.rs", SPAWNS),
        ],
        &[
            "src/any.rs:2 naked-spawn",
            "src/lib.rs:6 naked-spawn",
            "src/not.rs:2 naked-spawn",
            "src/orphan.rs:2 naked-spawn",
            "src/tests.rs:2 naked-spawn",
        ],
    );
}

#[test]
fn a_file_may_say_itself_that_it_is_test_code() {
    let text = format!("#![cfg(test)]\nmod below;\n{SPAWNS}");
    check(&[("src/lib.rs", "mod x;"), ("src/x.rs", &text), ("src/x/below.rs", SPAWNS)], &[]);
}

#[test]
fn tests_and_benches_are_folders_of_a_package() {
    check(
        &[
            ("tests/it.rs", SPAWNS),
            ("benches/speed.rs", SPAWNS),
            ("tests/ui/broken.rs", "not rust ("),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\""),
            ("crates/a/tests/it.rs", SPAWNS),
            ("src/tests/mod.rs", SPAWNS),
            ("src/benches/x.rs", SPAWNS),
            ("examples/demo.rs", SPAWNS),
            ("build.rs", SPAWNS),
        ],
        &[
            "build.rs:2 naked-spawn",
            "examples/demo.rs:2 naked-spawn",
            "src/benches/x.rs:2 naked-spawn",
            "src/tests/mod.rs:2 naked-spawn",
        ],
    );
    let bench = Workbench::new(&[("tests/it.rs", SPAWNS)]);
    assert_eq!(bench.report(&["tests/it.rs", "tests"]).files, 0);
}

#[test]
fn build_output_and_hidden_folders_are_not_read() {
    check(
        &[
            ("target/debug/gen.rs", SPAWNS),
            (".git/hook.rs", SPAWNS),
            ("src/lib.rs", "mod target;"),
            ("src/target/mod.rs", SPAWNS),
        ],
        &["src/target/mod.rs:2 naked-spawn"],
    );
}

#[test]
fn one_file_alone_gets_the_same_answer() {
    let bench = Workbench::new(&[
        ("src/lib.rs", "pub mod rt;\nmod work;\n#[cfg(test)]\nmod checks;\n"),
        ("src/rt.rs", "pub use tokio::spawn as go;\n"),
        ("src/work.rs", "fn x() {\n    crate::rt::go(y());\n}\n"),
        ("src/checks.rs", SPAWNS),
        ("src/broken.rs", "fn ("),
    ]);
    assert_eq!(bench.findings(&["src/work.rs"]), ["src/work.rs:2 naked-spawn"]);
    assert_eq!(bench.findings(&["src/checks.rs"]), [""; 0]);
    let report = bench.report(&["src/work.rs", "src", "./src/work.rs"]);
    assert_eq!((report.findings.len(), report.files), (2, 4));
}

#[cfg(unix)]
#[test]
fn loops_of_links_end() {
    let bench = Workbench::new(&[("src/lib.rs", SPAWNS)]);
    std::os::unix::fs::symlink(&bench.folder, bench.folder.join("src/loop")).unwrap();
    std::os::unix::fs::symlink("lib.rs", bench.folder.join("src/twin.rs")).unwrap();
    std::os::unix::fs::symlink("nowhere", bench.folder.join("src/dangling.rs")).unwrap();
    let expected = ["src/dangling.rs:1 unread-file", "src/lib.rs:2 naked-spawn"];
    assert_eq!(bench.findings(&[]), expected);
}
