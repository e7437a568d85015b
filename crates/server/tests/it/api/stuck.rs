//! What does not get on is seen: a head that fails for ever, a source that is not told, a pool that is full of what is
//! done.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::{Instant, sleep};

use super::schema::Document;
use super::stage::{Reply, Stage};

const PATIENCE: Duration = Duration::from_secs(40);

/// Waits for a reply, longer than others do.
async fn until(stage: &Stage, path: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
    let by = Instant::now() + PATIENCE;
    loop {
        let reply = stage.get(path).await;
        if wanted(&reply) {
            return reply;
        }
        assert!(Instant::now() < by, "{path} stays {reply:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for a warning of that code, which is or is not over.
async fn warning(stage: &Stage, code: &str, is_over: bool) -> Value {
    let find = |reply: &Reply| {
        let fits = |one: &&Value| one["code"] == code && one["resolved"] == is_over;
        reply.items().iter().find(fits).cloned()
    };
    let reply = until(stage, "/api/v1/warnings", |reply| find(reply).is_some()).await;
    Document::of(stage).await.check("get", "/api/v1/warnings", &reply);
    find(&reply).expect("it was there")
}

async fn publish(stage: &Stage, id: &str, group: &str, url: &str) {
    let body =
        json!({ "id": id, "mediationTarget": url, "poolCode": "P", "messageGroupId": group });
    let reply = stage.post("/api/v1/messages", &body.to_string()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}

fn series(page: &str, name: &str) -> Option<f64> {
    let of = |line: &&str| line.rsplit_once(' ').is_some_and(|(series, _)| series == name);
    page.lines().find(of)?.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test]
async fn a_head_that_fails_again_and_again_is_warned_of_until_it_is_done() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().body(r#"{"ack":false,"delaySeconds":1}"#));
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nordering = \"strict\"\n").await;
    for id in ["m1", "m2", "m3"] {
        publish(&stage, id, "g", &endpoint.url("/in")).await;
    }
    endpoint.wait_for(4).await;
    let page = stage.get("/metrics").await.body;
    let oldest = series(&page, "sluicegate_pool_oldest_wait_seconds{pool=\"P\"}");
    assert!(oldest.is_some_and(|oldest| oldest >= 2.9), "since it came first: {oldest:?}");
    assert_eq!(stage.get("/health").await.json()["status"], "UP");
    let stuck = warning(&stage, "GROUP_STUCK", false).await;
    assert_eq!((&stuck["severity"], &stuck["subject"]), (&json!("WARNING"), &json!("P/g")));
    let message = stuck["message"].as_str().expect("words");
    for words in
        ["pool P", "group g", "m1", "10 attempts", "since 20", "answered 200 with ack=false"]
    {
        assert!(message.contains(words), "{words:?} is not in {message:?}");
    }
    let health = stage.get("/health").await.json();
    assert_eq!(health["status"], "DEGRADED", "{health}");
    let page = stage.get("/metrics").await.body;
    let open = "sluicegate_warnings{severity=\"WARNING\",code=\"GROUP_STUCK\"}";
    assert_eq!(series(&page, open), Some(1.0), "{page}");
    endpoint.otherwise(Answer::ok());
    let over = warning(&stage, "GROUP_STUCK", true).await;
    assert_eq!(over["id"], stuck["id"]);
    assert_eq!(stage.get("/health").await.json()["status"], "UP");
}

#[tokio::test]
async fn what_is_done_and_not_settled_is_told_apart() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 1\n").await;
    endpoint.otherwise(Answer::ok().after(Duration::from_millis(50)));
    // As many as have places, one that runs and 50 that wait, and some more.
    for number in 0..80 {
        let id = format!("m{number}");
        publish(&stage, &id, &id, &endpoint.url("/in")).await;
    }
    endpoint.wait_for(1).await;
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let unsettled = "sluicegate_queue_unsettled{queue=\"default\"}";
    until(&stage, "/metrics", |reply| series(&reply.body, unsettled) == Some(51.0)).await;
    let done = stage.get("/api/v1/messages/m40").await.json();
    assert_eq!((&done["state"], &done["why"]["reason"]), (&json!("done"), &json!("settling")));
    let detail = done["why"]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("its settlement is not durable yet"), "{done}");
    let behind = stage.get("/api/v1/messages/m79").await.json();
    let detail = behind["why"]["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains("pool P is full of messages that are done and not settled yet"),
        "{behind}"
    );
    assert_eq!(behind["why"]["reason"], "pool_full");
    let failures = "sluicegate_queue_settle_failures_total{queue=\"default\"}";
    until(&stage, "/metrics", |reply| series(&reply.body, failures) >= Some(1.0)).await;
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    until(&stage, "/metrics", |reply| series(&reply.body, unsettled) == Some(0.0)).await;
}

#[tokio::test]
async fn a_pool_that_is_back_is_no_routing_matter_any_more() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::start("[[pool]]\ncode = \"Q\"\n").await;
    publish(&stage, "m1", "g", &endpoint.url("/in")).await;
    warning(&stage, "ROUTING", false).await;
    stage.rewrite("[[pool]]\ncode = \"P\"\n");
    assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
    warning(&stage, "ROUTING", true).await;
}

#[tokio::test]
async fn a_wrong_file_is_one_clean_line() {
    let stage = Stage::start("[[pool]]\ncode = \"A\"\n").await;
    stage.rewrite("[[pool]]\ncode = \"A\"\nconcurrency = 0\n[[pool]]\nconcurrency = 0\n");
    stage.post("/api/v1/config/reload", "").await.problem(422, "invalid_config");
    let invalid = warning(&stage, "CONFIG_INVALID", false).await;
    let message = invalid["message"].as_str().expect("words");
    let first = "sluicegate.toml:3:15: pool[0].concurrency: must be at least 1, and 2 more";
    assert!(message.ends_with(first), "{message:?}");
    assert!(!message.contains('|') && !message.contains('^'), "{message:?}");
}

#[tokio::test]
async fn a_host_alone_names_the_one_that_is_paused() {
    let endpoint = Endpoint::start().await;
    let other = Endpoint::start().await;
    let busy = Answer::status(429).header("retry-after", "600");
    endpoint.otherwise(busy.clone());
    other.otherwise(busy);
    let stage = Stage::start("[[pool]]\ncode = \"P\"\n").await;
    publish(&stage, "m1", "g1", &endpoint.url("/in")).await;
    publish(&stage, "m2", "g2", &other.url("/in")).await;
    stage.until("/api/v1/pauses", |reply| reply.items().len() == 2).await;
    let several = stage.delete("/api/v1/pauses/127.0.0.1").await;
    several.problem(404, "unknown_pause");
    for address in [endpoint.address(), other.address()] {
        assert!(several.body.contains(&address.to_string()), "{several:?}");
    }
    let one = other.address().to_string().replace(':', "%3A");
    assert_eq!(stage.delete(&format!("/api/v1/pauses/{one}")).await.status, 204);
    other.otherwise(Answer::ok());
    endpoint.otherwise(Answer::ok());
    stage.until("/api/v1/pauses", |reply| reply.items().len() == 1).await;
    assert_eq!(stage.delete("/api/v1/pauses/127.0.0.1").await.status, 204);
    stage.until("/api/v1/inflight", |reply| reply.items().is_empty()).await;
}
