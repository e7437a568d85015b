//! Section 5: what a tenant, and all together, may take.

use sluicegate_agents::TenantOverride;

use crate::checks;
use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

#[tokio::test(start_paused = true)]
async fn a_tenant_runs_two_at_once_and_an_override_more() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 8;
        settings.tenant_limits.max_concurrent_requests = 2;
        let mut limits = settings.tenant_limits.clone();
        limits.max_concurrent_requests = 3;
        settings.tenants.insert("web:big".to_owned(), TenantOverride { limits, own_depth: false });
    }));
    for _ in 0..4 {
        stage.enter(ask("web:small", "work:100")).await;
    }
    let last = stage.enter(ask("web:small", "work:100")).await;
    for _ in 0..4 {
        stage.enter(ask("web:big", "work:100")).await;
    }
    tokio::time::sleep(millis(50)).await;
    let running = |id: &str| {
        let tenants = stage.agents.tenants();
        tenants.iter().find(|(view, ..)| &*view.tenant == id).map(|(view, ..)| view.running)
    };
    assert_eq!((running("web:small"), running("web:big")), (Some(2), Some(3)));
    let why = stage.agents.why(&last).unwrap();
    assert_eq!((why.reason, why.detail.as_str()), ("tenant_limit", "tenant web:small at 2 of 2"));
    stage.end().await;
}

/// The smaller of the two depths holds for everybody; an override replaces both.
#[tokio::test(start_paused = true)]
async fn an_own_depth_replaces_both() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        settings.max_queue_depth_per_tenant = 2;
        settings.tenant_limits.max_queued_requests = 3;
        let mut limits = settings.tenant_limits.clone();
        limits.max_queued_requests = 4;
        settings.tenants.insert("web:own".to_owned(), TenantOverride { limits, own_depth: true });
    }));
    stage.enter(ask("web:x", "work:1000")).await;
    for (tenant, depth) in [("web:all", 2), ("web:own", 4)] {
        for _ in 0..depth {
            stage.enter(ask(tenant, "work:1")).await;
        }
        let refused = stage.submit(ask(tenant, "work:1")).await.unwrap_err();
        assert_eq!(refused.fields()["maxDepth"], depth);
    }
    stage.end().await;
}

/// Above the limit waiting requests stay queued, and go on when there is memory again.
#[tokio::test(start_paused = true)]
async fn memory_holds_requests_back() {
    let stage = Stage::new(one_shot(|settings| settings.max_total_memory_mb = 1_000));
    stage.enter(ask("web:1", "eat:2000 work:5000")).await;
    tokio::time::sleep(millis(1_500)).await;
    let waits = stage.enter(ask("web:2", "work:10")).await;
    let why = stage.agents.why(&waits).unwrap();
    assert_eq!(why.reason, "memory");
    assert_eq!(why.detail, "the workers use 2000 MiB of 1000 MiB");
    assert_eq!(stage.agents.metrics().estimated_memory_mb, 2_000);
    assert!(stage.outcome(&waits).await.is_ok());
    assert!(stage.since() >= millis(5_000));
    stage.end().await;
}

/// Idle workers give their memory back when there is too little.
#[tokio::test(start_paused = true)]
async fn idle_workers_end_where_memory_is_short() {
    let stage = Stage::new(persistent(|settings| settings.max_total_memory_mb = 1_000));
    stage.reply(ask("web:1", "eat:2000")).await;
    let waits = stage.enter(ask("web:2", "work:10")).await;
    assert!(stage.outcome(&waits).await.is_ok());
    assert_eq!(stage.events("worker.recycled")[0]["reason"], "memory");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn limits_change_live() {
    let stage = Stage::new(one_shot(|settings| settings.max_workers = 1));
    for n in 0..9 {
        stage.enter(ask(&format!("web:{n}"), "work:1000")).await;
    }
    tokio::time::sleep(millis(1)).await;
    assert_eq!(stage.states().len(), 1);
    let more = one_shot(|settings| settings.max_workers = 3).check().unwrap();
    assert_eq!(stage.agents.change(more), Ok(vec![]));
    tokio::time::sleep(millis(1)).await;
    assert_eq!(stage.states().len(), 3);
    let fewer = one_shot(|settings| {
        settings.max_workers = 2;
        settings.queue_timeout = millis(60_000);
    });
    assert_eq!(stage.agents.change(fewer.check().unwrap()), Ok(vec!["queue_timeout"]));
    tokio::time::sleep(millis(1_500)).await;
    assert_eq!(stage.states().len(), 2);
    tokio::time::sleep(millis(9_000)).await;
    checks::never_more_programs_than(&stage.log(), 3);
    assert_eq!(stage.asked().len(), 9);
    stage.end().await;
}

/// `docs/rules.md#agents-5`
#[tokio::test(start_paused = true)]
async fn nothing_is_started_ahead_where_memory_is_short() {
    let stage = Stage::new(persistent(|settings| {
        settings.min_workers = 2;
        settings.max_workers = 3;
        settings.max_total_memory_mb = 1_000;
    }));
    stage.scripted.set_spawn_delay(millis(10));
    let hog = stage.enter(in_session("web:1", "hog", "eat:2000 work:30000")).await;
    tokio::time::sleep(millis(2_000)).await;
    let before = stage.spawned().len();
    tokio::time::sleep(millis(20_000)).await;
    assert_eq!(stage.stage_of(&hog).await, "running");
    assert_eq!(stage.spawned().len(), before);
    stage.end().await;
}

/// What waits is in one order, or in that of its session; so that does not change under it.
#[tokio::test(start_paused = true)]
async fn serial_needs_a_restart() {
    let stage = Stage::new(one_shot(|settings| settings.serial = true));
    let mut ids = Vec::new();
    for prompt in ["a say work:1000", "b work:1000"] {
        ids.push(stage.enter(in_session("web:1", "s", prompt)).await);
    }
    assert_eq!(stage.agents.change(one_shot(|_| {}).check().unwrap()), Ok(vec!["serial"]));
    assert!(stage.agents.settings().serial);
    ids.push(stage.enter(in_session("web:1", "s", "c work:10")).await);
    for id in ids {
        stage.outcome(&id).await.unwrap();
    }
    assert_eq!(stage.asked(), ["a say work:1000", "b work:1000", "c work:10"]);
    stage.end().await;
}
