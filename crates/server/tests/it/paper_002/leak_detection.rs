//! Leak Detection.

use sluicegate_dispatch::PoolSettings;
use sluicegate_server::{chores, health};
use sluicegate_testkit::scripted::grouped;
use sluicegate_testkit::scripted::rig::{Rig, done_after};

// § Every 30 seconds.
#[test]
fn how_often() {
    assert_eq!(chores::LEAKS.as_secs(), 30);
}

// § More in flight than the pools can hold, waiting and running, is a leak. #16
#[test]
fn what_is_a_leak() {
    for (in_flight, room, leaks) in [(0, 0, false), (420, 420, false), (421, 420, true)] {
        assert_eq!(health::leak(in_flight, room).is_some(), leaks);
    }
}

// § The room is that of all pools, those that drain included; full pools are no leak.
#[tokio::test(start_paused = true)]
async fn full_pools_are_no_leak() {
    let rig = Rig::without_window([PoolSettings::new("A", 1), PoolSettings::new("B", 20)]).await;
    // What is on its way between queue and pool has room too: a receive of ten.
    assert_eq!(rig.router.room(), 51 + 420 + 10);
    rig.executor.otherwise(done_after(10_000));
    rig.hand_out((0..51).map(|n| grouped(&format!("m{n}"), "A", &format!("{n}"))));
    rig.settle_down().await;
    assert!(health::leak(rig.router.in_flight(), rig.router.room()).is_none());
    rig.router.remove_pool("A");
    assert_eq!(rig.router.room(), 51 + 420 + 10);
}
