//! Killed while heads of groups wait to be tried again, or run, a daemon knows of them what it knew before.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::{Instant, sleep};

use crate::stage::{Daemon, PATIENCE, Stage};

const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"r.db\"\n\
    [[queue]]\nname = \"default\"\nuri = \"sqlite:default\"\n\
    [http.breaker]\nscope = \"off\"\n\
    [[pool]]\ncode = \"TEST\"\nconcurrency = 20\nordering = \"strict\"\nmax_attempts = 3\n";

/// What a head asks for after each failure.
const DELAY: Duration = Duration::from_secs(3);
/// Within this the queue has heard that an attempt failed.
const SOON: Duration = Duration::from_secs(1);

async fn publish(daemon: &Daemon, messages: &Value) {
    let answer = daemon.post("/api/v1/messages", messages).await;
    assert_eq!(answer.status, 202, "{:?}", answer.body);
}

fn message(id: &str, group: &str, high: bool, endpoint: &Endpoint) -> Value {
    json!({
        "id": id, "poolCode": "TEST", "messageGroupId": group, "highPriority": high,
        "mediationTarget": endpoint.url("/"),
    })
}

/// docs/rules.md#strict-7: killed after each failure, a head is tried as often as its pool says and no oftener, each
/// time after its delay.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_waits_keeps_its_attempts_and_its_delay() {
    let stage = Stage::new();
    let config = stage.file("r.toml", CONFIG);
    let endpoint = Endpoint::start().await;
    let later = format!(r#"{{"ack":false,"delaySeconds":{}}}"#, DELAY.as_secs());
    endpoint.otherwise(Answer::ok().body(later));
    let mut daemon = stage.ready(&["--config", config]).await;
    let both = ["head", "next"].map(|id| message(id, "g", false, &endpoint));
    publish(&daemon, &json!(both)).await;
    for attempt in 1..=2 {
        endpoint.wait_for(attempt).await;
        sleep(SOON).await;
        daemon.kill().await;
        daemon = stage.ready(&["--config", config]).await;
    }
    let end = Instant::now() + PATIENCE;
    let parked = loop {
        let parked = daemon.get("/api/v1/parked").await;
        let parked: Value = serde_json::from_slice(&parked.body).expect("JSON");
        if parked["items"].as_array().is_some_and(|items| items.len() == 2) {
            break parked;
        }
        assert!(Instant::now() < end, "{parked}");
        sleep(Duration::from_millis(50)).await;
    };
    let asked = endpoint.asked();
    let ids: Vec<String> = asked.iter().map(|asked| asked.message_id()).collect();
    assert_eq!(ids, ["head"; 3]);
    for pair in asked.windows(2) {
        let pause = pair[1].at - pair[0].at;
        assert!(pause >= DELAY - Duration::from_millis(50), "it came again after {pause:?}");
    }
    let attempts: Vec<&Value> =
        parked["items"].as_array().expect("a list").iter().map(|item| &item["attempts"]).collect();
    assert!(attempts.contains(&&json!(3)), "{parked}");
}

/// docs/rules.md#strict-7: a message of high priority goes before those that wait, never before one that was called.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_was_called_stays_before_high_priority() {
    let stage = Stage::new();
    let config = stage.file("r.toml", CONFIG);
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let daemon = stage.ready(&["--config", config]).await;
    let groups: Vec<String> = (0..10).map(|n| format!("g{n}")).collect();
    let each = |name: &str, high: bool| -> Value {
        let one = |group: &String| message(&format!("{group}-{name}"), group, high, &endpoint);
        groups.iter().map(one).collect()
    };
    publish(&daemon, &each("head", false)).await;
    publish(&daemon, &each("next", false)).await;
    endpoint.wait_for(groups.len()).await;
    publish(&daemon, &each("high", true)).await;
    daemon.kill().await;
    endpoint.otherwise(Answer::ok());
    let daemon = stage.ready(&["--config", config]).await;
    endpoint.wait_for(groups.len() * 4).await;
    let asked: Vec<String> = endpoint.asked().iter().map(|asked| asked.message_id()).collect();
    for group in &groups {
        let of_group = |id: &&String| id.split_once('-').is_some_and(|(of, _)| of == group);
        let ids: Vec<&String> = asked.iter().filter(of_group).collect();
        let expected = ["head", "head", "high", "next"].map(|name| format!("{group}-{name}"));
        assert_eq!(ids, expected.iter().collect::<Vec<_>>());
    }
    drop(daemon);
}
