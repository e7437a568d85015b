//! `sluicegate serve`, from its first line to its exit code.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::net::TcpListener;

use crate::stage::{Stage, message};

const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"5s\"\n\
    [state]\npath = \"s.db\"\n[[pool]]\ncode = \"TEST\"\nconcurrency = 4\nordering = \"strict\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn without_a_file_it_serves_the_embedded_queue() {
    let stage = Stage::new();
    let daemon = stage.ready(&["--listen", "localhost:0"]).await;
    assert!(daemon.url.starts_with("http://127.0.0.1:"), "{}", daemon.url);
    for path in ["/health", "/health/live", "/health/ready", "/health/startup", "/metrics"] {
        assert_eq!(daemon.get(path).await.status, 200, "{path}");
    }
    assert!(stage.path("sluicegate.db").exists());
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
}

/// Whoever waits for `ready` reads which queues are not.
#[tokio::test(flavor = "multi_thread")]
async fn queues_that_are_not_open_are_named_when_it_is_ready() {
    let stage = Stage::new();
    let queue = |name: &str, uri: &str| format!("[[queue]]\nname = \"{name}\"\nuri = \"{uri}\"\n");
    let away = queue("away", "amqp://me:tiger@127.0.0.1:9/%2f?queue=away");
    let text = format!("{CONFIG}{away}{}", queue("here", "sqlite:here"));
    let mut daemon = stage.serve(&["--config", stage.file("s.toml", &text)]).await;
    let line = daemon.line().await;
    assert!(line.starts_with("ready, but for: queue away has not connected yet"), "{line}");
    assert!(!line.contains("here") && !line.contains("tiger"), "{line}");
    drop(daemon);
    let json = format!("{text}[log]\nformat = \"json\"\n");
    let daemon = stage.launch(&["serve", "--config", stage.file("s.toml", json)]);
    let (mut daemon, mut line) = (daemon, Value::Null);
    for _ in 0..2 {
        line = serde_json::from_str(&daemon.line().await).expect("a line of JSON");
    }
    assert_eq!(line["message"], "ready", "{line}");
    let named = line["notReady"][0].as_str().unwrap_or_default();
    assert!(named.contains("queue away"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_json_log_all_that_it_says_is_json() {
    let stage = Stage::new();
    let config = stage.file("s.toml", format!("{CONFIG}[log]\nformat = \"json\"\n"));
    let mut daemon = stage.launch(&["serve", "--config", config]);
    let mut line = async || -> Value {
        let line = daemon.line().await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let listening = line().await;
    assert_eq!((&listening["message"], &listening["level"]), (&json!("listening"), &json!("INFO")));
    assert!(listening["url"].as_str().is_some_and(|url| url.starts_with("http://127.0.0.1:")));
    assert_eq!(line().await["message"], "ready");
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    for line in errors.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_what_runs_finish_and_answers_meanwhile() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG);
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().after(Duration::from_millis(800)));
    let mut daemon = stage.ready(&["--config", config]).await;
    let two = [message("m1", "g", &endpoint.url("/")), message("m2", "g", &endpoint.url("/"))];
    let publish = ["publish", "--server", &daemon.url.clone()];
    stage.run_with(&publish, &[], two.join("\n").as_bytes()).check(0, &["accepted 2"]);
    endpoint.wait_for(1).await;
    daemon.signal(Signal::SIGTERM);
    daemon.says("SIGTERM").await;
    let late = stage.run_with(&publish, &[], two[0].as_bytes());
    late.check(1, &["shutting_down", "accepted 0"]);
    assert_eq!(daemon.get("/health/live").await.status, 200);
    let (code, errors) = daemon.ended().await;
    assert_eq!(code, Some(0), "{errors}");
    // The first was finished and is not delivered again; the second never began.
    let daemon = stage.ready(&["--config", config]).await;
    endpoint.wait_for(2).await;
    let ids: Vec<String> = endpoint.asked().iter().map(|asked| asked.message_id()).collect();
    assert_eq!(ids, ["m1", "m2"]);
    assert_eq!(daemon.terminated().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG.replace("5s", "50s"));
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let mut daemon = stage.ready(&["--config", config]).await;
    let one = message("m1", "g", &endpoint.url("/"));
    let publish = ["publish", "--server", &daemon.url.clone()];
    stage.run_with(&publish, &[], one.as_bytes()).check(0, &[]);
    endpoint.wait_for(1).await;
    daemon.signal(Signal::SIGINT);
    daemon.says("SIGINT").await;
    // Sooner it would be taken for the same.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    daemon.signal(Signal::SIGTERM);
    let (code, errors) = daemon.ended().await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("calls cut off: 1"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_call_is_handed_back_at_the_deadline() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG.replace("5s", "300ms"));
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::hang()]);
    let daemon = stage.ready(&["--config", config]).await;
    let one = message("m1", "g", &endpoint.url("/"));
    let publish = ["publish", "--server", &daemon.url.clone()];
    stage.run_with(&publish, &[], one.as_bytes()).check(0, &[]);
    endpoint.wait_for(1).await;
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    let daemon = stage.ready(&["--config", config]).await;
    endpoint.wait_for(2).await;
    assert_eq!(daemon.terminated().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reads_the_file_again() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG);
    let mut daemon = stage.ready(&["--config", config]).await;
    let changed = CONFIG.replace("concurrency = 4", "concurrency = 7").replace("5s", "6s");
    stage.file("s.toml", changed);
    daemon.signal(Signal::SIGHUP);
    daemon.says("reloaded").await;
    let pools = String::from_utf8(daemon.get("/api/v1/pools").await.body.to_vec()).expect("text");
    assert!(pools.contains("\"concurrency\":7"), "{pools}");
    stage.file("s.toml", "[[pool]]\n");
    daemon.signal(Signal::SIGHUP);
    daemon.says("not reloaded: s.toml:1").await;
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_it_from_serving_is_said() {
    let stage = Stage::new();
    let config = stage.file("s.toml", CONFIG);
    let daemon = stage.ready(&["--config", config]).await;
    let served = stage.run(&["serve", "--config", config]);
    served.check(1, &["s.db", "already served by another process"]);
    assert_eq!(daemon.terminated().await.0, Some(0));
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let taken = stage.run(&["serve", "--config", config, "--listen", &address]);
    taken.check(1, &["cannot listen on", &address, "--listen"]);
    stage.file("bad.toml", "[[pool]]\ncode = \"A\"\nconcurrency = 0\n");
    let bad = stage.run(&["serve", "--config", "bad.toml"]);
    bad.check(2, &["bad.toml:3:15: pool[0].concurrency"]);
    let logged = stage.run_with(&["serve", "--config", config], &[("RUST_LOG", "a=b=c")], b"");
    logged.check(2, &["RUST_LOG"]);
    stage
        .file("lost.toml", "[state]\npath = \"no/where.db\"\n[server]\nlisten = \"127.0.0.1:0\"\n");
    stage
        .run(&["serve", "--config", "lost.toml"])
        .check(1, &["state file no/where.db", "No such file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_begin_without_its_first_configuration() {
    let stage = Stage::new();
    let synced = |attempts, delay: &str| {
        format!(
            "{CONFIG}[router]\nconfig_url = [\"http://127.0.0.1:9/config\"]\n\
             sync_attempts = {attempts}\nsync_retry_delay = {delay:?}\n"
        )
    };
    let config = stage.file("y.toml", synced(1, "5s"));
    let lost = stage.run(&["serve", "--config", config]);
    lost.check(1, &["listening on", "http://127.0.0.1:9/config", "could not be reached"]);
    assert!(!lost.stdout.contains("ready"), "{lost:?}");
    // While it tries, it answers, says that it is not ready, and can be ended.
    let config = stage.file("z.toml", synced(9, "60s"));
    let mut daemon = stage.serve(&["--config", config]).await;
    daemon.says("config sync").await;
    assert_eq!(daemon.get("/health/live").await.status, 200);
    assert_eq!(daemon.get("/health/ready").await.status, 503);
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
}
