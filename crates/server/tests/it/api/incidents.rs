//! What goes wrong is warned of, for as long as it lasts.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use sluicegate_dispatch::{Parked, ParkedCode, ParkedStore};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::schema::Document;
use super::stage::{Reply, Stage};

/// Waits for a warning of that code, which is or is not over.
async fn warning(stage: &Stage, code: &str, is_over: bool) -> Value {
    let find = |reply: &Reply| {
        let fits = |one: &&Value| one["code"] == code && one["resolved"] == is_over;
        reply.items().iter().find(fits).cloned()
    };
    let reply = stage.until("/api/v1/warnings", |reply| find(reply).is_some()).await;
    Document::of(stage).await.check("get", "/api/v1/warnings", &reply);
    find(&reply).expect("it was there")
}

#[track_caller]
fn check(warning: &Value, severity: &str, subject: &str, words: &str) {
    assert_eq!((&warning["severity"], &warning["subject"]), (&json!(severity), &json!(subject)));
    let message = warning["message"].as_str().unwrap_or_default();
    assert!(message.contains(words), "{words:?} is not in {message:?}");
    assert_eq!(warning["resolved"] == true, warning["resolvedAt"].is_string(), "{warning}");
}

async fn publish(stage: &Stage, id: &str, url: &str) {
    let body = json!({ "id": id, "mediationTarget": url, "poolCode": "P", "messageGroupId": "g" });
    let reply = stage.post("/api/v1/messages", &body.to_string()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}

#[tokio::test]
async fn a_breaker_that_opens_is_warned_of_until_it_closes() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let toml = "[http.breaker]\nvolume = 1\nopen_for = \"10m\"\n[[pool]]\ncode = \"P\"\n";
    let stage = Stage::start(toml).await;
    publish(&stage, "m", &endpoint.url("/in")).await;
    let host = endpoint.address().to_string();
    let opened = warning(&stage, "BREAKER_OPEN", false).await;
    check(&opened, "WARNING", &host, &host);
    let health = stage.get("/health").await;
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("DEGRADED")), "{health:?}");
    assert!(health.body.contains(&host), "{health:?}");
    let name = host.replace(':', "%3A");
    assert_eq!(stage.post(&format!("/api/v1/breakers/{name}/reset"), "").await.status, 200);
    check(&warning(&stage, "BREAKER_OPEN", true).await, "WARNING", &host, &host);
    assert_eq!(stage.get("/health").await.json()["status"], "UP");
    let metrics = stage.get("/metrics").await.body;
    assert!(
        metrics.contains("sluicegate_warnings{severity=\"WARNING\",code=\"BREAKER_OPEN\"} 0"),
        "{metrics}"
    );
}

const STRICT: &str = "[[pool]]\ncode = \"P\"\nordering = \"strict\"\nmax_attempts = 1\n";

#[tokio::test]
async fn used_up_attempts_are_warned_of_until_nothing_is_parked() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().body(r#"{"ack":false}"#));
    let stage = Stage::start(STRICT).await;
    publish(&stage, "m1", &endpoint.url("/in")).await;
    check(&warning(&stage, "PARKED", false).await, "ERROR", "P", "m1");
    publish(&stage, "m2", &endpoint.url("/in")).await;
    let both = |reply: &Reply| reply.items().len() == 2;
    let parked = stage.until("/api/v1/parked", both).await.items();
    // A key that is parked is counted.
    stage.until("/api/v1/warnings", |reply| reply.items()[0]["count"] == 2).await;
    for item in parked {
        let id = item["id"].as_str().expect("an id");
        assert_eq!(stage.delete(&format!("/api/v1/parked/{id}")).await.status, 204);
    }
    check(&warning(&stage, "PARKED", true).await, "ERROR", "P", "");
}

/// Whoever was told before the restart hears when it is over.
#[tokio::test]
async fn what_was_parked_before_the_start_is_warned_of_until_it_is_gone() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().body(r#"{"ack":false}"#));
    let webhook = Endpoint::start().await;
    let alerts = format!("{STRICT}[alerts]\nwebhook = {:?}\n", webhook.url("/"));
    let stage = Stage::open(&alerts).await;
    let message = sluicegate_sources::wire::parse(
        json!({ "id": "m1", "mediationTarget": endpoint.url("/in"), "poolCode": "P" })
            .to_string()
            .as_bytes(),
    );
    let row = |pool: &str, code| Parked {
        queue: "default".into(),
        broker_id: pool.into(),
        pool: Some(pool.into()),
        code,
        reason: "words".to_owned(),
        status: None,
        attempts: 1,
        holds_key: false,
        last_error: None,
        message: Ok(message.clone().expect("a message").message),
    };
    let rows = vec![row("P", ParkedCode::Exhausted), row("Q", ParkedCode::Rejected)];
    stage.daemon.store().park(rows).await.expect("they are parked");
    stage.daemon.begin().await.expect("it begins");
    check(&warning(&stage, "PARKED", false).await, "ERROR", "P", "sluicegate parked --pool P");
    assert_eq!(stage.get("/api/v1/warnings").await.items().len(), 1);
    webhook.wait_for(1).await;
    assert_eq!(stage.delete("/api/v1/parked/1").await.status, 204);
    check(&warning(&stage, "PARKED", true).await, "ERROR", "P", "");
    webhook.wait_for(2).await;
    let told: Vec<Value> = webhook.asked().iter().map(|asked| asked.json()).collect();
    assert_eq!((&told[0]["code"], &told[0]["resolved"]), (&json!("PARKED"), &json!(false)));
    assert_eq!((&told[1]["id"], &told[1]["resolved"]), (&told[0]["id"], &json!(true)));
}

#[tokio::test]
async fn a_rejected_message_is_no_parked_warning() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(404));
    let stage = Stage::start(STRICT).await;
    publish(&stage, "m1", &endpoint.url("/in")).await;
    stage.until("/api/v1/parked", |reply| reply.items().len() == 1).await;
    let codes: Vec<Value> =
        stage.get("/api/v1/warnings").await.items().iter().map(|one| one["code"].clone()).collect();
    assert_eq!(codes, ["CONFIGURATION"]);
}

#[tokio::test]
async fn a_blocked_head_is_warned_of_until_someone_acts() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().body(r#"{"ack":false}"#));
    let stage = Stage::start(&format!("{STRICT}on_exhausted = \"block\"\n")).await;
    publish(&stage, "m1", &endpoint.url("/in")).await;
    check(&warning(&stage, "GROUP_BLOCKED", false).await, "ERROR", "P", "m1");
    assert_eq!(stage.get("/health").await.json()["status"], "DEGRADED");
    assert_eq!(stage.post("/api/v1/inflight/m1/ack", "").await.status, 200);
    check(&warning(&stage, "GROUP_BLOCKED", true).await, "ERROR", "P", "m1");
}

/// Three groups are blocked; whichever is named is helped, until none is left.
#[tokio::test]
async fn a_warning_of_blocked_groups_names_one_that_still_is() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().body(r#"{"ack":false}"#));
    let stage = Stage::start(&format!("{STRICT}on_exhausted = \"block\"\n")).await;
    for group in ["a", "b", "c"] {
        let (id, url) = (format!("m-{group}"), endpoint.url("/in"));
        let body =
            json!({ "id": id, "mediationTarget": url, "poolCode": "P", "messageGroupId": group });
        assert_eq!(stage.post("/api/v1/messages", &body.to_string()).await.status, 202);
    }
    let mut left = vec!["m-a", "m-b", "m-c"];
    let blocked = |reply: &Reply| reply.items().iter().filter(|one| one["blocked"] == true).count();
    stage.until("/api/v1/groups", |reply| blocked(reply) == 3).await;
    let mut raised = 0;
    while !left.is_empty() {
        let names_one = |text: &str| left.iter().any(|id| text.contains(id));
        let health = stage.until("/health", |reply| names_one(&reply.body)).await;
        assert_eq!(health.json()["issues"].as_array().map(Vec::len), Some(1), "{health:?}");
        let open = warning(&stage, "GROUP_BLOCKED", false).await;
        let named = left.iter().position(|id| open["message"].to_string().contains(id));
        let id = left.remove(named.expect("one that is blocked is named"));
        assert_eq!(stage.post(&format!("/api/v1/inflight/{id}/ack"), "").await.status, 200);
        raised = open["count"].as_u64().unwrap_or_default();
    }
    let over = warning(&stage, "GROUP_BLOCKED", true).await;
    assert_eq!((raised, &over["count"]), (3, &json!(3)), "one for each that was blocked");
}

#[tokio::test]
async fn a_reload_that_failed_is_warned_of_until_the_next_good_one() {
    let stage = Stage::start("[[pool]]\ncode = \"A\"\n").await;
    stage.rewrite("[[pool]]\ncode = \"A\"\nconcurrency = 0\n");
    stage.post("/api/v1/config/reload", "").await.problem(422, "invalid_config");
    let invalid = warning(&stage, "CONFIG_INVALID", false).await;
    let file = stage.folder.path().join("sluicegate.toml").display().to_string();
    check(&invalid, "ERROR", &file, "pool[0].concurrency");
    stage.rewrite("[[pool]]\ncode = \"A\"\n");
    assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
    warning(&stage, "CONFIG_INVALID", true).await;
    stage.rewrite("what");
    stage.post("/api/v1/config/reload", "").await.problem(422, "invalid_config");
    let again = warning(&stage, "CONFIG_INVALID", false).await;
    assert_eq!((&again["id"], &again["count"]), (&invalid["id"], &json!(2)), "the same matter");
}

/// Another process holds the file's write lock for longer than a write waits. Nothing is published or
/// settled after that: it heals by itself.
#[tokio::test]
async fn a_state_file_that_cannot_be_written_is_critical_and_heals_by_itself() {
    let stage = Stage::start("").await;
    assert_eq!(stage.get("/health/ready").await.status, 200);
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let body = json!({ "id": "m", "mediationTarget": "http://127.0.0.1:9/" }).to_string();
    stage.post("/api/v1/messages", &body).await.problem(503, "storage_failed");
    let failed = warning(&stage, "STATE_FAILED", false).await;
    let path = stage.folder.path().join("state.db").display().to_string();
    check(&failed, "CRITICAL", &path, "another process holds the state file");
    let ready = stage.get("/health/ready").await;
    assert_eq!((ready.status, &ready.json()["status"]), (503, &json!("DOWN")));
    assert!(ready.body.contains("state file"), "{ready:?}");
    assert_eq!(stage.get("/health/live").await.status, 200);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stage.get("/health/ready").await.status, 503, "it still cannot be written");
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    stage.until("/health/ready", |reply| reply.status == 200).await;
    warning(&stage, "STATE_FAILED", true).await;
}

/// Time is paused: it runs on when everybody waits.
#[tokio::test(start_paused = true)]
async fn a_lost_broker_is_warned_of_after_five_seconds_and_worse_after_sixty() {
    let stage = Stage::start("").await;
    let broker = crate::scene::Stock::of([]);
    let settings = sluicegate_dispatch::QueueSettings::new(1, 10);
    stage.daemon.router().add_queue("orders", settings, broker.clone()).await.expect("a queue");
    let severities = async || {
        let all = stage.get("/api/v1/warnings").await.items();
        let down = all.iter().filter(|one| one["code"] == "SOURCE_DOWN");
        let mut found: Vec<(String, bool)> = down
            .map(|one| {
                assert_eq!(one["subject"], "orders");
                (one["severity"].to_string(), one["resolved"] == true)
            })
            .collect();
        found.sort();
        found
    };
    let seen = |of: &[(&str, bool)]| -> Vec<(String, bool)> {
        of.iter().map(|(severity, over)| (format!("{severity:?}"), *over)).collect()
    };
    tokio::time::sleep(Duration::from_secs(30)).await;
    *broker.trouble.lock() = Some("refused");
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert_eq!(severities().await, seen(&[]));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(severities().await, seen(&[("WARNING", false)]));
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(severities().await, seen(&[("WARNING", false)]));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(severities().await, seen(&[("ERROR", false), ("WARNING", false)]));
    *broker.trouble.lock() = None;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(severities().await, seen(&[("ERROR", true), ("WARNING", true)]));
    // A short break is none.
    *broker.trouble.lock() = Some("refused");
    tokio::time::sleep(Duration::from_secs(3)).await;
    *broker.trouble.lock() = None;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(severities().await, seen(&[("ERROR", true), ("WARNING", true)]));
}

/// Somebody else holds the file: who waits to write need not give up first.
#[tokio::test]
async fn a_state_file_that_is_held_is_critical_within_a_second_or_so() {
    let stage = Stage::start("").await;
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let body = json!({ "id": "m", "mediationTarget": "http://127.0.0.1:9/" }).to_string();
    let begun = std::time::Instant::now();
    let publishing = stage.post("/api/v1/messages", &body);
    let watching = async {
        let failed = warning(&stage, "STATE_FAILED", false).await;
        let took = begun.elapsed();
        let ready = stage.get("/health/ready").await.status;
        file.execute_batch("ROLLBACK").expect("the lock is given back");
        (failed, took, ready)
    };
    let (published, (failed, took, ready)) = tokio::join!(publishing, watching);
    let path = stage.folder.path().join("state.db").display().to_string();
    check(&failed, "CRITICAL", &path, "another process holds the state file");
    assert!(took < Duration::from_millis(2_000), "it took {took:?}");
    assert_eq!(ready, 503);
    assert_eq!(published.status, 202, "it was not in vain: {published:?}");
    stage.until("/health/ready", |reply| reply.status == 200).await;
    warning(&stage, "STATE_FAILED", true).await;
}
