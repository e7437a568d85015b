//! The operator's views, `why`, `replay` and `discard`, of a daemon that has something to show.

use serde_json::Value;
use sluicegate::dispatch::{Parked, ParkedCode, ParkedStore};
use sluicegate::sources::sqlite::Store;
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use crate::stage::{Daemon, Stage, message};

const TOKEN: &str = "tiger-in-the-tank";

const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\ntoken = \"tiger-in-the-tank\"\n\
    read_token = \"looking-only\"\n[state]\npath = \"v.db\"\n\
    [[pool]]\ncode = \"TEST\"\nconcurrency = 4\nordering = \"strict\"\n";

/// A daemon with one message parked (`lost`), one that is put off (`m1`), and one behind it (`m2`).
async fn scene(stage: &Stage, endpoint: &Endpoint) -> Daemon {
    let config = stage.file("v.toml", CONFIG);
    let daemon = stage.ready(&["--config", config]).await;
    endpoint.then([
        Answer::status(404).body(r#"{"message":"never heard of it"}"#),
        Answer::ok().body(r#"{"ack":false,"delaySeconds":600}"#),
    ]);
    let url = endpoint.url("/");
    publish(stage, &daemon, &message("lost", "other", &url));
    endpoint.wait_for(1).await;
    publish(stage, &daemon, &format!("{}\n{}", message("m1", "g", &url), message("m2", "g", &url)));
    endpoint.wait_for(2).await;
    settled(stage, &daemon).await;
    daemon
}

fn publish(stage: &Stage, daemon: &Daemon, messages: &str) {
    let arguments = ["publish", "--server", &daemon.url, "--token", TOKEN];
    stage.run_with(&arguments, &[], messages.as_bytes()).check(0, &[]);
}

/// Waits until the daemon has heard the endpoint's answers.
async fn settled(stage: &Stage, daemon: &Daemon) {
    for _ in 0..500 {
        let (parked, delayed) =
            (json(stage, daemon, &["parked"]), json(stage, daemon, &["groups"]));
        let is_parked = parked["items"].as_array().is_some_and(|items| items.len() == 1);
        if is_parked && delayed["items"][0]["blockedUntil"].is_string() {
            return;
        }
    }
    panic!("nothing was parked and put off");
}

fn json(stage: &Stage, daemon: &Daemon, arguments: &[&str]) -> Value {
    let said = view(stage, daemon, &[arguments, &["--json"]].concat());
    said.check(0, &[]);
    serde_json::from_str(&said.stdout).expect("JSON and no more")
}

fn view(stage: &Stage, daemon: &Daemon, arguments: &[&str]) -> crate::stage::Ended {
    let variables = [("SLUICEGATE_URL", daemon.url.as_str()), ("SLUICEGATE_TOKEN", TOKEN)];
    stage.run_with(arguments, &variables, b"")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_view_shows_what_there_is() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let daemon = scene(&stage, &endpoint).await;
    let host = endpoint.address().to_string();
    let cases: [(&[&str], &[&str]); 12] = [
        (&["status"], &["UP", "1 pool", "parked", "CONFIGURATION", "1 ERROR"]),
        (&["pools"], &["TEST", "strict", "0 of 4"]),
        (&["queues"], &["default", "sqlite:default", "yes"]),
        (&["inflight"], &["m1", "TEST", "delayed", "an attempt failed"]),
        (&["inflight", "--pool", "TEST"], &["m1"]),
        (&["groups", "--pool", "TEST"], &["m1", "in 9m "]),
        (&["tenants"], &["weight"]),
        (&["workers"], &["no workers"]),
        (&["warnings"], &["ERROR", "CONFIGURATION", "over since", &endpoint.url("/")]),
        (&["warnings", "--severity", "CRITICAL"], &["no warnings"]),
        (&["breakers"], &[&host, "closed"]),
        (&["parked"], &["lost", "TEST", "404", "never heard of it"]),
    ];
    for (arguments, words) in cases {
        let said = view(&stage, &daemon, arguments);
        said.check(0, words);
        assert!(!said.stdout.contains('\u{1b}'), "colours in a pipe: {}", said.stdout);
        assert!(!said.stdout.contains(['│', '╭', '═']), "boxes in a pipe: {}", said.stdout);
        let json = json(&stage, &daemon, arguments);
        assert!(json.is_object(), "{arguments:?}: {json}");
    }
    assert_eq!(json(&stage, &daemon, &["parked"])["items"][0]["messageId"], "lost");
    assert_eq!(json(&stage, &daemon, &["status"])["parked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_names_nothing_is_bad_input() {
    let stage = Stage::new();
    let config = stage.file("v.toml", CONFIG);
    let daemon = stage.ready(&["--config", config]).await;
    for command in ["groups", "inflight", "parked", "replay"] {
        let near = "unknown_pool: there is no pool `TSET`; did you mean `TEST`?";
        view(&stage, &daemon, &[command, "--pool", "TSET"]).check(2, &[near]);
        let none = "there is no pool `NOPE`; there are: DEFAULT-POOL, TEST";
        view(&stage, &daemon, &[command, "--pool", "NOPE"]).check(2, &[none]);
        view(&stage, &daemon, &[command, "--pool", "TEST"]).check(0, &[]);
        view(&stage, &daemon, &[command, "--pool", "DEFAULT-POOL"]).check(0, &[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_nothing_that_was_asked_for_fails() {
    let stage = Stage::new();
    let store = Store::open_serving(stage.path("v.db")).await.expect("a file");
    let broken = |at: usize| Parked {
        queue: "default".into(),
        broker_id: format!("b{at}").into(),
        pool: None,
        code: ParkedCode::Malformed,
        reason: "no JSON".to_owned(),
        status: None,
        attempts: 0,
        holds_key: false,
        last_error: None,
        message: Err("{".to_owned()),
    };
    store.park((0..9).map(broken).collect()).await.expect("they are parked");
    drop(store);
    let config = stage.file("v.toml", CONFIG);
    let daemon = stage.ready(&["--config", config]).await;
    let said = view(&stage, &daemon, &["replay", "--all"]);
    said.check(1, &["replayed 0", "none of 9 was replayed: ", "is no message"]);
    let said = view(&stage, &daemon, &["replay", "--all", "--json"]);
    said.check(1, &["\"left\":9"]);
    serde_json::from_str::<Value>(&said.stdout).expect("JSON and no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_is_a_sentence() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let daemon = scene(&stage, &endpoint).await;
    let cases = [
        ("m1", "m1 is delayed in pool TEST: an attempt failed; it waits, for another 9m "),
        ("m2", "m2 waits in pool TEST: group head m1 retries in 9m "),
        ("lost", "lost is parked in pool TEST: "),
    ];
    for (id, words) in cases {
        let said = view(&stage, &daemon, &["why", id]);
        said.check(0, &[]);
        assert!(said.stdout.starts_with(words), "{}", said.stdout);
        let reply = match id {
            "m1" => Some(r#"; the reply: {"ack":false,"delaySeconds":600}"#),
            "lost" => Some(r#"; the reply: {"message":"never heard of it"}"#),
            _ => None,
        };
        let lines: Vec<&str> = said.stdout.lines().collect();
        assert_eq!(lines.len(), 1 + usize::from(reply.is_some()), "{lines:?}");
        if let Some(reply) = reply {
            assert!(lines[1].starts_with("it failed ") && lines[1].ends_with(reply), "{lines:?}");
        }
    }
    assert_eq!(json(&stage, &daemon, &["why", "m2"])["why"]["reason"], "group_retrying");
    view(&stage, &daemon, &["why", "a/b?c"]).check(1, &["unknown_message", "a/b?c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_messages_are_replayed_or_discarded() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let daemon = scene(&stage, &endpoint).await;
    let parked = json(&stage, &daemon, &["parked"]);
    let id = parked["items"][0]["id"].as_str().expect("an id").to_owned();
    view(&stage, &daemon, &["replay", "no-such"]).check(1, &["unknown_parked", "no-such"]);
    view(&stage, &daemon, &["replay", "--pool", "DEFAULT-POOL"]).check(0, &["replayed 0"]);
    endpoint.then([Answer::status(404)]);
    view(&stage, &daemon, &["replay", &id]).check(0, &["replayed 1"]);
    endpoint.wait_for(3).await;
    assert_eq!(endpoint.asked()[2].message_id(), "lost");
    settled(&stage, &daemon).await;
    view(&stage, &daemon, &["replay", "--pool", "TEST"]).check(0, &["replayed 1"]);
    endpoint.wait_for(4).await;
    endpoint.then([Answer::status(404)]);
    publish(&stage, &daemon, &message("lost-2", "other", &endpoint.url("/")));
    endpoint.wait_for(5).await;
    settled(&stage, &daemon).await;
    let parked = json(&stage, &daemon, &["parked"]);
    let id = parked["items"][0]["id"].as_str().expect("an id").to_owned();
    let discarded = view(&stage, &daemon, &["discard", &id, "no-such"]);
    discarded.check(1, &["discarded 1", "no-such: unknown_parked"]);
    view(&stage, &daemon, &["parked"]).check(0, &["no parked messages"]);
    view(&stage, &daemon, &["replay", "--all"]).check(0, &["replayed 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_asked_for_and_never_shown() {
    let stage = Stage::new();
    let config = stage.file("v.toml", CONFIG);
    let daemon = stage.ready(&["--config", config]).await;
    let url = ["--server", daemon.url.as_str()];
    let none = stage.run(&[&["pools"], &url[..]].concat());
    none.check(1, &["unauthorized: ", "--token", "SLUICEGATE_TOKEN"]);
    let wrong = stage.run(&[&["pools", "--token", "paper-tiger"], &url[..]].concat());
    wrong.check(1, &["unauthorized: "]);
    assert!(!wrong.stderr.contains("paper-tiger"), "{}", wrong.stderr);
    let looking = ["--token", "looking-only"];
    stage.run(&[&["pools"], &url[..], &looking].concat()).check(0, &["TEST"]);
    let replay = stage.run(&[&["replay", "--all"], &url[..], &looking].concat());
    replay.check(1, &["forbidden: ", "--token"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_go_over_as_many_pages_as_asked_for() {
    let stage = Stage::new();
    let config = stage.file("v.toml", CONFIG);
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(404));
    let daemon = stage.ready(&["--config", config]).await;
    let many = |n: u32| message(&format!("p{n}"), &n.to_string(), &endpoint.url("/"));
    publish(&stage, &daemon, &(0..1_030).map(many).collect::<Vec<_>>().join("\n"));
    let mut count = 0;
    while count < 1_030 {
        let all = json(&stage, &daemon, &["parked", "--limit", "5000"]);
        assert!(all["next"].is_null());
        count = all["items"].as_array().expect("a list").len();
    }
    let some = json(&stage, &daemon, &["parked", "--limit", "1010"]);
    assert_eq!(some["items"].as_array().expect("a list").len(), 1_010);
    assert!(!some["next"].is_null());
    view(&stage, &daemon, &["parked"]).check(0, &["there are more: --limit 1000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_answers_otherwise_is_no_server_of_ours() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(200).body("<html>"));
    let url = endpoint.url("");
    for command in ["status", "pools"] {
        stage.run(&[command, "--server", &url]).check(1, &["is --server right?"]);
    }
    endpoint.otherwise(Answer::status(500).body("oops"));
    stage.run(&["pools", "--server", &url]).check(1, &["500"]);
    endpoint.otherwise(Answer::cut());
    stage.run(&["pools", "--server", &url]).check(3, &["could not be reached"]);
}
