//! Sections 3 and 4.2: the four results of `admissionCheck`.

use serde_json::{Value, json};
use sluicegate_agents::{Ask, Priority, RequestError, Tenant};

use crate::stage::{Stage, ask, in_session, millis, one_shot};

/// `docs/rules.md#agents-2`
#[tokio::test(start_paused = true)]
async fn a_tenant_with_three_waiting_is_refused_with_the_true_counts() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_queue_depth_per_tenant = 5;
        settings.tenant_limits.max_queued_requests = 3;
        settings.tenant_limits.max_concurrent_requests = 2;
    }));
    for _ in 0..5 {
        stage.enter(ask("telegram:42", "work:1000")).await;
    }
    let tenant = Tenant::new("telegram", "42", Some("7")).unwrap();
    let refused = stage.submit(Ask::new(tenant, "work:1")).await.unwrap_err();
    assert_eq!(refused.code(), "tenant_queue_full");
    let fields = json!({"tenantId": {"platform": "telegram", "userId": "42", "chatId": "7"},
                        "currentDepth": 3, "maxDepth": 3});
    assert_eq!(Value::Object(refused.fields()), fields);
    assert!(stage.submit(ask("telegram:43", "work:1")).await.is_ok());
    assert_eq!(stage.events("request.rejected").len(), 1);
    stage.end().await;
}

/// "Admin requests bypass the tenant queue depth limit", and nothing passes the global one.
///
/// `docs/rules.md#agents-2`
#[tokio::test(start_paused = true)]
async fn admin_and_system_pass_the_tenants_depth_and_not_the_global_one() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        settings.max_queue_depth_global = 3;
        settings.max_queue_depth_per_tenant = 1;
    }));
    for _ in 0..2 {
        stage.enter(ask("web:1", "work:1000")).await;
    }
    let of = |priority| Ask { priority, ..ask("web:1", "work:1") };
    assert_eq!(stage.submit(of(Priority::Low)).await.unwrap_err().code(), "tenant_queue_full");
    assert!(stage.submit(of(Priority::Admin)).await.is_ok());
    assert!(stage.submit(of(Priority::System)).await.is_ok());
    let refused = stage.submit(of(Priority::System)).await.unwrap_err();
    assert_eq!(refused, RequestError::GlobalQueueFull { current_depth: 3, max_depth: 3 });
    let backpressure = stage.events("pool.backpressure");
    assert_eq!(
        backpressure,
        [json!({"type": "pool.backpressure", "timestamp": 0,
                                     "queueDepth": 3, "maxDepth": 3})]
    );
    stage.end().await;
}

/// Section 5: 20 requests in 60 seconds; only admitted ones count.
///
/// `docs/rules.md#agents-2`
#[tokio::test(start_paused = true)]
async fn a_tenant_that_comes_too_often_is_told_when_to_come_again() {
    let stage = Stage::new(one_shot(|settings| {
        settings.tenant_limits.rate_limit_requests = 2;
        settings.tenant_limits.rate_limit_window = millis(60_000);
    }));
    stage.enter(ask("web:1", "work:1")).await;
    tokio::time::advance(millis(10_000)).await;
    stage.enter(ask("web:1", "work:1")).await;
    let refused = stage.submit(ask("web:1", "work:1")).await.unwrap_err();
    assert_eq!(refused, RequestError::RateLimited { retry_after_ms: 50_000 });
    assert_eq!(refused.user_message(), "Rate limited, retry in 50s");
    tokio::time::advance(millis(50_000)).await;
    assert!(stage.submit(ask("web:1", "work:1")).await.is_ok());
    stage.end().await;
}

/// `docs/rules.md#agents-3`
#[tokio::test(start_paused = true)]
async fn a_refused_request_leaves_nothing_behind() {
    let stage = Stage::new(one_shot(|settings| {
        settings.max_workers = 1;
        settings.max_queue_depth_global = 1;
    }));
    stage.enter(ask("web:1", "work:1000")).await;
    stage.enter(ask("web:1", "work:1000")).await;
    assert!(stage.submit(in_session("web:1", "s", "work:1")).await.is_err());
    tokio::time::sleep(millis(3000)).await;
    // The session is nobody's: another may have it.
    assert_eq!(stage.reply(in_session("web:2", "s", "work:1")).await.text, "work:1");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_with_its_field() {
    let stage = Stage::new(one_shot(|_| {}));
    let long = "x".repeat(5 * 1024 * 1024);
    let none = Ask { timeout: Some(millis(0)), ..ask("web:1", "work:1") };
    for (ask, code) in [
        (ask("web:1", " "), "invalid_field"),
        (ask("web:1", &long), "too_large"),
        (none, "invalid_field"),
    ] {
        assert_eq!(stage.submit(ask).await.unwrap_err().code(), code);
    }
    assert_eq!(stage.reply(ask("web:1", "work:1")).await.text, "work:1");
    stage.end().await;
}
