//! What those who watch a daemon see of it at its usual log level, and what they can do.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::stage::{Daemon, PATIENCE, Stage, message};

const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"5s\"\n\
    [state]\npath = \"s.db\"\n[[pool]]\ncode = \"TEST\"\nconcurrency = 4\nordering = \"strict\"\n";

fn publish(stage: &Stage, daemon: &Daemon, message: &str) {
    let arguments = ["publish", "--server", &daemon.url];
    stage.run_with(&arguments, &[], message.as_bytes()).check(0, &[]);
}

/// Asks until it is said.
async fn said(stage: &Stage, daemon: &Daemon, arguments: &[&str], words: &str) -> String {
    let by = Instant::now() + PATIENCE;
    loop {
        let asked = stage.run(&[arguments, &["--server", &daemon.url]].concat());
        if asked.stdout.contains(words) {
            return asked.stdout;
        }
        assert!(Instant::now() < by, "{words:?} is not in {asked:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_head_is_given_up_by_hand_and_its_group_goes_on() {
    let stage = Stage::new();
    let more = "max_attempts = 1\non_exhausted = \"block\"\n";
    let config = stage.file("s.toml", format!("{CONFIG}{more}"));
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::ok().body(r#"{"ack":false}"#)]);
    let daemon = stage.ready(&["--config", config]).await;
    publish(&stage, &daemon, &message("m1", "g", &endpoint.url("/in")));
    let why = said(&stage, &daemon, &["why", "m1"], "its attempts are used up").await;
    assert!(why.contains("`sluicegate ack m1` gives it up as done"), "{why}");
    assert!(why.contains("/in answered 200 with ack=false"), "{why}");
    publish(&stage, &daemon, &message("m2", "g", &endpoint.url("/in")));
    let ack = |id: &str| stage.run(&["ack", id, "--server", &daemon.url]);
    ack("m1").check(0, &["m1 was given up as done"]);
    endpoint.wait_for(2).await;
    ack("m9").check(1, &["not_in_flight"]);
    let (_, errors) = daemon.terminated().await;
    assert!(errors.contains("an attempt failed"), "{errors}");
    let line = errors.lines().find(|line| line.contains("an attempt failed")).unwrap_or_default();
    for words in ["WARN", "m1", "status=200", "ack=false"] {
        assert!(line.contains(words), "{words:?} is not in {line:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_signals_at_once_are_one() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG);
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().after(Duration::from_millis(800)));
    let daemon = stage.ready(&["--config", config]).await;
    publish(&stage, &daemon, &message("m1", "g", &endpoint.url("/")));
    endpoint.wait_for(1).await;
    daemon.signal(Signal::SIGTERM);
    // Two of one kind that come before the first is taken are one anyway.
    sleep(Duration::from_millis(100)).await;
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("everything was settled or handed back"), "{errors}");
    assert!(!errors.contains("cancelled"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cut_off_is_said_in_numbers() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG.replace("5s", "300ms"));
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let daemon = stage.ready(&["--config", config]).await;
    let all = ["a", "b", "c"].map(|id| message(id, id, &endpoint.url("/")));
    publish(&stage, &daemon, &all.join("\n"));
    endpoint.wait_for(3).await;
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("3 calls were cancelled and will be repeated"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_alerts_and_speaks_json() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let alerts = format!("[alerts]\nwebhook = {:?}\n", endpoint.url("/alerts"));
    let json = format!("{CONFIG}{alerts}[log]\nformat = \"json\"\n");
    let config = stage.file("s.toml", &json);
    let daemon = stage.serve_json(&["--config", config]).await;
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let cases = [
        (vec!["serve", "--config", config], "already served by another process"),
        (vec!["serve", "--config", config, "--listen", &address], "cannot listen on"),
    ];
    for (at, (arguments, words)) in cases.into_iter().enumerate() {
        let ended = stage.run(&arguments);
        ended.check(1, &[words]);
        for line in ended.stderr.lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
        let told: Vec<Value> = endpoint.asked().iter().map(|asked| asked.json()).collect();
        assert_eq!(told.len(), at + 1, "{told:?}");
        assert_eq!(
            (&told[at]["code"], &told[at]["severity"]),
            (&"START_FAILED".into(), &"CRITICAL".into())
        );
        assert!(told[at]["message"].as_str().is_some_and(|said| said.contains(words)), "{told:?}");
    }
    assert_eq!(daemon.terminated().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_file_is_reported_whole_once() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG);
    let mut daemon = stage.ready(&["--config", config]).await;
    stage.file("s.toml", format!("{CONFIG}colour = 1\n"));
    daemon.signal(Signal::SIGHUP);
    daemon.says("config.reload").await;
    let (_, errors) = daemon.terminated().await;
    assert_eq!(errors.matches("| colour = 1").count(), 1, "{errors}");
    assert_eq!(errors.lines().filter(|line| line.contains("^^^")).count(), 1, "{errors}");
}
