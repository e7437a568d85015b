//! The command as a whole: help, version, and what clap refuses.

use crate::stage::Stage;

const COMMANDS: [&str; 20] = [
    "demo", "serve", "check", "publish", "status", "pools", "queues", "inflight", "groups",
    "tenants", "workers", "warnings", "breakers", "parked", "why", "replay", "discard", "pauses",
    "events", "requests",
];

#[test]
fn help_and_version_are_said() {
    let stage = Stage::new();
    let help = stage.run(&[]);
    help.check(0, &COMMANDS);
    assert_eq!(stage.run(&["--help"]).stdout.trim(), help.stdout.trim());
    let version = format!("sluicegate {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stage.run(&["--version"]).stdout, version);
    for command in COMMANDS {
        stage.run(&[command, "--help"]).check(0, &["Examples:", command]);
    }
    for command in ["append", "query", "tail", "project"] {
        stage.run(&["events", command, "--help"]).check(0, &["Examples:", "--server", "--json"]);
    }
}

#[test]
fn bad_input_is_exit_code_2_and_names_what_is_wrong() {
    let stage = Stage::new();
    let cases: [(&[&str], &str); 13] = [
        (&["dance"], "dance"),
        (&["demo", "--messages", "0"], "--messages"),
        (&["demo", "--groups", "none"], "--groups"),
        (&["demo", "--colour"], "--colour"),
        (&["serve", "--listen", "everywhere"], "--listen"),
        (&["serve", "--listen", "0.0.0.0:0"], "server.token"),
        (&["pools", "--server", "ftp://x"], "--server"),
        (&["pools", "--server", "http://me:tiger@127.0.0.1:9"], "--token"),
        (&["pools", "--limit", "0"], "--limit"),
        (&["why"], "<ID>"),
        (&["replay"], "--all"),
        (&["replay", "1", "--all"], "--all"),
        (&["discard"], "<ID>"),
    ];
    for (arguments, named) in cases {
        stage.run(arguments).check(2, &[named]);
    }
}

#[test]
fn a_token_of_the_environment_is_not_shown() {
    let stage = Stage::new();
    let variables = [("SLUICEGATE_TOKEN", "tiger-7"), ("SLUICEGATE_URL", "http://127.0.0.1:9")];
    let help = stage.run_with(&["pools", "--help"], &variables, b"");
    help.check(0, &["SLUICEGATE_TOKEN", "SLUICEGATE_URL"]);
    assert!(!help.stdout.contains("tiger-7"), "{}", help.stdout);
    let lost = stage.run_with(&["pools"], &variables, b"");
    lost.check(3, &["http://127.0.0.1:9 could not be reached", "sluicegate serve"]);
    assert!(!lost.stderr.contains("tiger-7"), "{}", lost.stderr);
}
