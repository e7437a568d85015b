//! The event store in PostgreSQL: several daemons on one log, and what happens while it is not reached.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use sluicegate_testkit::brokers::{Kind, lend, start_or_skip};

use super::events::{append, post};
use super::stage::Stage;
use super::stream::Follower;

/// A file with a log of its own in that database.
fn file(url: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    format!("[events]\nurl = \"{url}?schema=t{now}\"\n")
}

#[tokio::test]
async fn two_daemons_share_one_log() {
    let Some(postgres) = lend(Kind::Postgres) else { return };
    let file = file(postgres.url());
    let (one, other) = (Stage::start(&file).await, Stage::start(&file).await);
    assert_eq!(one.get("/health/ready").await.status, 200);
    let mut follower = Follower::at(&other, "/api/v1/events/stream", "").await;
    let body =
        json!({ "projectors": [{ "id": "n", "fold": "count", "items": [{ "tags": ["k:v"] }] }] });
    let before = post(&one, "/project", body.clone()).await.json();
    assert_eq!(before["states"]["n"], 0);
    let position = append(&one, "A", "k:v", json!({ "a": "ü" })).await;
    follower.until(&format!("id: {position}\n")).await;
    assert_eq!(post(&other, "/project", body).await.json()["states"]["n"], 1);
    let late =
        json!({ "events": [{ "type": "A", "tags": ["k:v"] }], "condition": before["condition"] });
    post(&other, "", late).await.problem(409, "append_condition_failed");
    let found = post(&other, "/query", json!({ "items": [{ "types": ["A"] }] })).await.items();
    assert_eq!((found.len(), &found[0]["data"]), (1, &json!({ "a": "ü" })));
    let shown = one.get("/api/v1/config").await.json()["events"]["url"].to_string();
    assert!(shown.contains("***"), "{shown}");
}

#[tokio::test]
async fn while_it_is_not_reached_the_daemon_runs_and_is_not_ready() {
    let Some(mut postgres) = start_or_skip(Kind::Postgres) else { return };
    let file = file(postgres.url());
    postgres.crash();
    let stage = Stage::start(&file).await;
    assert_eq!(stage.get("/health/live").await.status, 200);
    let ready = stage.get("/health/ready").await;
    assert_eq!(ready.status, 503, "{ready:?}");
    let issues = ready.json()["issues"].to_string();
    assert!(issues.contains("the event store has not connected yet: not reached"), "{issues}");
    let problem = post(&stage, "/query", json!({})).await.problem(503, "storage_failed");
    assert!(problem["detail"].to_string().contains("event store"), "{problem}");
    assert_eq!(stage.get("/api/v1/queues").await.status, 200);
    postgres.restart().expect("it comes back");
    stage.until("/health/ready", |reply| reply.status == 200).await;
    assert!(append(&stage, "A", "k:v", json!({})).await > 0);
    // Gone once more, it is an issue, and whoever asks hears of it.
    postgres.crash();
    stage.until("/health", |reply| reply.body.contains("the event store: ")).await;
    let refused = post(&stage, "/query", json!({})).await;
    assert!([503, 504].contains(&refused.status), "{refused:?}");
    postgres.restart().expect("it comes back");
    stage.until("/health", |reply| !reply.body.contains("the event store: ")).await;
    assert_eq!(post(&stage, "/query", json!({})).await.items().len(), 1);
}
