//! Process Pools.

use sluicegate_dispatch::PoolSettings;
use sluicegate_testkit::scripted::grouped;
use sluicegate_testkit::scripted::rig::{Rig, done_after};

// § The capacity is 20 times the concurrency, at least 50.
#[test]
fn capacity() {
    for (concurrency, capacity) in [(1, 50), (2, 50), (3, 60), (20, 400), (1_000, 20_000)] {
        assert_eq!(PoolSettings::new("A", concurrency).capacity(), capacity);
    }
}

fn many(count: usize) -> impl Iterator<Item = sluicegate_dispatch::Message> {
    (0..count).map(|n| grouped(&format!("m{n}"), "A", &format!("g{n}")))
}

// § Submitting to a pool that drains is refused.
#[tokio::test(start_paused = true)]
async fn a_draining_pool_takes_nothing() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m0", [done_after(1_000)]);
    rig.hand_out(many(1));
    rig.executor.until_started(1).await;
    rig.router.remove_pool("A");
    rig.hand_out([grouped("late", "A", "g")]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.facts.of("unknown-pool"), ["unknown-pool A late"]);
}

// § Capacity is reserved first: enqueueing and waking are one step. #2
// § The count of what waits never exceeds the capacity.
// § No more than the concurrency run at once.
#[tokio::test(start_paused = true)]
async fn bounds_hold_under_load() {
    let rig = Rig::new([PoolSettings::new("A", 3)]).await;
    rig.executor.otherwise(done_after(7));
    for batch in 0..30 {
        rig.hand_out((0..10).map(|n| grouped(&format!("{batch}-{n}"), "A", &format!("{n}"))));
    }
    while rig.source.settlements().len() < 300 {
        rig.settle_down().await;
        let views = rig.router.pool_views();
        let gauges = &views[0].stats.gauges;
        assert!(gauges.running <= 3 && gauges.queued <= 60, "{gauges:?}");
    }
    assert_eq!(rig.executor.most_running(), 3);
}

// § More concurrency holds at once.
// § Less concurrency holds as work ends, and nobody waits for it. #15
#[tokio::test(start_paused = true)]
async fn concurrency_changes_live() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(done_after(1_000));
    rig.hand_out(many(40));
    for (concurrency, at_once, after_a_while) in [(4, 4, 4), (2, 4, 2), (6, 6, 6)] {
        rig.router.set_pool(PoolSettings::new("A", concurrency)).expect("sound");
        rig.settle_down().await;
        assert_eq!(rig.executor.running(), at_once);
        rig.pass(1).await;
        assert_eq!(rig.executor.running(), after_a_while);
    }
}

// § The rate changes live, also for those that wait.
#[tokio::test(start_paused = true)]
async fn the_rate_changes_live() {
    let rated = |rate| PoolSettings { rate_limit_per_minute: rate, ..PoolSettings::new("A", 60) };
    let rig = Rig::new([rated(Some(1))]).await;
    rig.hand_out(many(40));
    rig.pass(2).await;
    assert_eq!(rig.executor.started().len(), 1);
    rig.router.set_pool(rated(Some(600))).expect("sound");
    rig.pass(2).await;
    let started = rig.executor.started().len();
    assert!((20..=32).contains(&started), "{started}");
}
