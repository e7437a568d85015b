//! Messages that are taken in again while an earlier delivery of them still runs: the two never run at once.

use std::time::Duration;

use sluicegate_dispatch::{Delivery, Ordering};
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, done_after, pool};
use sluicegate_testkit::scripted::{ScriptedSource, delivery, grouped};
use tokio::time::Instant;

fn of(id: &str, generation: u64) -> Delivery {
    let mut one = delivery(grouped(id, "S", "g"));
    one.receipt.generation = generation;
    one
}

/// `a` is done and its source has not heard of it; `b` runs for a minute when `a` comes again, by a new connection.
async fn b_is_superseded(default: bool) -> Rig {
    let code = if default { "DEFAULT-POOL" } else { "S" };
    let rig = Rig::new([pool(code, 4, Ordering::Strict)]).await;
    rig.executor.on("b", [done_after(60_000), done_after(60_000)]);
    rig.deliver([of("a", 1), of("b", 1)]);
    rig.executor.until_started(2).await;
    rig.deliver([of("a", 2)]);
    rig.settle_down().await;
    rig
}

async fn b_runs_once_at_a_time(rig: &Rig, source: &ScriptedSource, settled: usize) {
    rig.pass(10).await;
    assert_eq!(rig.executor.running(), 1, "b runs twice at once: {:?}", rig.executor.started());
    // And once more after that.
    source.until_settled(settled).await;
    let started = rig.executor.started();
    assert_eq!(started.iter().filter(|one| *one == "b#1").count(), 2, "{started:?}");
    rig.pass(1).await;
    assert_eq!(rig.router.in_flight(), 0);
}

/// docs/rules.md#dedupe-1
#[tokio::test(start_paused = true)]
async fn what_still_runs_is_waited_for_though_its_pool_keeps_no_order_any_more() {
    let rig = b_is_superseded(false).await;
    rig.router.set_pool(pool("S", 4, Ordering::None)).expect("sound");
    rig.deliver([of("b", 2)]);
    b_runs_once_at_a_time(&rig, &rig.source, 3).await;
}

/// docs/rules.md#dedupe-2. Another copy of it.
#[tokio::test(start_paused = true)]
async fn a_copy_of_what_still_runs_waits_for_it() {
    let rig = b_is_superseded(false).await;
    rig.router.set_pool(pool("S", 4, Ordering::None)).expect("sound");
    rig.deliver([Delivery { broker_id: "another".into(), ..of("b", 2) }]);
    b_runs_once_at_a_time(&rig, &rig.source, 3).await;
}

/// docs/rules.md#strict-6. It runs in the default pool, and its own is there by now.
#[tokio::test(start_paused = true)]
async fn what_still_runs_in_the_default_pool_is_waited_for() {
    let rig = b_is_superseded(true).await;
    assert_eq!(rig.router.ack("a"), Ok(()));
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound");
    rig.router.clean_up().await;
    rig.deliver([of("b", 2)]);
    rig.router.clean_up().await;
    b_runs_once_at_a_time(&rig, &rig.source, 3).await;
}

/// docs/rules.md#dedupe-1. Its queue was removed and is there again.
#[tokio::test(start_paused = true)]
async fn what_still_runs_of_a_removed_queue_comes_again_later() {
    let rig = b_is_superseded(false).await;
    assert!(rig.router.remove_queue("q", Instant::now() + Duration::from_secs(1)).await);
    rig.router.set_pool(pool("S", 4, Ordering::None)).expect("sound");
    let new = ScriptedSource::new();
    assert!(rig.router.add_queue("q", QUEUE, new.clone()).await.expect("a queue"));
    new.hand_out(vec![of("b", 1)]);
    new.until_settled(1).await;
    assert_eq!(new.settlements(), ["b again 30s draining #0"]);
    assert_eq!(rig.executor.running(), 1);
}
