//! What becomes of a request that fails, by code: `docs/rules.md#agents-10`.

use serde_json::{Value, json};

use super::stage::{AgentStage, QUICK, REQUESTS};
use crate::api::stage::{Reply, Stage};

const OTHER: &str = "An unexpected error occurred. Please try again later.";

fn check(reply: &Reply, status: u16, code: &str, detail: &str, fields: &[(&str, Value)]) {
    let problem = reply.problem(status, code);
    assert_eq!(problem["detail"], detail, "{problem}");
    for (name, value) in fields {
        assert_eq!(problem[name], *value, "{name}: {problem}");
    }
    assert!(problem["requestId"].is_string() && problem["sessionId"].is_string(), "{problem}");
}

#[tokio::test]
async fn agents_that_fail() {
    let stage = AgentStage::start(QUICK).await;
    const CRASH: &str = "An internal error occurred. Please try again.";
    let crashed = |code: Value, signal: Value, stderr: &str| {
        vec![("exitCode", code), ("signal", signal), ("stderr", json!(stderr))]
    };
    let cases = [
        ("!signal SEGV", "worker_crash", CRASH, crashed(json!(null), json!("SIGSEGV"), "")),
        ("!stderr oh !crash 3", "worker_crash", CRASH, crashed(json!(3), json!(null), "oh\n")),
        ("!error sorry", "agent_error", OTHER, vec![("message", json!("sorry"))]),
        ("!no-json", "bad_output", OTHER, vec![]),
        ("!exit-before-output", "bad_output", OTHER, vec![]),
        ("!flood 3MB", "output_limit", OTHER, vec![("limit", json!(2 * 1024 * 1024))]),
    ];
    for (number, (message, code, detail, fields)) in cases.iter().enumerate() {
        // A tenant of its own: none is held up by another's limits.
        let reply = stage.ask(&format!("web:{number}"), message).await;
        check(&reply, 502, code, detail, fields);
        let id = reply.json()["requestId"].as_str().expect("an id").to_owned();
        let polled = stage.get(&id).await;
        assert_eq!((&polled["state"], &polled["error"]["code"]), (&json!("failed"), &json!(code)));
    }
    stage.end().await;
}

#[tokio::test]
async fn a_program_that_is_not_there() {
    let toml = "[agents]\nenabled = true\ncommand = [\"/nowhere/agent\"]\n";
    let stage = AgentStage::of(toml).await;
    let warnings = stage.stage.get("/api/v1/warnings").await.items();
    let warned = |one: &&Value| one["code"] == "AGENT_NOT_STARTED" && one["severity"] == "ERROR";
    assert!(
        warnings.iter().find(warned).is_some_and(|one| one["subject"] == "agents"),
        "{warnings:?}"
    );
    let reply = stage.ask("web:1", "x").await;
    let problem = reply.problem(502, "worker_crash");
    assert!(
        problem["stderr"].as_str().is_some_and(|why| why.contains("/nowhere/agent")),
        "{problem}"
    );
    let health = stage.stage.get("/health").await.json();
    assert_eq!(health["status"], "DEGRADED", "{health}");
    stage.end().await;
}

#[tokio::test]
async fn time_is_up() {
    const SLOW: &str = "The response took too long to generate. Please try a simpler request.";
    const QUEUE: &str = "Your request waited too long in the queue. Please try again.";
    let limits = "max_workers = 1\nmin_workers = 0\nexecution_timeout = \"1500ms\"\nqueue_timeout = \"100ms\"\n\
                  graceful_shutdown = \"100ms\"\n";
    let stage = AgentStage::start(limits).await;
    let runs = stage.run("web:1", "!hang").await;
    let reply = stage.ask("web:2", "x").await;
    check(&reply, 504, "queue_timeout", QUEUE, &[("timeoutMs", json!(100))]);
    let failed = stage.until(&runs, "failed").await;
    let error = &failed["error"];
    assert_eq!((&error["code"], &error["detail"]), (&json!("execution_timeout"), &json!(SLOW)));
    assert_eq!((&error["timeoutMs"], &error["requestId"]), (&json!(1500), &json!(runs)));
    // Its place is free once nothing of it is left.
    stage.stage.until("/api/v1/workers", |reply: &Reply| reply.items().is_empty()).await;
    let body = json!({ "tenant": "web:1", "message": "!hang", "timeoutMs": 50 });
    let reply = stage.post(body).await;
    check(&reply, 504, "execution_timeout", SLOW, &[("timeoutMs", json!(50))]);
    stage.end().await;
}

#[tokio::test]
async fn a_process_that_does_not_end_is_killed_and_warned_of() {
    let limits = "execution_timeout = \"200ms\"\ngraceful_shutdown = \"100ms\"\n";
    let stage = AgentStage::start(limits).await;
    let reply = stage.ask("web:1", "!ignore-term !hang").await;
    reply.problem(504, "execution_timeout");
    let stuck = |reply: &Reply| reply.body.contains("WORKER_STUCK");
    stage.stage.until("/api/v1/warnings", stuck).await;
    let gone = |reply: &Reply| reply.items().is_empty();
    stage.stage.until("/api/v1/workers", gone).await;
    // None is stuck any more.
    stage
        .stage
        .until("/api/v1/warnings", |reply: &Reply| reply.items()[0]["resolved"] == true)
        .await;
    stage.end().await;
}

/// Many in a row are a person's business, until one is answered.
#[tokio::test]
async fn requests_that_fail_one_after_the_other_are_warned_of() {
    let limits = "tenant_limits = { rate_limit_requests = 100 }\n";
    let stage = AgentStage::start(&format!("{QUICK}{limits}")).await;
    let warned = async || {
        let warnings = stage.stage.get("/api/v1/warnings").await.items();
        warnings.into_iter().find(|one| one["code"] == "AGENTS_FAILING")
    };
    for _ in 0..4 {
        stage.ask("web:1", "!error no").await.problem(502, "agent_error");
    }
    assert_eq!(warned().await, None);
    stage.ask("web:1", "!stderr alas !crash 3").await.problem(502, "worker_crash");
    let warning = warned().await.expect("a warning");
    let words =
        "5 requests to agents failed in a row, the last with worker_crash, exit code 3: alas";
    assert_eq!((&warning["severity"], &warning["message"]), (&json!("WARNING"), &json!(words)));
    let health = stage.stage.get("/health").await.json();
    assert_eq!((&health["status"], &health["issues"]), (&json!("DEGRADED"), &json!([words])));
    assert_eq!(stage.ask("web:1", "hello").await.status, 200);
    assert_eq!(stage.stage.get("/health").await.json()["status"], "UP");
    stage.end().await;
}

/// Whoever configures a program that does not speak the dialect is told so.
#[tokio::test]
async fn a_program_that_speaks_another_language_is_shown() {
    let toml = "[agents]\nenabled = true\nmode = \"persistent\"\nmin_workers = 0\nsession_args = []\n\
                command = [\"/bin/sh\", \"-c\", \"echo Welcome, friend; exec sleep 100\"]\n\
                execution_timeout = \"500ms\"\ngraceful_shutdown = \"100ms\"\nenv = { A = \"friend\" }\n";
    let stage = AgentStage::of(toml).await;
    let problem = stage.ask("web:1", "x").await.problem(504, "execution_timeout");
    assert_eq!(problem["message"], "no line of the dialect came; it said: Welcome, ***");
    stage.end().await;
}

#[tokio::test]
async fn a_session_of_somebody_else() {
    let stage = AgentStage::start(QUICK).await;
    let ask = |tenant: Value| json!({ "tenant": tenant, "sessionId": "s", "message": "x" });
    assert_eq!(stage.post(ask(json!("web:1"))).await.status, 200);
    let problem = stage.post(ask(json!("web:2"))).await.problem(403, "session_forbidden");
    assert_eq!(problem["sessionId"], "s");
    let chat = json!({ "platform": "web", "userId": "1", "chatId": "c" });
    stage.post(ask(chat)).await.problem(403, "session_forbidden");
    stage.end().await;
}

#[tokio::test]
async fn bad_input() {
    let stage = AgentStage::start(QUICK).await;
    let body = json!({ "tenant": "web:1", "message": "x".repeat(1024 * 1024 + 1) });
    let problem = stage.post(body).await.problem(413, "too_large");
    assert_eq!(problem["limit"], 1024 * 1024);
    stage.stage.post(REQUESTS, "{").await.problem(400, "malformed_json");
    stage.stage.post(REQUESTS, "[]").await.problem(422, "invalid_field");
    let field = |reply: Reply| reply.problem(422, "invalid_field")["field"].clone();
    stage.stage.post(REQUESTS, "").await.problem(400, "malformed_json");
    assert_eq!(field(stage.stage.post(REQUESTS, "{}").await), "tenant");
    let body = json!({ "tenant": { "platform": "web" }, "message": "x" });
    let problem = stage.post(body).await.problem(422, "invalid_field");
    assert_eq!(problem["detail"], "tenant.userId: is missing; it must be a string");
    assert_eq!(field(stage.ask("web", "x").await), "tenant");
    assert_eq!(field(stage.ask("web:1", " ").await), "message");
    let path = format!("{REQUESTS}?wait=false");
    stage.stage.post(&path, "{}").await.problem(400, "bad_request");
    stage.end().await;
}

#[tokio::test]
async fn without_agents_everybody_is_told() {
    let stage = Stage::start("").await;
    let body = json!({ "tenant": "web:1", "message": "x" }).to_string();
    let problem = stage.post(REQUESTS, &body).await.problem(404, "agents_disabled");
    assert!(problem["detail"].as_str().is_some_and(|words| words.contains("agents.enabled")));
    stage.get(&format!("{REQUESTS}/x")).await.problem(404, "agents_disabled");
    stage.delete(&format!("{REQUESTS}/x")).await.problem(404, "agents_disabled");
    stage.get("/api/v1/agents/metrics").await.problem(404, "agents_disabled");
    assert_eq!(stage.get("/api/v1/workers").await.items(), Vec::<Value>::new());
    stage.get("/api/v1/messages/x").await.problem(404, "unknown_message");
    assert!(!stage.get("/metrics").await.body.contains("sluicegate_workers"));
    let begins = Stage::open("[agents]\nenabled = true\n").await;
    begins.post(REQUESTS, &body).await.problem(503, "starting");
}
