//! Names that lead from one crate to another.

use crate::workbench::Workbench;

#[test]
fn renamed_dependencies_are_followed() {
    let bench = Workbench::new(&[
        (
            "Cargo.toml",
            "[workspace]\n[workspace.dependencies]\nours = { package = \"tokio\" }\n\
             [package]\nname = \"bench\"\n[dependencies]\nrt = { package = \"tokio\" }\n\
             ours.workspace = true\n[target.'cfg(unix)'.dependencies]\n\
             par-iter = { package = \"rayon\", version = \"1\" }\n",
        ),
        (
            "src/lib.rs",
            "use ours::task::spawn as go;\nfn x() {\n    rt::spawn(y());\n    go(y());\n    \
             par_iter::spawn(y);\n    tokio2::spawn(y());\n}\n",
        ),
    ]);
    let expected = ["src/lib.rs:3", "src/lib.rs:4", "src/lib.rs:5"];
    assert_eq!(bench.findings(&[]), expected.map(|place| format!("{place} naked-spawn")));
}

#[test]
fn reexports_are_followed_between_the_crates_of_a_workspace() {
    let bench = Workbench::new(&[
        ("crates/my-rt/Cargo.toml", "[package]\nname = \"my-rt\"\n"),
        ("crates/my-rt/src/lib.rs", "pub mod tasks;\npub use tokio as runtime;\n"),
        (
            "crates/my-rt/src/tasks.rs",
            "pub use tokio::task::*;\npub struct Pool;\nimpl Pool {\n    \
             pub fn handle(&self) -> &tokio::runtime::Handle { &H }\n}\n",
        ),
        ("crates/app/Cargo.toml", "[package]\nname = \"app\"\n"),
        (
            "crates/app/src/main.rs",
            "use my_rt::tasks::{Pool, spawn_blocking};\nfn main() {\n    spawn_blocking(y);\n    \
             my_rt::runtime::spawn(y());\n    f(&POOL);\n}\nfn f(pool: &Pool) {\n    \
             pool.handle().spawn(job);\n}\n",
        ),
    ]);
    let lines = [3, 4, 8].map(|line| format!("crates/app/src/main.rs:{line} naked-spawn"));
    assert_eq!(bench.findings(&[]), lines);
    assert_eq!(bench.findings(&["crates/app"]), lines, "whatever paths were named");
}

#[test]
fn cycles_of_names_end() {
    let text = "use a::*;\nmod a { pub use super::b::*; pub use self::c as d; pub use d as c; }\n\
                mod b { pub use super::a::*; pub use super::*; }\ntype X = Y;\ntype Y = X;\n\
                use spin as spin;\nfn f(x: X) {\n    g();\n    c::spawn(y());\n    x.spawn(h());\n    \
                spin::spawn();\n}\n";
    let bench = Workbench::new(&[("src/lib.rs", text)]);
    assert_eq!(bench.findings(&[]), ["src/lib.rs:10 naked-spawn"]);
}

#[test]
fn a_vendored_runtime_is_still_the_runtime() {
    let bench = Workbench::new(&[
        ("vendor/tokio/Cargo.toml", "[package]\nname = \"tokio\"\n"),
        ("vendor/tokio/src/lib.rs", "pub mod runtime;\npub fn spawn<F>(future: F) {}\n"),
        (
            "vendor/tokio/src/runtime.rs",
            "pub struct Handle;\nimpl Handle { pub fn spawn(&self) {} }\n",
        ),
        (
            "src/lib.rs",
            "fn f(handle: &tokio::runtime::Handle) {\n    tokio::spawn(g());\n    \
             handle.spawn(job);\n}\n",
        ),
    ]);
    let expected = ["src/lib.rs:2 naked-spawn", "src/lib.rs:3 naked-spawn"];
    assert_eq!(bench.findings(&["src"]), expected);
}

#[test]
fn many_globs_in_a_block_are_no_maze() {
    let globs: String = (0..40).map(|n| format!("use kinds::K{n}::*; ")).collect();
    let names: String = (0..200).map(|n| format!("A{n}; a{n}(); ")).collect();
    let text = format!("fn f() {{ {globs}{names} use tokio::*; spawn(g()); }}\n{globs}\n");
    let bench = Workbench::new(&[("src/lib.rs", &text)]);
    assert_eq!(bench.findings(&[]), ["src/lib.rs:1 naked-spawn"]);
}
