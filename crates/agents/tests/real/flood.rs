//! One user who floods, and another who asks one thing at a time.

use futures_util::future::join_all;

use crate::stage::{Stage, ask, one_shot, persistent};

const SERVICE_MS: u64 = 50;
const FLOOD: usize = 1_000;
const ASKED: usize = 40;

/// The flood may have all workers: only the schedule helps the other.
async fn check(settings: sluicegate_agents::Settings) {
    let stage = Stage::new(settings);
    let prompt = format!("!sleep {SERVICE_MS}ms hello");
    let flood = (0..FLOOD).map(|_| stage.enter(ask("web:flood", &prompt)));
    assert_eq!(join_all(flood).await.len(), FLOOD);
    let (mut waits, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..ASKED {
        let reply = stage.reply(ask("web:other", &prompt)).await;
        waits.push(reply.queue_wait_ms);
        runs.push(reply.execution_ms);
    }
    waits.sort_unstable();
    runs.sort_unstable();
    // What one request takes of a worker: what it was told to, and its way there and back. Where all workers begin
    // together, the next turn is as far away as that.
    let at = ASKED * 95 / 100 - 1;
    let (p95, service) = (waits[at], runs[at]);
    println!("waits beside a flood: p50 {} ms, p95 {p95} ms, of {service} ms", waits[ASKED / 2]);
    let left = stage.agents.tenants().into_iter().find(|(view, ..)| &*view.tenant == "web:flood");
    let (view, ..) = left.expect("the flood");
    // Otherwise there was nothing to wait for.
    assert!(view.queued > 100 && waits[ASKED - 1] > 0, "{} are left, {waits:?}", view.queued);
    assert!(p95 <= service, "{service} ms: {waits:?}");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_asks_little_waits_no_longer_than_one_answer_takes() {
    check(one_shot(|_| {})).await;
}

/// The other one's session is new each time: a worker is ended for it.
#[tokio::test(flavor = "multi_thread")]
async fn nor_where_workers_stay() {
    check(persistent(|_| {})).await;
}
