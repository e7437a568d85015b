//! The real binary, run as a person would.

use std::process::{Command, Output};

fn sluicegate(arguments: &[&str]) -> Output {
    let run = Command::new(env!("CARGO_BIN_EXE_sluicegate")).args(arguments).output();
    run.expect("the binary was built for this test")
}

#[test]
fn the_demo_delivers_everything_in_order_and_says_so() {
    let demo = sluicegate(&["demo", "--messages", "300", "--groups", "7"]);
    let text = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{text}");
    for line in ["delivered 300", "order violations 0"] {
        assert!(text.lines().any(|printed| printed == line), "no line {line:?} in:\n{text}");
    }
}

#[test]
fn bad_input_is_exit_code_2_and_names_the_field() {
    let cases: [(&[&str], &str); 4] = [
        (&["demo", "--messages", "0"], "--messages"),
        (&["demo", "--groups", "none"], "--groups"),
        (&["demo", "--colour"], "--colour"),
        (&["dance"], "dance"),
    ];
    for (arguments, named) in cases {
        let refused = sluicegate(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(text.contains(named), "{arguments:?} does not name {named}: {text}");
    }
}
