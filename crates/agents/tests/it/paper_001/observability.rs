//! Section 6: metrics and domain events.

use serde_json::{Value, json};
use sluicegate_agents::{Ask, Priority, RequestError, SessionId, Settings, Tenant};

use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

/// Every field of `WorkerPoolMetrics`, by the paper's name.
#[tokio::test(start_paused = true)]
async fn metrics_have_all_fields_of_the_paper() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        settings.max_queue_depth_global = 3;
    }));
    stage.enter(ask("web:1", "work:1000")).await;
    stage.enter(ask("web:1", "work:3000")).await;
    stage.enter(Ask { priority: Priority::Low, ..ask("web:2", "crash") }).await;
    stage.enter(Ask { timeout: Some(millis(50)), ..ask("web:3", "work:1") }).await;
    stage.submit(ask("web:4", "work:1")).await.unwrap_err();
    let at = |stage: &Stage| serde_json::to_value(stage.agents.metrics()).unwrap();
    let metrics = at(&stage);
    assert_eq!(metrics["queueDepth"], 3);
    let by_priority = json!({"SYSTEM": 0, "ADMIN": 0, "NORMAL": 2, "LOW": 1});
    assert_eq!(metrics["queueDepthByPriority"], by_priority);
    assert_eq!((&metrics["activeTenants"], &metrics["workersBusy"]), (&json!(3), &json!(1)));
    assert_eq!(metrics["tenantQueueDepths"], json!({"web:1": 1, "web:2": 1, "web:3": 1}));
    assert_eq!(metrics["estimatedMemoryMB"], 300);
    tokio::time::sleep(millis(6_000)).await;
    let metrics = at(&stage);
    let counts = ["requestsCompleted", "requestsFailed", "requestsTimedOut", "requestsRejected"];
    assert_eq!(counts.map(|name| metrics[name].as_u64().unwrap()), [2, 1, 1, 1]);
    assert_eq!(metrics["executionTimeP95Ms"], 3_000);
    assert_eq!(metrics["totalLatencyP99Ms"], 4_000);
    let fields: Vec<&String> = metrics.as_object().unwrap().keys().collect();
    for field in [
        "timestamp",
        "workersTotal",
        "workersIdle",
        "workersStarting",
        "workersDraining",
        "workersStuck",
        "queueWaitP50Ms",
        "queueWaitP95Ms",
        "queueWaitP99Ms",
        "executionTimeP50Ms",
        "executionTimeP99Ms",
        "totalLatencyP50Ms",
        "totalLatencyP95Ms",
        "cpuUtilizationPercent",
    ] {
        assert!(fields.iter().any(|known| *known == field), "{field}");
    }
    tokio::time::sleep(millis(60_000)).await;
    let metrics = at(&stage);
    assert_eq!((&metrics["requestsCompleted"], &metrics["queueWaitP99Ms"]), (&json!(0), &json!(0)));
    stage.end().await;
}

/// The events of one request, in order and with the paper's fields.
#[tokio::test(start_paused = true)]
async fn a_request_tells_its_story() {
    let stage = Stage::new(persistent(|settings| settings.max_requests_per_worker = 1));
    let tenant = Tenant::new("telegram", "42", Some("7")).unwrap();
    let session = Some(SessionId::parse("s").unwrap());
    let id = stage.enter(Ask { session, ..Ask::new(tenant, "work:100") }).await;
    stage.outcome(&id).await.unwrap();
    tokio::time::sleep(millis(1)).await;
    let mut types = stage.event_types();
    types.sort();
    assert_eq!(
        types,
        [
            "request.completed",
            "request.dequeued",
            "request.enqueued",
            "worker.assigned",
            "worker.recycled",
            "worker.released",
            "worker.spawned",
        ]
    );
    let tenant = json!({"platform": "telegram", "userId": "42", "chatId": "7"});
    let cases: [(&str, Value); 6] = [
        (
            "request.enqueued",
            json!({"requestId": id, "tenantId": tenant, "priority": "NORMAL",
                                    "queueDepth": 0}),
        ),
        ("request.dequeued", json!({"requestId": id, "queueWaitMs": 0})),
        ("worker.assigned", json!({"workerId": "worker-1", "requestId": id, "tenantId": tenant})),
        ("request.completed", json!({"requestId": id, "totalMs": 100, "executionMs": 100})),
        ("worker.recycled", json!({"workerId": "worker-1", "reason": "max_requests"})),
        ("worker.released", json!({"workerId": "worker-1", "requestId": id, "durationMs": 100})),
    ];
    for (kind, mut event) in cases {
        event["type"] = kind.into();
        event["timestamp"] = 0.into();
        assert_eq!(stage.events(kind), [event]);
    }
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn why_says_what_a_request_waits_for() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    let first = stage.enter(in_session("web:1", "s", "work:100")).await;
    let second = stage.enter(in_session("web:1", "s", "work:100")).await;
    let other = stage.enter(ask("web:2", "work:100")).await;
    let why = |id: &str| stage.agents.why(id).map(|why| (why.reason, why.detail));
    assert_eq!(why(&first), None);
    let busy = format!("request {first} of its session goes first");
    assert_eq!(why(&second), Some(("session_busy", busy)));
    assert_eq!(why(&other), Some(("no_worker", "1 of 1 workers have requests".to_owned())));
    assert_eq!(why("nobody"), None);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn workers_and_tenants_are_listed() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        settings.max_queue_depth_per_tenant = 1;
    }));
    let id = stage.enter(in_session("web:1", "s", "work:1000")).await;
    stage.enter(ask("web:1", "work:1000")).await;
    stage.submit(ask("web:1", "work:1000")).await.unwrap_err();
    tokio::time::sleep(millis(400)).await;
    let [worker] = &stage.agents.workers()[..] else { panic!() };
    assert_eq!((worker.pid, worker.request.as_deref()), (Some(1), Some(id.as_str())));
    assert_eq!((worker.tenant.as_deref(), worker.session.as_deref()), (Some("web:1"), Some("s")));
    assert_eq!(worker.memory_bytes, 300 * 1024 * 1024);
    let [(view, tally, oldest)] = &stage.agents.tenants()[..] else { panic!() };
    assert_eq!((view.queued, view.running, view.weight), (1, 1, 1));
    assert_eq!((tally.served, tally.rejected, *oldest), (0, 1, millis(400)));
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_and_run_are_listed() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    let runs = stage.enter(in_session("web:1", "s", "work:1000")).await;
    tokio::time::sleep(millis(100)).await;
    let waits = stage.enter(ask("web:2", "work:1000")).await;
    tokio::time::sleep(millis(300)).await;
    let mut pending = stage.agents.pending();
    pending.sort_by_key(|one| one.found.request_id.clone());
    let [first, second] = &pending[..] else { panic!("{pending:?}") };
    assert_eq!(
        (&*first.found.request_id, &first.found.stage),
        (&*runs, &sluicegate_agents::Stage::Running)
    );
    assert_eq!((first.age, first.running_for), (millis(400), Some(millis(400))));
    assert_eq!(first.worker.as_deref(), Some("worker-1"));
    assert_eq!(
        (&*second.found.request_id, &second.found.stage),
        (&*waits, &sluicegate_agents::Stage::Queued)
    );
    assert_eq!((second.age, second.running_for, &second.worker), (millis(300), None, &None));
    for id in [&runs, &waits] {
        assert!(stage.outcome(id).await.is_ok());
    }
    assert_eq!(stage.agents.pending(), []);
    stage.end().await;
}

/// Whoever looks for a pool that does not get on knows how long it may take, whatever the settings say by now.
#[tokio::test(start_paused = true)]
async fn what_runs_keeps_the_limit_that_it_began_with() {
    let settings = one_shot(|settings| settings.max_workers = 1);
    let stage = Stage::new(settings.clone());
    assert_eq!(stage.agents.longest_limit(), None);
    let id = stage.enter(ask("web:1", "work:60000")).await;
    tokio::time::sleep(millis(100)).await;
    let shorter = Settings { execution_timeout: millis(20_000), ..settings.clone() };
    stage.agents.change(shorter.check().unwrap()).unwrap();
    let limit = settings.execution_timeout.min(settings.tenant_limits.max_response_time);
    assert_eq!(stage.agents.longest_limit(), Some(limit));
    assert!(stage.outcome(&id).await.is_ok());
    assert_eq!(stage.agents.longest_limit(), None);
    stage.end().await;
}

/// Also of those who have nothing here any more, or were only refused.
#[tokio::test(start_paused = true)]
async fn tenants_are_counted_when_they_are_done() {
    let stage = Stage::new(one_shot(|settings| settings.tenant_limits.rate_limit_requests = 1));
    stage.reply(ask("web:1", "work:1")).await;
    assert!(stage.submit(ask("web:1", "work:1")).await.is_err());
    let tenants = stage.agents.tenants();
    let (view, tally, _) = tenants.first().expect("the tenant");
    assert_eq!((&*view.tenant, view.queued + view.running), ("web:1", 0));
    assert_eq!((tally.served, tally.failed, tally.rejected), (1, 0, 1));
    stage.end().await;
}

/// What its caller gave up did not fail.
#[tokio::test(start_paused = true)]
async fn requests_that_end_with_an_error_are_counted() {
    let stage = Stage::new(one_shot(|_| {}));
    assert!(stage.run(ask("web:1", "work:1")).await.is_ok());
    assert!(stage.run(ask("web:1", "crash")).await.is_err());
    let given_up = stage.enter(ask("web:1", "work:1000")).await;
    assert!(stage.agents.cancel(&given_up));
    assert_eq!(stage.outcome(&given_up).await, Err(RequestError::Cancelled));
    let tenants = stage.agents.tenants();
    let (_, tally, _) = tenants.first().expect("the tenant");
    assert_eq!((tally.served, tally.failed, tally.rejected), (1, 1, 0));
    stage.end().await;
}

/// What is tried again waits twice, and runs twice.
#[tokio::test(start_paused = true)]
async fn what_ran_before_it_was_tried_again_is_no_wait() {
    let stage = Stage::new(one_shot(|_| {}));
    let asked = Ask { idempotent: true, ..ask("web:1", "work:5000 crash") };
    assert_eq!(stage.code(asked).await, "worker_crash");
    let dequeued = stage.events("request.dequeued");
    let waits: Vec<&Value> = dequeued.iter().map(|event| &event["queueWaitMs"]).collect();
    assert_eq!(waits, [0, 0]);
    stage.end().await;
}
