//! A configured queue that could not be opened: it is said, and it is tried again.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;

use super::schema::Document;
use super::stage::{Reply, Stage};

const ORDERS: &str = "[[queue]]\nname = \"orders\"\nuri = \"sqlite:orders\"\n";

/// A daemon that has begun while another process held its state file for longer than a write waits.
async fn begun_locked(toml: &str) -> (Stage, Connection) {
    let stage = Stage::open(toml).await;
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    stage.daemon.begin().await.expect("it begins");
    (stage, file)
}

fn message() -> String {
    json!({ "id": "m", "mediationTarget": "http://127.0.0.1:9/" }).to_string()
}

fn names_orders(reply: &Reply) -> bool {
    let issues = reply.json()["issues"].clone();
    let mut issues = issues.as_array().into_iter().flatten().filter_map(|issue| issue.as_str());
    issues.any(|issue| issue.contains("queue orders"))
}

#[tokio::test]
async fn a_daemon_is_not_ready_before_its_queue_is_open_and_tries_again_soon() {
    let (stage, file) = begun_locked(ORDERS).await;
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    let freed = Instant::now();
    let ready = stage.get("/health/ready").await;
    assert_eq!((ready.status, names_orders(&ready)), (503, true), "{ready:?}");
    let health = stage.get("/health").await;
    assert!(names_orders(&health), "{health:?}");
    assert_ne!(health.json()["status"], "UP", "{health:?}");
    stage.until("/health/ready", |reply| reply.status == 200).await;
    let took = freed.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert_eq!(stage.post("/api/v1/messages?queue=orders", &message()).await.status, 202);
    let health = stage.until("/health", |reply| reply.json()["status"] == "UP").await;
    assert!(!names_orders(&health), "{health:?}");
    let warnings = stage.get("/api/v1/warnings").await.items();
    let failed = warnings.iter().find(|one| one["code"] == "CONSUMER_RESTART_FAILED");
    assert_eq!(failed.map(|one| &one["resolved"]), Some(&json!(true)), "{warnings:?}");
}

#[tokio::test]
async fn a_queue_that_is_not_open_is_neither_unknown_nor_empty() {
    let (stage, _file) = begun_locked(ORDERS).await;
    for path in ["/api/v1/messages?queue=orders", "/api/v1/messages"] {
        let reply = stage.post(path, &message()).await;
        let problem = reply.problem(503, "storage_failed");
        Document::of(&stage).await.check("post", "/api/v1/messages", &reply);
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("`orders` is not open yet: "), "{problem}");
    }
    let unknown = stage.post("/api/v1/messages?queue=order", &message()).await;
    let problem = unknown.problem(404, "unknown_queue");
    assert!(problem["detail"].as_str().is_some_and(|words| words.contains("orders")), "{problem}");
    let parked = stage.get("/api/v1/parked?queue=orders").await;
    assert_eq!(parked.status, 200, "{parked:?}");
    let why = stage.get("/api/v1/messages/m").await;
    let problem = why.problem(503, "queues_not_asked");
    assert_eq!(problem["notAsked"][0]["queue"], "orders", "{problem}");
    assert!(!why.body.contains("gone for good"), "{problem}");
}

/// What cannot be opened and is not wanted any more is no trouble any more.
#[tokio::test]
async fn a_queue_that_is_not_wanted_any_more_need_not_be_open() {
    let (stage, file) = begun_locked(ORDERS).await;
    stage.rewrite("[[queue]]\nname = \"bills\"\nuri = \"sqlite:bills\"\n");
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
    stage.until("/health/ready", |reply| reply.status == 200).await;
    stage.post("/api/v1/messages?queue=orders", &message()).await.problem(404, "unknown_queue");
    let warnings = stage.get("/api/v1/warnings").await.items();
    let failed = warnings.iter().find(|one| one["code"] == "CONSUMER_RESTART_FAILED");
    assert_eq!(failed.map(|one| &one["resolved"]), Some(&json!(true)), "{warnings:?}");
}

/// Its parked messages are not those of a queue that is gone: they go back once it is open.
#[tokio::test]
async fn a_replay_into_a_queue_that_is_not_open_can_be_tried_again() {
    let stage = Stage::open(ORDERS).await;
    let line = json!({
        "id": "1", "queue": "orders", "brokerId": "b", "pool": "P", "code": "rejected", "reason": "words",
        "status": 400, "attempts": 1, "parkedAt": "2026-11-16T10:00:00Z", "holdsKey": false,
        "message": { "id": "m", "poolCode": "P", "mediationTarget": "http://127.0.0.1:9/" },
    });
    let imported = stage.post("/api/v1/parked/import", &format!("{line}\n")).await;
    assert_eq!(imported.json()["added"], 1, "{imported:?}");
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    stage.daemon.begin().await.expect("it begins");
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    let cases = [
        ("/api/v1/parked/1/replay", ""),
        ("/api/v1/parked/replay", r#"{"ids":["1"]}"#),
        ("/api/v1/parked/replay", r#"{"ids":["1"],"dryRun":true}"#),
    ];
    for (path, body) in cases {
        let reply = stage.post(path, body).await;
        if reply.status == 200 {
            // It was just opened.
            break;
        }
        let problem = reply.problem(503, "storage_failed");
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("orders, which is not open yet: "), "{problem}");
        assert!(detail.contains("then replay again"), "{problem}");
    }
    stage.until("/health/ready", |reply| reply.status == 200).await;
    let again = stage.post("/api/v1/parked/1/replay", "").await;
    assert!(again.status == 200 || again.status == 404, "{again:?}");
}
