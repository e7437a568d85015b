//! Section 12: the upstream limiter.

use std::time::Duration;

use crate::checks;
use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

/// 30 requests per second offered: never more than 15 starts in any sliding second, and the rate is used.
#[tokio::test(start_paused = true)]
async fn never_more_than_fifteen_starts_in_any_second() {
    let stage = Stage::new(one_shot(|settings| {
        settings.upstream_rate_limit_rps = 15;
        settings.max_workers = 64;
    }));
    for n in 0..300 {
        stage.enter(ask(&format!("web:{}", n % 7), "work:500")).await;
        tokio::time::sleep(Duration::from_nanos(1_000_000_000 / 30)).await;
    }
    tokio::time::sleep(Duration::from_secs(15)).await;
    checks::never_more_starts_than(&stage.log(), 15, Duration::from_secs(1));
    assert_eq!(stage.asked().len(), 300);
    let log = stage.log();
    let turns = checks::turns(&log);
    let last = turns.iter().map(|turn| turn.from).max().unwrap();
    assert!(last - stage.began <= Duration::from_secs(21), "{:?}", last - stage.began);
    stage.end().await;
}

/// "In persistent mode every turn counts."
#[tokio::test(start_paused = true)]
async fn turns_of_processes_that_stay_count() {
    let stage = Stage::new(persistent(|settings| settings.upstream_rate_limit_rps = 2));
    for n in 0..7 {
        stage.enter(in_session("web:1", "s", &format!("work:10 {n}"))).await;
    }
    tokio::time::sleep(millis(100)).await;
    assert_eq!(stage.asked().len(), 2);
    tokio::time::sleep(millis(4_000)).await;
    assert_eq!((stage.asked().len(), stage.spawned().len()), (7, 1));
    checks::never_more_starts_than(&stage.log(), 2, Duration::from_secs(1));
    stage.end().await;
}

/// "Waits (not rejected) until a token becomes available", and no longer than its deadline.
#[tokio::test(start_paused = true)]
async fn who_waits_for_the_limiter_waits_within_the_deadline() {
    let stage = Stage::new(one_shot(|settings| {
        settings.upstream_rate_limit_rps = 1;
        settings.max_workers = 4;
    }));
    stage.enter(ask("web:1", "work:10")).await;
    let waits = stage.enter(ask("web:2", "work:10")).await;
    assert_eq!(stage.agents.why(&waits).unwrap().reason, "rate_limited");
    let late = sluicegate_agents::Ask { timeout: Some(millis(300)), ..ask("web:3", "work:10") };
    assert_eq!(stage.code(late).await, "queue_timeout");
    assert_eq!(stage.since(), millis(300));
    assert!(stage.outcome(&waits).await.is_ok());
    stage.end().await;
}

/// A retry is another start.
#[tokio::test(start_paused = true)]
async fn a_retry_takes_a_token_of_its_own() {
    let stage = Stage::new(one_shot(|settings| settings.upstream_rate_limit_rps = 1));
    let again = sluicegate_agents::Ask { idempotent: true, ..ask("web:1", "crash") };
    assert_eq!(stage.code(again).await, "worker_crash");
    checks::never_more_starts_than(&stage.log(), 1, Duration::from_secs(1));
    assert_eq!(stage.asked().len(), 2);
    stage.end().await;
}

/// Turns that waited for a place do not go together with those that came after them.
#[tokio::test(start_paused = true)]
async fn who_waited_for_a_place_counts_when_it_starts() {
    let stage = Stage::new(persistent(|settings| {
        settings.max_workers = 4;
        settings.upstream_rate_limit_rps = 2;
    }));
    for (session, prompt) in
        [("a", "stubborn"), ("b", "stubborn"), ("c", "work:1"), ("d", "work:1")]
    {
        stage.reply(in_session("web:1", session, prompt)).await;
    }
    tokio::time::sleep(millis(5_000)).await;
    let mut ids = Vec::new();
    // Those for which stubborn workers have to go, and those that come just then.
    for (sessions, pause) in [(["e", "f"], 11_900), (["g", "h"], 0)] {
        for session in sessions {
            ids.push(stage.enter(in_session("web:1", session, "work:5000")).await);
        }
        tokio::time::sleep(millis(pause)).await;
    }
    for id in ids {
        stage.outcome(&id).await.unwrap();
    }
    checks::never_more_starts_than(&stage.log(), 2, millis(1_000));
    stage.end().await;
}
