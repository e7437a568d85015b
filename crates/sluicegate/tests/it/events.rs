//! The event store: over restarts and crashes, and from the command line.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluicegate::server::fetch::Fetched;
use sluicegate_testkit::brokers::{Kind, lend};

use crate::stage::{Daemon, Ended, Stage};

const ANYWHERE: &str = "--listen=127.0.0.1:0";
const EVENTS: &str = "/api/v1/events";

fn json(fetched: &Fetched) -> Value {
    serde_json::from_slice(&fetched.body).expect("JSON")
}

async fn append(daemon: &Daemon, n: u64) -> u64 {
    let body = json!({ "events": [{ "type": "A", "tags": ["k:v"], "data": n }] });
    let reply = daemon.post(EVENTS, &body).await;
    assert_eq!(reply.status, 201, "{:?}", reply.body);
    json(&reply)["position"].as_u64().expect("a position")
}

/// What is there, as its positions and data.
async fn found(daemon: &Daemon) -> Vec<(u64, u64)> {
    let reply = daemon.post("/api/v1/events/query", &json!({ "limit": 1_000 })).await;
    let found = json(&reply);
    assert_eq!(found["next"], Value::Null);
    let number = |value: &Value| value.as_u64().expect("a number");
    let items = found["items"].as_array().expect("a list");
    items.iter().map(|item| (number(&item["position"]), number(&item["data"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_stay_over_a_restart_and_a_crash() {
    let stage = Stage::new();
    let mut wanted = Vec::new();
    let daemon = stage.ready(&[ANYWHERE]).await;
    for n in 0..20 {
        wanted.push((append(&daemon, n).await, n));
    }
    assert_eq!(daemon.terminated().await.0, Some(0));
    let daemon = stage.ready(&[ANYWHERE]).await;
    assert_eq!(found(&daemon).await, wanted);
    for n in 20..40 {
        wanted.push((append(&daemon, n).await, n));
    }
    // What was acknowledged is there, whatever happens right after.
    daemon.kill().await;
    let daemon = stage.ready(&[ANYWHERE]).await;
    assert_eq!(found(&daemon).await, wanted);
    let next = append(&daemon, 40).await;
    assert!(wanted.last().is_some_and(|(last, _)| next > *last));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_in_postgres_stay_over_a_crash_of_the_daemon() {
    let Some(postgres) = lend(Kind::Postgres) else { return };
    let stage = Stage::new();
    let schema = format!("t{}", std::process::id());
    let url = format!("{}?schema={schema}", postgres.url());
    let file = stage.file("sluicegate.toml", format!("[events]\nurl = {url:?}\n"));
    stage.run(&["check", "-c", file]).check(0, &["events in"]);
    let daemon = stage.ready(&["--config", file, ANYWHERE]).await;
    let mut wanted = Vec::new();
    for n in 0..10 {
        wanted.push((append(&daemon, n).await, n));
    }
    daemon.kill().await;
    let daemon = stage.ready(&["--config", file, ANYWHERE]).await;
    assert_eq!(found(&daemon).await, wanted);
}

#[test]
fn a_database_that_refuses_is_a_problem_and_one_that_is_away_is_named() {
    let stage = Stage::new();
    let events = |url: &str| format!("[events]\nurl = {url:?}\n");
    let file = stage.file("away.toml", events("postgres://me:tiger@127.0.0.1:9/db"));
    let away = stage.run(&["check", "-c", file]);
    away.check(0, &["events (postgres://", "not reached: ", "not checked", "away.toml: ok"]);
    assert!(!away.stdout.contains("tiger"), "{away:?}");
    let file = stage.file("wrong.toml", events("postgres://me:tiger@127.0.0.1:9/"));
    let wrong = stage.run(&["check", "-c", file]);
    wrong.check(2, &["events.url", "the database is missing"]);
    assert!(!wrong.stderr.contains("tiger"), "{wrong:?}");
    let Some(postgres) = lend(Kind::Postgres) else { return };
    let url = postgres.url().replace("postgres@", "nobody-known:tiger@");
    let file = stage.file("refused.toml", events(&url));
    let refused = stage.run(&["check", "-c", file]);
    refused.check(2, &["events (postgres://", "refused: ", "nobody-known"]);
    assert!(!refused.stderr.contains("tiger"), "{refused:?}");
}

/// Runs `sluicegate events …` at a daemon.
fn events(stage: &Stage, daemon: &Daemon, arguments: &[&str], input: &str) -> Ended {
    let server = ["--server", daemon.url.as_str()];
    let all = [&["events"], &arguments[..1], &server, &arguments[1..]].concat();
    stage.run_with(&all, &[], input.as_bytes())
}

fn lines(ended: &Ended) -> Vec<Value> {
    ended.check(0, &[]);
    ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_from_the_command_line_is_found_there() {
    let stage = Stage::new();
    let daemon = stage.ready(&[ANYWHERE]).await;
    let run = |arguments: &[&str], input: &str| events(&stage, &daemon, arguments, input);
    let one = [
        "append",
        "--type",
        "Placed",
        "--tag",
        "order:7",
        "--tag",
        "by:é",
        "--data",
        r#"{"a":1.50}"#,
    ];
    run(&one, "").check(0, &["appended 1 event, up to position 1"]);
    let file = "{\"type\":\"Paid\",\"tags\":[\"order:7\"]}\n{\"type\":\"Placed\",\"tags\":[\"order:8\"]}\n";
    run(&["append", "--file", "-"], file).check(0, &["appended 2 events, up to position 3"]);
    let found = lines(&run(&["query", "--tag", "order:7", "--json"], ""));
    assert_eq!((found.len(), &found[1]["type"]), (2, &json!("Paid")));
    run(&["query", "--type", "Placed"], "")
        .check(0, &["order:7", "by:é", r#"{"a":1.50}"#, "order:8"]);
    assert_eq!(lines(&run(&["query", "--json", "--limit", "2"], "")).len(), 2);
    assert_eq!(lines(&run(&["query", "--json", "--after", "2"], ""))[0]["position"], 3);
    assert_eq!(lines(&run(&["tail", "--json", "--limit", "3"], "")).len(), 3);
    let folds = ["project", "--fold", "count", "--fold", "last", "--tag", "order:7"];
    run(&folds, "").check(0, &["count", "2", "--after 2"]);
    let states = &lines(&run(&[&folds[..], &["--json"]].concat(), ""))[0]["states"];
    assert_eq!(states, &json!({ "count": 2, "last": {} }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_number_holds_is_shown_as_it_was_appended() {
    let stage = Stage::new();
    let daemon = stage.ready(&[ANYWHERE]).await;
    let run = |arguments: &[&str]| events(&stage, &daemon, arguments, "");
    let data = r#"{"b" : 1e400,"a":0.12345678901234567890}"#;
    let shown = ["       1  ", "Huge", "k:v", data];
    run(&["append", "--type", "Huge", "--tag", "k:v", "--data", data]).check(0, &["position 1"]);
    run(&["query"]).check(0, &shown);
    run(&["tail", "--limit", "1"]).check(0, &shown);
    let merged = r#"{"a":0.12345678901234567890,"b":1e400}"#;
    for more in [&["--json"][..], &[]] {
        let folds = ["project", "--fold", "last", "--fold", "merge", "--type", "Huge"];
        run(&[&folds[..], more].concat()).check(0, &[data, merged]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_says_that_there_are_more() {
    let stage = Stage::new();
    let daemon = stage.ready(&[ANYWHERE]).await;
    for n in 0..3 {
        append(&daemon, n).await;
    }
    let run = |arguments: &[&str]| events(&stage, &daemon, arguments, "");
    let part = run(&["query", "--limit", "2"]);
    assert!(part.stderr.contains("--after 2"), "{}", part.stderr);
    let all = run(&["query", "--limit", "3"]);
    assert!(all.stderr.is_empty(), "{}", all.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_refused_says_why_by_its_exit_code() {
    let stage = Stage::new();
    let daemon = stage.ready(&[ANYWHERE]).await;
    let run = |arguments: &[&str]| events(&stage, &daemon, arguments, "");
    let append = ["append", "--type", "Taken", "--tag", "seat:1"];
    let unless = ["--fail-if-type", "Taken", "--fail-if-tag", "seat:1"];
    let first = run(&[&append[..], &unless].concat());
    first.check(0, &["position 1"]);
    run(&[&append[..], &unless].concat()).check(1, &["append_condition_failed"]);
    run(&[&append[..], &unless, &["--after", "1"]].concat()).check(0, &["position 2"]);
    let no_tag = ["events[0].tags[0]", "invalid_field", "no-tag"];
    run(&["append", "--type", "A", "--tag", "no-tag"]).check(2, &no_tag);
    run(&["append", "--type", "A", "--tag", "k:v", "--data", "{"]).check(2, &["--data"]);
    run(&["append", "--type", "A"]).check(2, &["--tag"]);
    run(&["append", "--file", "none.json"]).check(2, &["none.json"]);
    run(&["append", "--file", "-", "--after", "3"]).check(2, &["--fail-if-t"]);
    run(&["project", "--fold", "sum"]).check(2, &["sum", "count"]);
    run(&["tail", "--tag", "k"]).check(2, &["bad_request", "tag"]);
    for command in ["query", "tail"] {
        let lost = stage.run(&["events", command, "--server", "http://127.0.0.1:9"]);
        lost.check(3, &["could not be reached"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_goes_on_over_a_restart_and_ends_when_it_is_told_to() {
    let stage = Stage::new();
    let daemon = stage.ready(&[ANYWHERE]).await;
    let (url, listen) =
        (daemon.url.clone(), format!("--listen={}", &daemon.url["http://".len()..]));
    append(&daemon, 1).await;
    let mut tail = stage.launch(&["events", "tail", "--json", "--server", &url]);
    let mut next = async || -> u64 {
        let event: Value = serde_json::from_str(&tail.line().await).expect("an event");
        event["data"].as_u64().expect("a number")
    };
    assert_eq!(next().await, 1);
    append(&daemon, 2).await;
    assert_eq!(next().await, 2);
    daemon.kill().await;
    let daemon = stage.ready(&[&listen]).await;
    append(&daemon, 3).await;
    assert_eq!(next().await, 3, "each once");
    tail.signal(Signal::SIGINT);
    let (code, errors) = tail.ended().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("trying again, after position 2"), "{errors}");
}
