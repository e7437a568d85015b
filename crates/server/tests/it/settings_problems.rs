//! What is wrong in a settings file, and how it is said.

use std::fs;

use sluicegate_server::settings::{Settings, Unprotected};

/// Every case is a file, a line of dashes, and what is said of it.
const CASES: &str = include_str!("../fixtures/problems.txt");

fn said(text: &str) -> String {
    let read = Settings::parse("f.toml", text, &|_| None);
    read.map_or_else(|problems| problems.to_string(), |_| "nothing\n".to_owned())
}

#[test]
fn every_problem_is_said_with_its_place() {
    let cases: Vec<&str> = CASES.split("====\n").collect();
    assert!(cases.len() >= 60);
    for case in cases {
        let (text, expected) = case.split_once("----\n").unwrap();
        assert_eq!(said(text), expected, "{text}");
    }
}

#[test]
fn no_secret_is_said() {
    // In the cases, whatever is secret is a tiger.
    for case in CASES.split("====\n") {
        let (_, said) = case.split_once("----\n").unwrap();
        assert!(!said.contains("tiger"), "{said}");
    }
}

#[test]
fn problems_are_data_too() {
    let text = "[http]\ntimeout = 3\n[servr]\n";
    let problems = Settings::parse("f.toml", text, &|_| None).unwrap_err();
    assert_eq!(problems.file(), "f.toml");
    let [timeout, section] = problems.list() else { panic!("{problems}") };
    assert_eq!((timeout.line, timeout.column, timeout.key.as_str()), (2, 11, "http.timeout"));
    assert!(timeout.message.starts_with("must be a duration"), "{}", timeout.message);
    assert_eq!(timeout.help, None);
    assert_eq!((section.line, section.column, section.key.as_str()), (3, 2, "servr"));
    assert_eq!(section.help.as_deref(), Some("did you mean `server`?"));
}

#[test]
fn line_ends_and_marks_of_order_do_not_shift_the_place() {
    let cases = [
        ("\u{feff}a = 1", "f.toml:1:1: a: is not a setting\n 1 | a = 1\n   | ^\n"),
        ("[server]\r\na = 1\r\n", "f.toml:2:1: server.a: is not a setting\n 2 | a = 1\n   | ^\n"),
        ("[log]\n\n\n\n\n\n\n\n\nä.a = 1", "f.toml:10:1: invalid unquoted key"),
        ("\u{1b} = 1", "f.toml:1:1: invalid unquoted key"),
    ];
    for (text, begins) in cases {
        assert!(said(text).starts_with(begins), "{text:?}: {}", said(text));
        assert!(!said(text).contains(['\r', '\u{1b}', '\u{feff}']), "{text:?}");
    }
}

#[test]
fn a_long_line_is_shown_around_its_mark() {
    let keys: Vec<String> = (0..60).map(|n| format!("env.k{n} = \"v\"")).collect();
    let text = format!("agents = {{ {}, max_workers = 0 }}", keys.join(", "));
    let said = said(&text);
    let [_, line, marks] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(line.chars().count() < 130 && line.ends_with("max_workers = 0 }"), "{said}");
    assert_eq!(line.find("0 }"), marks.find('^'), "{said}");
}

#[test]
fn a_document_of_one_line_is_cut_to_what_can_be_shown() {
    let wrong = "{ name = \"é\", uri = \"é\" }, ".repeat(100_000);
    let problems = Settings::parse("f.toml", &format!("queue = [{wrong}]"), &|_| None).unwrap_err();
    assert_eq!(problems.list().len(), 1001);
    assert!(problems.to_string().lines().all(|line| line.chars().count() < 200));
}

#[test]
fn endless_problems_come_to_an_end() {
    let text: String = (0..1500).map(|n| format!("a{n} = 1\n")).collect();
    let problems = Settings::parse("f.toml", &text, &|_| None).unwrap_err();
    assert_eq!(problems.list().len(), 1001);
    assert!(problems.to_string().ends_with("f.toml: and 500 more\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sluicegate.toml");
    let loaded = || Settings::load(&path).map_err(|problems| problems.to_string());
    let said = |rest: &str| Err(format!("{}{rest}\n", path.display()));

    let missing = loaded().unwrap_err();
    assert!(missing.starts_with(&format!("{}: cannot be read: ", path.display())), "{missing}");

    fs::write(&path, b"[server]\nlisten = \"\xff\"\n").unwrap();
    assert_eq!(loaded(), said(": cannot be read: line 2 is not UTF-8"));

    fs::write(&path, "#".repeat(8 * 1024 * 1024 + 1)).unwrap();
    assert_eq!(loaded(), said(": is larger than 8388608 bytes"));

    fs::write(&path, "#".repeat(8 * 1024 * 1024)).unwrap();
    assert_eq!(loaded(), Ok(Settings::default()));

    fs::write(&path, "[log]\nformat = 1\n").unwrap();
    assert!(loaded().unwrap_err().contains("sluicegate.toml:2:10: log.format: must be"));
}

#[test]
fn a_listener_beyond_loopback_needs_a_token() {
    let open = Settings::default().server;
    let text = "[server]\ntoken = \"tiger\"\n";
    let guarded = Settings::parse("f.toml", text, &|_| None).unwrap().server;
    let cases = [
        ("127.0.0.1:1", true),
        ("127.8.8.8:1", true),
        ("[::1]:1", true),
        ("[::ffff:127.0.0.1]:1", true),
        ("0.0.0.0:1", false),
        ("[::]:1", false),
        ("10.0.0.1:1", false),
    ];
    for (address, local) in cases {
        let listen = address.parse().unwrap();
        let moved = open.clone().listening_on(listen);
        if local {
            assert_eq!(moved.map(|server| server.listen), Ok(listen));
        } else {
            assert_eq!(moved, Err(Unprotected { listen }));
        }
        assert_eq!(guarded.clone().listening_on(listen).map(|server| server.listen), Ok(listen));
    }
}
