//! Section 12: a worker that is there, and waits for the limiter before it is asked.

use sluicegate_agents::{Ask, RequestError};

use crate::checks;
use crate::stage::{Stage, in_session, millis, persistent};

const TRANSFER: &str = "say transfer-money";

/// Two workers: `v` does not want to go; `y` is warm, and was asked this. One start a second, and it was just used.
async fn window(y: &str) -> Stage {
    let stage = Stage::new(persistent(|settings| {
        settings.max_workers = 2;
        settings.upstream_rate_limit_rps = 1;
        settings.graceful_shutdown = millis(3_000);
    }));
    stage.reply(in_session("web:1", "v", "stubborn work:1")).await;
    stage.reply(in_session("web:1", "y", y)).await;
    tokio::time::sleep(millis(4_000)).await;
    // `v` is ended for it, which takes 2 s and 3 s more. Then it is asked, and the second is used.
    stage.enter(in_session("web:2", "n", "work:100")).await;
    tokio::time::sleep(millis(5_050)).await;
    assert!(stage.asked().contains(&"work:100".to_owned()), "{:?}", stage.asked());
    stage
}

/// It waits, and is not asked; then the worker is asked something else.
async fn is_not_asked(stage: Stage) {
    assert!(!stage.asked().contains(&TRANSFER.to_owned()));
    let next = stage.reply(in_session("web:1", "y", "work:2")).await;
    assert_eq!(next.worker_id, "worker-2");
    assert!(!stage.asked().contains(&TRANSFER.to_owned()));
    checks::never_more_starts_than(&stage.log(), 1, millis(1_000));
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_cancelled_while_it_waited_for_the_limiter_is_not_asked() {
    let stage = window("work:1").await;
    let id = stage.enter(in_session("web:1", "y", TRANSFER)).await;
    tokio::time::sleep(millis(100)).await;
    assert!(stage.agents.cancel(&id));
    let at = stage.since();
    assert_eq!(stage.outcome(&id).await, Err(RequestError::Cancelled));
    assert_eq!(stage.since(), at);
    is_not_asked(stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_up_while_it_waits_for_the_limiter_is_not_asked() {
    let stage = window("work:1").await;
    let at = stage.since();
    let hurries = Ask { timeout: Some(millis(200)), ..in_session("web:1", "y", TRANSFER) };
    let id = stage.enter(hurries).await;
    assert_eq!(stage.outcome(&id).await.unwrap_err().code(), "execution_timeout");
    assert_eq!(stage.since() - at, millis(200));
    is_not_asked(stage).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_killed_while_its_request_waits_for_the_limiter_ends_it() {
    let stage = window("work:1").await;
    let id = stage.enter(in_session("web:1", "y", TRANSFER)).await;
    tokio::time::sleep(millis(100)).await;
    let at = stage.since();
    assert!(stage.agents.kill("worker-2").await);
    assert_eq!(stage.outcome(&id).await.unwrap_err().code(), "worker_crash");
    assert_eq!(stage.since(), at);
    assert!(!stage.asked().contains(&TRANSFER.to_owned()));
    stage.end().await;
}

/// Nothing happened: another worker is asked.
#[tokio::test(start_paused = true)]
async fn a_worker_that_ends_while_its_request_waits_for_the_limiter_is_replaced() {
    let stage = window("ends:9350").await;
    let reply = stage.reply(in_session("web:1", "y", "work:50")).await;
    assert_eq!(reply.worker_id, "worker-4");
    checks::never_more_starts_than(&stage.log(), 1, millis(1_000));
    stage.end().await;
}

/// Its second result comes while the next request waits for the limiter.
///
/// `docs/rules.md#agents-7`
#[tokio::test(start_paused = true)]
async fn what_was_said_in_the_limiters_second_is_not_the_answer() {
    let stage = window("again:9350 FIRST").await;
    for prompt in ["work:50 SECOND", "work:50 THIRD"] {
        assert_eq!(stage.reply(in_session("web:1", "y", prompt)).await.text, prompt);
    }
    stage.end().await;
}
