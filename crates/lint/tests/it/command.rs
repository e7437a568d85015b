//! The command itself: arguments, exit codes, and files that are no Rust.

use crate::workbench::{SPAWNS, Workbench};

fn check(bench: &Workbench, arguments: &[&str], code: i32, stdout: &str, stderr: &str) {
    let output = bench.command(arguments);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}\n{err}");
    assert!(out.contains(stdout), "{arguments:?}: {out}");
    assert!(err.contains(stderr), "{arguments:?}: {err}");
}

#[test]
fn exit_codes_tell_clean_from_findings_from_failure() {
    let bench = Workbench::new(&[("src/lib.rs", SPAWNS), ("clean/lib.rs", "fn f() {}\n")]);
    check(&bench, &["clean"], 0, "1 file checked, no findings", "");
    check(&bench, &[], 1, "error[naked-spawn]", "");
    check(&bench, &["sluicegate-lint", "src"], 1, "src/lib.rs:2:5", "");
    check(&bench, &["missing"], 2, "", "cannot check missing");
    check(&bench, &["--exemptions", "none.toml"], 2, "", "cannot read the exemptions in");
    check(&bench, &["--format", "xml"], 2, "", "invalid value 'xml'");
    check(&bench, &["--frobnicate"], 2, "", "--frobnicate");
    bench.write("sluicegate-lint.toml", "[[");
    check(&bench, &["clean"], 2, "", "sluicegate-lint.toml");
}

#[test]
fn formats_are_chosen_by_name() {
    let bench = Workbench::new(&[("src/lib.rs", SPAWNS)]);
    check(&bench, &["--format", "json"], 1, "{\"findings\":[{\"rule\":\"naked-spawn\"", "");
    check(&bench, &["--format", "sarif"], 1, "\"version\": \"2.1.0\"", "");
    check(&bench, &["--format=github"], 1, "::error file=src/lib.rs,line=2,col=5", "");
    // Not a terminal: no colours.
    check(&bench, &["--format", "human"], 1, "\nsluicegate-lint: 1 file checked, 1 finding\n", "");
}

#[test]
fn help_and_version_are_there() {
    let bench = Workbench::new(&[]);
    check(&bench, &["--help"], 0, "Exit status: 0 clean, 1 findings, 2 could not check", "");
    check(&bench, &["--help"], 0, "unbounded-queue", "");
    check(&bench, &["sluicegate-lint", "--version"], 0, env!("CARGO_PKG_VERSION"), "");
}

#[test]
fn files_that_are_no_rust_are_findings() {
    let cases: [(&[u8], &str); 7] = [
        (b"fn f() {\n    let x = ;\n}", "src/lib.rs:2:13"),
        (b"fn f() {\n  }}", "src/lib.rs:2:4"),
        (b"fn f() { \"open", "src/lib.rs:1:"),
        (b"// fine\nlet \xff = 1;", "src/lib.rs:2:5"),
        (b"struct", "src/lib.rs:1:"),
        (b"\xef\xbb\xbf#!/usr/bin/env run\nfn f() {\n  let = 3;\n}", "src/lib.rs:3:7"),
        (b"fn f( {", "src/lib.rs:1:"),
    ];
    for (bytes, place) in cases {
        let bench = Workbench::new(&[("src/other.rs", SPAWNS)]);
        bench.write("src/lib.rs", bytes);
        check(&bench, &[], 1, "error[parse-error]", "");
        check(&bench, &[], 1, place, "");
        check(&bench, &[], 1, "2 files checked, 2 findings", "");
    }
}

#[test]
fn shebangs_and_marks_are_rust() {
    let bench = Workbench::new(&[]);
    bench.write("src/main.rs", format!("\u{feff}#!/usr/bin/env run\n{SPAWNS}"));
    bench.write("src/lib.rs", format!("#![allow(unused)]\r\n{}", SPAWNS.replace('\n', "\r\n")));
    check(&bench, &[], 1, "src/main.rs:3:5", "");
    check(&bench, &[], 1, "src/lib.rs:3:5", "");
    check(&bench, &[], 1, "2 findings", "");
}

#[test]
fn nesting_never_exhausts_the_stack() {
    let deep = |open: &str, close: &str, times: usize| {
        format!("fn f() {{ x({}1{}); }}", open.repeat(times), close.repeat(times))
    };
    let shapes = [
        ("(", ")"),
        ("[", "]"),
        ("{", "}"),
        ("!", ""),
        ("&", ""),
        ("1 + ", ""),
        ("", ".a()"),
        ("", "?"),
        ("|| ", ""),
        ("'a' | ", ""),
        ("{ 'a' | ", "}"),
        ("{1 + ", "}"),
        ("f(", ")"),
        ("if a {} else ", ""),
        ("async move { ", "}"),
        ("vec![", "]"),
        ("a = ", ""),
        ("return ", ""),
        ("match a { _ => ", "}"),
        ("", " as u8"),
        ("x.submit(c, |c| ", ")"),
        ("", "[0]"),
        ("move || ", ""),
        ("loop { ", "}"),
        ("-", ""),
        ("a! { b => ", "}"),
        ("m!(= ", ")"),
        ("A<", ">"),
        ("x.spawn(", ")"),
        ("&mut ", ""),
        ("unsafe { ", "}"),
        ("*", ""),
        ("a..", ""),
        ("", "()"),
        ("!-!-!(", ")"),
        ("a.b().c(", ")"),
        ("&!{", "}"),
        ("'a: loop { break 'a ", "}"),
    ];
    for times in [90, 145, 290, 590, 50_000] {
        for (open, close) in shapes {
            let bench = Workbench::new(&[]);
            bench.write("src/lib.rs", deep(open, close, times));
            let code = bench.command(&["--format", "json"]).status.code();
            assert!(matches!(code, Some(0 | 1)), "{times} × {open} … {close}: {code:?}");
        }
    }
}

#[test]
fn ordinary_nesting_is_checked() {
    let chain = "builder".to_owned() + &".field(\"name\", value)\n".repeat(150);
    let sum = vec!["a"; 200].join(" + ");
    let docs = "//! words\n".repeat(5_000);
    let cases = "if x == 1 { a() } else ".repeat(100);
    let text = format!("{docs}fn f() {{ {chain}; let s = {sum}; {cases} {{ b() }} }}\n");
    let bench = Workbench::new(&[("src/lib.rs", &text)]);
    check(&bench, &[], 0, "no findings", "");
}
