//! The end of a router, of a pool, of a queue.

use std::time::Duration;

use sluicegate_dispatch::{Delivery, KeepsOrder, Ordering, PoolSettings, Profile};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped, message};
use tokio::time::Instant;

use sluicegate_testkit::scripted::rig::{QUEUE, Rig, done_after, fails_for, pool};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn shutdown_hands_back_what_waits_and_lets_what_runs_end() {
    let rig = Rig::new([pool("A", 1, Ordering::Batch)]).await;
    rig.executor.on("runs", [done_after(10_000)]);
    rig.hand_out([grouped("runs", "A", "g"), grouped("waits", "A", "g"), grouped("w2", "A", "h")]);
    rig.executor.until_started(1).await;
    rig.settle_down().await;
    let now = Instant::now();
    let report = rig.router.shutdown(now + seconds(25), now + seconds(55)).await;
    assert_eq!(report, Default::default());
    assert_eq!(
        rig.sorted(),
        ["runs gone", "w2 again 0s draining #0", "waits again 0s draining #0"]
    );
    assert_eq!(rig.router.in_flight(), 0);
    assert!(now.elapsed() < seconds(11), "{:?}", now.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_still_runs_at_the_deadline_is_cancelled_and_handed_back() {
    let rig = Rig::new([pool("A", 1, Ordering::Strict)]).await;
    rig.executor.on("hangs", [Step::Hang]);
    rig.hand_out([grouped("hangs", "A", "g")]);
    rig.executor.until_started(1).await;
    let now = Instant::now();
    let report = rig.router.shutdown(now + seconds(25), now + seconds(55)).await;
    assert_eq!((report.unsettled, report.abandoned.len()), (0, 0));
    assert_eq!(rig.source.settlements(), ["hangs again 0s draining #0"]);
    assert!(now.elapsed() >= seconds(55) && now.elapsed() < seconds(56));
    assert_eq!(rig.executor.started(), ["hangs#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_strict_head_that_waits_is_handed_back_with_its_tail() {
    let rig = Rig::new([pool("A", 1, Ordering::Strict)]).await;
    rig.executor.on("m1", [fails_for(Some(500))]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.executor.until_started(1).await;
    rig.settle_down().await;
    let now = Instant::now();
    rig.router.shutdown(now + seconds(25), now + seconds(55)).await;
    assert_eq!(rig.sorted(), ["m1 again 0s draining #1", "m2 again 0s draining #0"]);
}

/// docs/rules.md#strict-2
#[tokio::test(start_paused = true)]
async fn a_strict_head_keeps_its_delay_where_its_source_keeps_its_order() {
    let rig = Rig::new([pool("A", 1, Ordering::Strict)]).await;
    let profile = Profile { keeps_order: KeepsOrder::OneByOne, ..Profile::new(seconds(3_600), 10) };
    let keeps = ScriptedSource::with(profile);
    assert!(rig.router.add_queue("keeps", QUEUE, keeps.clone()).await.unwrap());
    rig.executor.on("m1", [fails_for(Some(500))]);
    keeps.hand_out(vec![delivery(grouped("m1", "A", "g"))]);
    rig.executor.until_started(1).await;
    rig.pass(100).await;
    let now = Instant::now();
    rig.router.shutdown(now + seconds(25), now + seconds(55)).await;
    let settled = keeps.settlements();
    assert!(
        ["m1 again 399s draining #1", "m1 again 400s draining #1"].contains(&&*settled[0]),
        "{settled:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn shutting_down_twice_is_safe_and_nothing_is_taken_in_after() {
    let rig = Rig::new([pool("A", 1, Ordering::Batch)]).await;
    let now = Instant::now();
    rig.router.shutdown(now + seconds(25), now + seconds(55)).await;
    rig.hand_out([message("late", "A")]);
    let report = rig.router.shutdown(now + seconds(25), now + seconds(55)).await;
    assert_eq!(report.unsettled, 0);
    assert_eq!(rig.executor.started(), Vec::<String>::new());
}

/// docs/rules.md#pool-3
#[tokio::test(start_paused = true)]
async fn a_removed_pool_hands_back_what_waits_and_ends_what_runs() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("runs", [done_after(10_000)]);
    rig.hand_out([grouped("runs", "A", "g"), grouped("waits", "A", "g")]);
    rig.executor.until_started(1).await;
    rig.settle_down().await;
    assert!(rig.router.remove_pool("A") && !rig.router.remove_pool("A"));
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["waits again 0s draining #0"]);
    assert_eq!(rig.router.clean_up().await, 1);
    // What comes again goes to the default pool meanwhile.
    rig.hand_out([grouped("waits", "A", "g")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.facts.of("unknown-pool"), ["unknown-pool A waits"]);
    rig.source.until_settled(3).await;
    assert_eq!((rig.router.clean_up().await, rig.router.in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_removed_queue_settles_what_is_here_and_goes() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("runs", [done_after(10_000)]);
    rig.hand_out([grouped("runs", "A", "g")]);
    rig.executor.until_started(1).await;
    let deadline = Instant::now() + seconds(25);
    assert!(rig.router.remove_queue("q", deadline).await);
    assert!(!rig.router.remove_queue("q", deadline).await);
    assert_eq!(rig.router.clean_up().await, 1);
    rig.source.until_settled(1).await;
    rig.settle_down().await;
    assert_eq!(
        (rig.source.settlements(), rig.router.clean_up().await),
        (vec!["runs gone".to_owned()], 0)
    );
}

/// docs/rules.md#dedupe-1
#[tokio::test(start_paused = true)]
async fn a_queue_that_is_back_does_not_take_what_it_had_before() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.executor.on("m1", [done_after(5_000)]);
    rig.hand_out([grouped("m1", "A", "g")]);
    rig.executor.until_started(1).await;
    assert!(rig.router.remove_queue("q", Instant::now() + seconds(1)).await);
    let back = ScriptedSource::new();
    assert!(rig.router.add_queue("q", QUEUE, back.clone()).await.expect("a queue"));
    let again = || sluicegate_testkit::scripted::delivery(grouped("m1", "A", "g"));
    let copy = Delivery { broker_id: "another".into(), ..again() };
    back.hand_out(vec![again(), copy]);
    back.until_settled(2).await;
    assert_eq!(back.settlements(), ["m1 again 30s draining #0", "m1 again 30s draining #0"]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["m1 gone"]);
    back.hand_out(vec![again()]);
    back.until_settled(3).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m1#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_source_is_replaced_and_its_messages_stay_known() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m1", [done_after(200_000)]);
    rig.hand_out([grouped("m1", "A", "g")]);
    rig.executor.until_started(1).await;
    rig.source.hang(true);
    rig.pass(85).await;
    assert_eq!(rig.router.stalled_queues().len(), 1);
    let fresh = ScriptedSource::new();
    let stalled = rig.router.source("q").expect("it is there");
    assert!(rig.router.restart_queue("q", &stalled, fresh.clone()).await.expect("a queue"));
    assert_eq!(rig.router.stalled_queues().len(), 0);
    fresh.hand_out(vec![
        sluicegate_testkit::scripted::delivery(grouped("m1", "A", "g")),
        sluicegate_testkit::scripted::delivery(grouped("m2", "A", "h")),
    ]);
    fresh.until_settled(2).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m2#1"]);
    assert_eq!(rig.facts.of("redelivered"), ["redelivered m1"]);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_at_a_stalled_source_is_settled_and_extended_at_the_new_one() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.on("done", [done_after(1)]);
    rig.executor.on("runs", [done_after(200_000)]);
    rig.hand_out([grouped("done", "A", "g"), grouped("runs", "A", "h")]);
    rig.executor.until_started(2).await;
    rig.source.hang(true);
    rig.pass(85).await;
    assert_eq!(rig.router.in_flight(), 2);
    let fresh = ScriptedSource::new();
    let stalled = rig.router.source("q").expect("it is there");
    assert!(rig.router.restart_queue("q", &stalled, fresh.clone()).await.expect("a queue"));
    rig.pass(30).await;
    assert_eq!(fresh.settlements(), ["done gone"]);
    // At once, as the round that hung is long overdue, and in time from then on.
    assert_eq!(fresh.extensions(), [("r-done".to_owned(), 1), ("r-runs".to_owned(), 4)]);
    fresh.until_settled(2).await;
    assert_eq!(rig.source.settlements(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_from_the_start_has_stalled() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.source.hang(true);
    rig.pass(59).await;
    assert_eq!(rig.router.stalled_queues().len(), 0);
    rig.pass(2).await;
    assert_eq!(rig.router.stalled_queues().len(), 1);
    let hangs_too = ScriptedSource::new();
    hangs_too.hang(true);
    let stalled = rig.router.source("q").expect("it is there");
    assert!(rig.router.restart_queue("q", &stalled, hangs_too).await.expect("a queue"));
    assert_eq!(rig.router.stalled_queues().len(), 0);
    rig.pass(61).await;
    assert_eq!(rig.router.stalled_queues().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_queues_do_not_mix_their_ids() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    let other = ScriptedSource::new();
    assert!(rig.router.add_queue("other", QUEUE, other.clone()).await.expect("a queue"));
    assert!(!rig.router.add_queue("other", QUEUE, other.clone()).await.expect("no second"));
    rig.executor.otherwise(done_after(10));
    rig.hand_out([grouped("m1", "A", "g")]);
    other.hand_out(vec![sluicegate_testkit::scripted::delivery(grouped("m1", "A", "h"))]);
    rig.source.until_settled(1).await;
    other.until_settled(1).await;
    assert_eq!(rig.executor.started().len(), 2);
}

/// A source is not asked while its messages wait for room: it has nothing to answer.
#[tokio::test(start_paused = true)]
async fn a_queue_that_waits_for_room_has_not_stalled() {
    let rig = Rig::new([pool("S", 1, Ordering::Strict)]).await;
    rig.executor.otherwise(done_after(200_000));
    rig.hand_out((0..300).map(|n| grouped(&format!("m{n}"), "S", &format!("g{n}"))));
    rig.pass(150).await;
    let in_pool = rig.router.pool_views()[0].stats.gauges.queued;
    assert!(in_pool < 299, "all {in_pool} found room");
    assert_eq!(rig.router.stalled_queues(), Vec::<std::sync::Arc<str>>::new());
}
