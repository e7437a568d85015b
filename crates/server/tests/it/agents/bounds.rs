//! Who is not let in, and why: `docs/rules.md#agents-2`. And what happens at the end: `docs/rules.md#agents-11`.

use serde_json::{Value, json};

use super::stage::{AgentStage, QUICK, REQUESTS};

#[tokio::test]
async fn a_tenant_has_as_many_waiting_as_it_may() {
    let limits = "tenant_limits = { max_concurrent_requests = 1, max_queued_requests = 1 }\n";
    let stage = AgentStage::start(&format!("{QUICK}{limits}")).await;
    stage.run("web:1", "!hang").await;
    let waits = stage.begin("web:1", "x").await;
    let why = &stage.get(&waits).await["why"];
    assert_eq!(
        (&why["reason"], &why["detail"]),
        (&json!("tenant_limit"), &json!("tenant web:1 at 1 of 1"))
    );
    let reply = stage.ask("web:1", "x").await;
    let problem = reply.problem(429, "tenant_queue_full");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!((&problem["currentDepth"], &problem["maxDepth"]), (&json!(1), &json!(1)));
    assert_eq!(problem["tenantId"], json!({"platform": "web", "userId": "1"}));
    let words = "You have too many pending requests. Please wait for a response before sending more messages.";
    assert_eq!(problem["detail"], words);
    // Somebody else is let in, and so is who may pass.
    assert_eq!(stage.ask("web:2", "x").await.status, 200);
    let body = json!({"tenant": "web:1", "message": "x", "priority": "SYSTEM", "wait": false});
    assert_eq!(stage.post(body).await.status, 202);
    let tenants = stage.stage.get("/api/v1/tenants").await.items();
    let first = tenants.iter().find(|one| one["id"] == "web:1").expect("it is there");
    assert_eq!((&first["queued"], &first["rejected"]), (&json!(2), &json!(1)), "{first}");
    // A name cannot break the page.
    stage.run("web:\"\\", "!hang").await;
    stage.begin("web:\"\\", "x").await;
    let metrics = stage.stage.get("/metrics").await.body;
    let escaped = "sluicegate_tenant_queued{tenant=\"web:\\\"\\\\\"} 1";
    assert!(metrics.contains(escaped), "{metrics}");
    assert!(metrics.contains("sluicegate_tenant_queued{tenant=\"web:1\"} 2"), "{metrics}");
    assert!(
        metrics.contains("sluicegate_requests_total{result=\"tenant_queue_full\"} 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn all_have_as_many_waiting_as_may() {
    let limits = "max_workers = 1\nmin_workers = 0\nmax_queue_depth_global = 1\n";
    let stage = AgentStage::start(&format!("{QUICK}{limits}")).await;
    stage.run("web:1", "!hang").await;
    let waits = stage.begin("web:2", "x").await;
    assert_eq!(stage.get(&waits).await["why"]["reason"], "no_worker");
    let reply = stage.ask("web:3", "x").await;
    let problem = reply.problem(503, "global_queue_full");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!((&problem["currentDepth"], &problem["maxDepth"]), (&json!(1), &json!(1)));
    assert_eq!(problem["detail"], "The system is currently busy. Please try again in a moment.");
}

#[tokio::test]
async fn a_tenant_that_comes_too_often() {
    let limits = "tenant_limits = { rate_limit_requests = 1, rate_limit_window = \"30s\" }\n";
    let stage = AgentStage::start(&format!("{QUICK}{limits}")).await;
    assert_eq!(stage.ask("web:1", "x").await.status, 200);
    let reply = stage.ask("web:1", "x").await;
    let problem = reply.problem(429, "rate_limited");
    let seconds = problem["retryAfterMs"].as_u64().expect("a time").div_ceil(1000);
    assert!((25..=30).contains(&seconds), "{problem}");
    assert_eq!(problem["detail"], format!("Rate limited, retry in {seconds}s"));
    assert_eq!(reply.header("retry-after"), Some(&seconds.to_string()[..]));
    stage.end().await;
}

/// Who waits is answered while the daemon ends, and so is who polls: `docs/rules.md#agents-12`.
#[tokio::test]
async fn the_end_rejects_what_waits_and_lets_running_ones_finish() {
    let limits = "max_workers = 1\nmin_workers = 0\n";
    let stage = AgentStage::start(&format!("{QUICK}{limits}")).await;
    let first = stage.post(json!({ "tenant": "web:1", "message": "!sleep 1500ms done" }));
    let second = async {
        // The first one has the only worker by then.
        let busy = |reply: &crate::api::stage::Reply| reply.json()["workersBusy"] == 1;
        stage.stage.until("/api/v1/agents/metrics", busy).await;
        stage.post(json!({ "tenant": "web:2", "message": "x" })).await
    };
    let ends = async {
        let both = |reply: &crate::api::stage::Reply| {
            let metrics = reply.json();
            metrics["queueDepth"] == 1 && metrics["workersBusy"] == 1
        };
        stage.stage.until("/api/v1/agents/metrics", both).await;
        let ended = async {
            Box::pin(stage.stage.daemon.shutdown()).await;
        };
        let asks = async {
            let body = json!({ "tenant": "web:3", "message": "x" }).to_string();
            while !stage.stage.daemon.is_ending() {
                tokio::task::yield_now().await;
            }
            let late = stage.stage.post(REQUESTS, &body).await;
            let workers = stage.stage.get("/api/v1/workers").await.items();
            let id = workers[0]["requestId"].as_str().expect("it runs").to_owned();
            (late, stage.get(&id).await)
        };
        tokio::join!(ended, asks).1
    };
    let (first, second, (late, polled)) = tokio::join!(first, second, ends);
    assert_eq!((first.status, &first.json()["text"]), (200, &json!("done")), "{first:?}");
    for reply in [second, late] {
        let problem = reply.problem(503, "shutting_down");
        assert_eq!(problem["detail"], "The service is restarting. Please try again in a moment.");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    assert_eq!(polled["state"], "running");
    assert_eq!(stage.stage.get("/api/v1/workers").await.items(), Vec::<Value>::new());
}
