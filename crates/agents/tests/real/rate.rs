//! Paper 001, invariant 6: never more starts in a second than upstream allows.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{interval, sleep};

use crate::seen::now;
use crate::stage::{Stage, ask, in_session, millis, one_shot, persistent};

const SECONDS: u64 = 4;
const OFFERED: u64 = 30;
const RATE: usize = 15;
const SECOND: u64 = 1_000_000;
/// What a busy machine may take between letting a request go and noting when: some milliseconds were seen. The second
/// itself is checked to the millisecond in paused time.
const NOTING: u64 = 50_000;

/// When a request was let go, by its caller's clock and the time it waited; and when its agent began.
#[derive(Clone, Copy, Debug)]
struct Start {
    let_go: u64,
    seen: u64,
}

async fn offer(stage: &Stage) -> Vec<Start> {
    let mut ticks = interval(Duration::from_micros(SECOND / OFFERED));
    let mut asked = Vec::new();
    for number in 0..SECONDS * OFFERED {
        ticks.tick().await;
        // In few sessions, so that workers that stay are used again.
        let session = format!("s-{}", number % 8);
        let at = now();
        let request = in_session("web:1", &session, &number.to_string());
        asked.push((number.to_string(), at, stage.enter(request).await));
    }
    sleep(millis(100)).await;
    let seen: HashMap<String, u64> =
        stage.turns().into_iter().map(|turn| (turn.prompt, turn.from)).collect();
    let started =
        asked.into_iter().filter_map(|(prompt, at, id)| Some((*seen.get(&prompt)?, at, id)));
    join_all(started.map(|(seen, at, id)| async move {
        let waited = stage.outcome(&id).await.expect("a reply").queue_wait_ms;
        Start { let_go: at + waited * 1_000, seen }
    }))
    .await
}

async fn check(settings: sluicegate_agents::Settings) {
    let stage = Stage::new(settings);
    let starts = offer(&stage).await;
    // An agent begins some time after it was let go, the one later than the other: so it counts when it was let go after
    // the first and had begun within the second.
    let within = |first: &Start| {
        let end = first.let_go + SECOND - NOTING;
        starts.iter().filter(|start| start.let_go >= first.let_go && start.seen < end).count()
    };
    let most = starts.iter().map(within).max().unwrap_or(0);
    println!("{} starts, at most {most} in a second", starts.len());
    assert!(most <= RATE, "{most} starts within a second: {starts:?}");
    // Not fewer either: it is a limit, no brake.
    let least = RATE * SECONDS as usize;
    assert!((least..=least + RATE).contains(&starts.len()), "{} starts", starts.len());
    assert!(most >= RATE - 1, "{most} starts in the fullest second");
    let mut delays: Vec<u64> =
        starts.iter().map(|start| start.seen.abs_diff(start.let_go)).collect();
    delays.sort_unstable();
    assert!(delays[delays.len() / 2] < SECOND / 20, "they begin when they are let go: {delays:?}");
    stage.end().await;
}

fn limited(settings: &mut sluicegate_agents::Settings) {
    settings.upstream_rate_limit_rps = 15;
    settings.max_workers = 8;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_a_second_start_fifteen_at_a_time() {
    check(one_shot(limited)).await;
}

/// Every turn counts, not every process.
#[tokio::test(flavor = "multi_thread")]
async fn so_do_turns_of_workers_that_stay() {
    check(persistent(limited)).await;
}

/// Fifteen are let through at once: the bucket is as deep as a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_fifteen_does_not_wait() {
    let stage = Stage::new(one_shot(|settings| {
        settings.upstream_rate_limit_rps = 15;
        settings.max_workers = 15;
    }));
    let asks = (0..15).map(|user| stage.reply(ask(&format!("web:{user}"), "hello")));
    let replies = join_all(asks).await;
    let longest = replies.iter().map(|reply| reply.queue_wait_ms).max();
    assert!(longest < Some(500), "{longest:?}");
    stage.end().await;
}
