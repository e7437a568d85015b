//! Section 12: a worker that is there, and waits for the limiter before it is asked.

use sluicegate_agents::{Ask, RequestError, Settings};

use crate::checks;
use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

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

async fn are_not_asked_together(settings: Settings) {
    let stage = Stage::new(settings);
    for (delay, pause) in [(900, 10), (5, 5_000)] {
        stage.scripted.set_spawn_delay(millis(delay));
        for n in 0..15 {
            stage.enter(ask(&format!("web:{n}"), "work:500")).await;
        }
        tokio::time::sleep(millis(pause)).await;
    }
    assert_eq!(stage.asked().len(), 30);
    checks::never_more_starts_than(&stage.log(), 15, millis(1_000));
    stage.end().await;
}

fn fifteen(settings: &mut Settings) {
    settings.upstream_rate_limit_rps = 15;
    settings.max_workers = 64;
}

/// What counts is when agents are asked, not when it was decided to start them.
#[tokio::test(start_paused = true)]
async fn slow_starts_and_quick_ones_are_not_asked_together() {
    are_not_asked_together(one_shot(fifteen)).await;
    are_not_asked_together(persistent(fifteen)).await;
}

#[tokio::test(start_paused = true)]
async fn one_deadline_covers_the_limiter_too() {
    let stage = Stage::new(one_shot(|settings| {
        settings.upstream_rate_limit_rps = 1;
        settings.execution_timeout = millis(1_500);
        settings.graceful_shutdown = millis(100);
    }));
    stage.scripted.set_spawn_delay(millis(1_000));
    stage.enter(ask("web:1", "work:1")).await;
    tokio::time::sleep(millis(1)).await;
    stage.scripted.set_spawn_delay(millis(1));
    // Let out at 1.0 s, when the first one is asked; and so at 2.0 s.
    let second = stage.enter(ask("web:2", "work:1000")).await;
    let error = stage.outcome(&second).await.unwrap_err();
    assert_eq!((error.code(), stage.since()), ("execution_timeout", millis(2_500)));
    stage.end().await;
}
