//! Exemptions: exact, complete, dated and needed, or they are findings themselves.

use crate::workbench::{SPAWNS, Workbench, shown};

const FILE: &str = "sluicegate-lint.toml";

fn entry(path: &str, rule: &str, expiry: &str) -> String {
    format!(
        "[[exemption]]\npath = \"{path}\"\nrule = \"{rule}\"\nreason = \"it owns its threads\"\n\
         owner = \"core\"\nexpiry = \"{expiry}\"\n\n"
    )
}

fn check(exemptions: &str, paths: &[&str], expected: &[&str]) {
    let bench = Workbench::new(&[
        ("crates/tasks/src/lib.rs", SPAWNS),
        ("crates/tasks2/src/lib.rs", SPAWNS),
        (FILE, exemptions),
    ]);
    assert_eq!(bench.findings(paths), expected, "{exemptions}");
}

const TASKS: &str = "crates/tasks/src/lib.rs:2 naked-spawn";
const TASKS2: &str = "crates/tasks2/src/lib.rs:2 naked-spawn";

#[test]
fn exempt_one_file_or_folder_and_never_a_prefix() {
    let paths = [
        "crates/tasks",
        "crates/tasks/",
        "./crates/tasks/",
        "crates/./tasks/src",
        "crates/tasks/src/lib.rs",
    ];
    for path in paths {
        check(&entry(path, "naked-spawn", "2026-12-31"), &[], &[TASKS2]);
    }
    check(&entry("crates", "naked-spawn", "2026-12-31"), &[], &[]);
    let prefix = entry("crates/task", "naked-spawn", "2026-12-31");
    check(&prefix, &[], &[TASKS, TASKS2, "sluicegate-lint.toml:1 exemption-unused"]);
}

#[test]
fn exempt_from_the_named_rule_only() {
    let other = entry("crates/tasks", "leaky-permit", "2026-12-31");
    check(&other, &[], &[TASKS, TASKS2, "sluicegate-lint.toml:1 exemption-unused"]);
}

#[test]
fn hold_until_the_end_of_their_last_day() {
    let both = |day| entry("crates", "naked-spawn", day);
    check(&both("2026-06-15"), &[], &[]);
    check(&both("2026-06-14"), &[], &[TASKS, TASKS2, "sluicegate-lint.toml:1 exemption-expired"]);
}

#[test]
fn cover_a_file_or_folder_below_the_root_and_never_all_of_it() {
    for all in [".", "./", "././/."] {
        let whole = entry(all, "naked-spawn", "2026-12-31");
        check(&whole, &[], &[TASKS, TASKS2, "sluicegate-lint.toml:2 exemption-incomplete"]);
    }
}

#[test]
fn hold_for_a_year_at_most() {
    let both = |day| entry("crates", "naked-spawn", day);
    let refused = [TASKS, TASKS2, "sluicegate-lint.toml:6 exemption-incomplete"];
    check(&both("2027-06-15"), &[], &[]);
    check(&both("2027-06-16"), &[], &refused);
    check(&both("9999-12-31"), &[], &refused);
}

#[test]
fn that_are_refused_say_which_and_why() {
    let text = entry(".", "naked-spawn", "2026-12-31")
        + &entry("crates/tasks", "naked-spawn", "2030-01-01");
    let bench = Workbench::new(&[("src/lib.rs", "fn f() {}"), (FILE, &text)]);
    let findings = bench.report(&[]).findings;
    let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    let expected = [
        "`.` is everything: an exemption covers a file, or a folder below this one",
        "the exemption of `crates/tasks` from naked-spawn is for more than a year: \
         2027-06-15 is the latest day",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn are_unused_only_if_their_path_was_checked() {
    let two = entry("crates/tasks", "naked-spawn", "2026-12-31")
        + &entry("gone/forever.rs", "naked-spawn", "2026-12-31");
    check(&two, &["crates/tasks2"], &[TASKS2]);
    check(&two, &["crates/tasks/src/lib.rs"], &[]);
    check(&two, &["."], &[TASKS2, "sluicegate-lint.toml:8 exemption-unused"]);
    check(&two, &["crates"], &[TASKS2]);
}

#[test]
fn are_incomplete_without_every_field_or_with_a_senseless_one() {
    let good = entry("crates", "naked-spawn", "2026-12-31");
    let cases = [
        ("path = \"crates\"\n", "", 1),
        ("reason = \"it owns its threads\"\n", "", 1),
        ("owner = \"core\"", "owner = \" \"", 5),
        ("rule = \"naked-spawn\"", "rule = \"naked_spawn\"", 3),
        ("rule = \"naked-spawn\"", "rule = \"parse-error\"", 3),
        ("2026-12-31", "2026-02-30", 6),
        ("2026-12-31", "soon", 6),
        ("\"2026-12-31\"", "2026-12-31", 6),
        ("owner = \"core\"", "owner = \"core\"\nticket = 3", 6),
        ("\"crates\"", "\"/crates\"", 2),
        ("\"crates\"", "\"../crates\"", 2),
        ("\"crates\"", "3", 2),
    ];
    for (from, to, line) in cases {
        let broken = good.replace(from, to);
        let fault = format!("sluicegate-lint.toml:{line} exemption-incomplete");
        check(&broken, &[], &[TASKS, TASKS2, &fault]);
    }
    let unknown = format!("version = 1\n{good}");
    check(&unknown, &[], &["sluicegate-lint.toml:1 exemption-incomplete"]);
    check("[[exemptions]]\n", &[], &[TASKS, TASKS2, "sluicegate-lint.toml:1 exemption-incomplete"]);
}

#[test]
fn never_exempt_a_file_that_does_not_parse() {
    let bench = Workbench::new(&[
        ("src/lib.rs", "fn broken( {"),
        (FILE, &entry("src", "naked-spawn", "2026-12-31")),
    ]);
    let expected = ["sluicegate-lint.toml:1 exemption-unused", "src/lib.rs:1 parse-error"];
    assert_eq!(bench.findings(&[]), expected);
}

#[test]
fn are_read_from_the_workspace_around_the_first_path() {
    let bench = Workbench::new(&[
        ("crates/tasks/Cargo.toml", "[package]\nname = \"tasks\"\n"),
        ("crates/tasks/src/lib.rs", SPAWNS),
        ("crates/tasks/sluicegate-lint.toml", "not even toml"),
        (FILE, &entry("crates/tasks", "naked-spawn", "2026-12-31")),
    ]);
    assert_eq!(bench.findings(&["crates/tasks/src"]), [""; 0]);
    let mut options = bench.options(&["crates/tasks/src"]);
    options.exemptions = Some("other/exempt.toml".into());
    assert!(sluicegate_lint::run(&options).is_err(), "a named file must exist");
    bench.write("other/exempt.toml", entry("crates/tasks", "naked-spawn", "2026-12-31"));
    let report = sluicegate_lint::run(&options).unwrap();
    assert_eq!(shown(&report), [TASKS], "paths are relative to the file of exemptions");
}

#[test]
fn that_are_not_toml_stop_the_run() {
    for text in ["[[exemption]", "exemption = 3", "exemption = [1]", "[exemption]\npath = \"x\""] {
        let bench = Workbench::new(&[("src/lib.rs", SPAWNS), (FILE, text)]);
        let error = sluicegate_lint::run(&bench.options(&[])).unwrap_err().to_string();
        assert!(error.contains("sluicegate-lint.toml"), "{error}");
    }
}
