//! Per-Group Virtual Threads. Here a group has no thread or task: it exists while it has messages.

use std::time::Duration;

use sluicegate_dispatch::{Ordering, PoolSettings, Ungrouped};
use sluicegate_testkit::scripted::rig::{Rig, done_after, pool};
use sluicegate_testkit::scripted::{Step, grouped, message};

// § A group processes one message at a time, groups side by side.
#[tokio::test(start_paused = true)]
async fn one_at_a_time_per_group() {
    let rig = Rig::new([PoolSettings::new("A", 10)]).await;
    rig.executor.otherwise(done_after(10));
    rig.hand_out((0..9).map(|n| grouped(&format!("m{n}"), "A", &format!("g{}", n % 3))));
    rig.source.until_settled(9).await;
    assert_eq!(rig.executor.most_running(), 3);
}

// § High priority is looked at before regular, at every message.
// § High priority wakes a group that waits.
#[tokio::test(start_paused = true)]
async fn high_priority_first() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(done_after(10));
    let urgent = |id: &str| {
        let mut urgent = grouped(id, "A", "g");
        urgent.high_priority = true;
        urgent
    };
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g"), urgent("u1"), urgent("u2")]);
    rig.source.until_settled(4).await;
    let started = rig.executor.started();
    let at = |id: &str| started.iter().position(|started| started.starts_with(id)).expect("ran");
    assert!(at("u1") < at("u2") && at("u2") < at("m2"), "{started:?}");
    rig.hand_out([urgent("u3")]);
    rig.source.until_settled(5).await;
}

// § An idle group costs nothing: it is gone with its last message. #3
#[tokio::test(start_paused = true)]
async fn an_idle_group_is_gone() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.hand_out((0..8).map(|n| grouped(&format!("m{n}"), "A", &format!("g{n}"))));
    rig.source.until_settled(8).await;
    rig.settle_down().await;
    assert_eq!(rig.router.group_views(None).len(), 0);
    assert_eq!(rig.router.pool_views()[0].tenants.len(), 0);
}

// § A failure of the thread itself cannot leave messages behind: a panic is an outcome.
#[tokio::test(start_paused = true)]
async fn a_panic_leaves_nothing_behind() {
    let rig = Rig::new([pool("A", 1, Ordering::Strict)]).await;
    rig.executor.on("m1", [Step::Panic("oops")]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m1#2", "m2#1"]);
}

// § Messages without a group are one group, or run side by side where the pool says so. #10
#[tokio::test(start_paused = true)]
async fn messages_without_a_group() {
    for (ungrouped, most) in [(Ungrouped::Fifo, 1), (Ungrouped::Parallel, 5)] {
        let rig = Rig::new([PoolSettings { ungrouped, ..PoolSettings::new("A", 5) }]).await;
        rig.executor.otherwise(done_after(10));
        rig.hand_out((0..10).map(|n| message(&format!("m{n}"), "A")));
        rig.source.until_settled(10).await;
        assert_eq!(rig.executor.most_running(), most);
    }
}

// § A message in a failed batch and group is nacked before rate and permit are asked for.
#[tokio::test(start_paused = true)]
async fn the_cascade_comes_before_rate_and_permit() {
    let rated = PoolSettings { rate_limit_per_minute: Some(1), ..PoolSettings::new("A", 1) };
    let rig = Rig::new([rated]).await;
    rig.executor.on("m0", [sluicegate_testkit::scripted::rig::fails()]);
    rig.hand_out((0..10).map(|n| grouped(&format!("m{n}"), "A", "g")));
    rig.source.until_settled(10).await;
    assert!(rig.began.elapsed() < Duration::from_secs(1), "{:?}", rig.began.elapsed());
}
