//! What is told of agents: events, metrics, warnings; and what never is.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::stage::{AgentStage, QUICK, REQUESTS, file};
use crate::api::stage::Ask;

/// Paper 001, section 6.
#[tokio::test]
async fn every_event_of_a_request_is_told() {
    let stage = AgentStage::start(QUICK).await;
    let mut listener = stage.stage.daemon.record().feed.listen();
    let reply = stage.ask("telegram:42", "x").await.json();
    stage.ask("telegram:42", "!crash").await;
    let mut heard: Vec<Value> = Vec::new();
    let last = |one: &Value| one["type"] == "request.failed";
    while !heard.iter().any(last) {
        let next = timeout(Duration::from_secs(10), listener.next()).await.expect("in time");
        let event = next.expect("the feed is there");
        let json: Value = serde_json::from_str(&event.json).expect("JSON");
        assert_eq!(json["type"], event.name);
        assert!(json["timestamp"].as_u64().is_some_and(|time| time > 1_700_000_000_000), "{json}");
        heard.push(json);
    }
    let tenant = json!({ "platform": "telegram", "userId": "42" });
    let of = |name: &str| {
        heard.iter().find(|one| one["type"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let enqueued = of("request.enqueued");
    assert_eq!((&enqueued["requestId"], &enqueued["tenantId"]), (&reply["requestId"], &tenant));
    assert_eq!((&enqueued["priority"], enqueued["queueDepth"].is_u64()), (&json!("NORMAL"), true));
    assert!(of("request.dequeued")["queueWaitMs"].is_u64());
    assert_eq!(of("worker.spawned")["workerId"], "worker-1");
    assert_eq!(of("worker.assigned")["tenantId"], tenant);
    assert!(of("worker.released")["durationMs"].is_u64());
    let completed = of("request.completed");
    assert!(completed["totalMs"].is_u64() && completed["executionMs"].is_u64(), "{completed}");
    assert_eq!(of("request.failed")["code"], "worker_crash");
    stage.end().await;
}

/// Who follows the stream hears the pool end, and everything until then.
#[tokio::test]
async fn the_end_of_the_pool_is_told() {
    let stage = AgentStage::start(QUICK).await;
    stage.run("web:1", "!sleep 1000ms done").await;
    let follows = stage.stage.get("/api/v1/stream");
    let ends = async {
        // It is served only once it is heard.
        let listens = || stage.stage.daemon.record().feed.listeners() > 0;
        while !listens() {
            tokio::task::yield_now().await;
        }
        Box::pin(stage.stage.daemon.shutdown()).await;
    };
    let (followed, ()) = tokio::join!(follows, ends);
    let body = &followed.body;
    let at = |name: &str| {
        let event = format!("event: {name}\n");
        body.find(&event).unwrap_or_else(|| panic!("no {name}: {body}"))
    };
    assert!(at("pool.shutdown") < at("request.completed"), "{body}");
}

#[tokio::test]
async fn requests_are_counted() {
    let stage = AgentStage::start(QUICK).await;
    assert_eq!(stage.ask("web:1", "x").await.status, 200);
    stage.ask("web:1", "!crash").await.problem(502, "worker_crash");
    stage.run("web:1", "!hang").await;
    let page = stage.stage.get("/metrics").await.body;
    for line in [
        "sluicegate_requests_total{result=\"completed\"} 1",
        "sluicegate_requests_total{result=\"worker_crash\"} 1",
        "sluicegate_request_queue_wait_seconds_count 3",
        "sluicegate_request_execution_seconds_count 1",
        "sluicegate_workers{state=\"BUSY\"} 1",
        "sluicegate_workers{state=\"IDLE\"} 0",
        "sluicegate_workers_limit 4",
        "sluicegate_requests_running 1",
        "sluicegate_requests_queued 0",
        "sluicegate_requests_queue_limit 50",
        "sluicegate_request_oldest_wait_seconds 0.0",
        "sluicegate_worker_memory_limit_bytes 4294967296",
    ] {
        assert!(page.lines().any(|known| known == line), "{line}: {page}");
    }
    assert!(page.contains("# TYPE sluicegate_worker_memory_bytes gauge"), "{page}");
}

/// A key of the environment is in no reply, log line, event, error, setting or command line.
#[tokio::test]
async fn secrets_show_nowhere() {
    const SECRET: &str = "sk-tiger-4711";
    let agents = format!("{QUICK}env = {{ API_KEY = \"{SECRET}\" }}\n");
    let stage = AgentStage::start(&agents).await;
    let mut listener = stage.stage.daemon.record().feed.listen();
    // The agent itself has it.
    let reply = stage.ask("web:1", "!print-env").await;
    assert!(reply.body.contains("API_KEY=***") && !reply.body.contains(SECRET), "{reply:?}");
    let id = stage.begin("web:4", SECRET).await;
    let path = format!("{REQUESTS}/{id}/stream");
    let followed = stage.stage.get(&path).await;
    assert!(followed.raw.contains("***") && !followed.raw.contains(SECRET), "{followed:?}");
    let errors = [
        stage.ask("web:1", &format!("!stderr {SECRET} !crash")).await,
        stage.ask("web:2", &format!("!error {SECRET}")).await,
        stage.ask("web:2", &format!("{SECRET} !no-json")).await,
    ];
    for reply in &errors {
        assert!(reply.status == 502 && !reply.raw.contains(SECRET), "{reply:?}");
    }
    let id = stage.run("web:3", "!hang").await;
    let workers = stage.stage.get("/api/v1/workers").await;
    let pid = workers.items()[0]["pid"].as_u64().expect("a process");
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
    assert!(!String::from_utf8_lossy(&arguments).contains(SECRET));
    for path in [REQUESTS, "/api/v1/config", "/api/v1/warnings", "/metrics", "/health"] {
        let reply = stage.stage.get(path).await;
        assert!(!reply.raw.contains(SECRET), "{path}: {reply:?}");
    }
    assert_eq!(stage.stage.get("/api/v1/config").await.json()["agents"]["env"]["API_KEY"], "***");
    assert_eq!(stage.delete(&id).await.status, 200);
    let shown = format!("{:?}", stage.stage.daemon);
    assert!(!shown.contains(SECRET), "{shown}");
    while let Ok(Some(event)) = timeout(Duration::from_millis(50), listener.next()).await {
        assert!(!event.json.contains(SECRET), "{event:?}");
    }
    stage.end().await;
}

#[tokio::test]
async fn who_may_look_may_not_ask() {
    let tokens = "[server]\ntoken = \"lion\"\nread_token = \"cub\"\n";
    let stage = AgentStage::of(&format!("{tokens}{}", file(QUICK))).await;
    let body = json!({ "tenant": "web:1", "message": "x" }).to_string();
    let ask = async |line: &str, token: &str| {
        let token = format!("Bearer {token}");
        let headers = [("authorization", token.as_str())];
        stage.stage.ask(Ask { line, headers: &headers, body: &body }).await
    };
    stage.stage.post(REQUESTS, &body).await.problem(401, "unauthorized");
    ask(&format!("POST {REQUESTS}"), "cub").await.problem(403, "forbidden");
    ask(&format!("DELETE {REQUESTS}/x"), "cub").await.problem(403, "forbidden");
    ask("DELETE /api/v1/workers/x", "cub").await.problem(403, "forbidden");
    let reply = ask(&format!("POST {REQUESTS}"), "lion").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let id = reply.json()["requestId"].as_str().expect("an id").to_owned();
    for path in [
        "workers",
        "tenants",
        "agents/metrics",
        "requests",
        &format!("requests/{id}"),
        &format!("requests/{id}/stream"),
    ] {
        let line = format!("GET /api/v1/{path}");
        assert_eq!(ask(&line, "cub").await.status, 200, "{line}");
    }
    stage.end().await;
}
