//! In-Flight Message Tracking.

use sluicegate_dispatch::{MessageState, PoolSettings};
use sluicegate_testkit::scripted::rig::{Rig, done_after};
use sluicegate_testkit::scripted::{delivery, grouped};

// § The key is the broker's id; the application's id is a second index.
// § Removing takes a message out of both at once.
#[tokio::test(start_paused = true)]
async fn two_indexes_that_change_together() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m", [done_after(1_000)]);
    rig.hand_out([grouped("m", "A", "g")]);
    rig.executor.until_started(1).await;
    assert!(rig.router.message("m").is_some() && rig.router.in_flight() == 1);
    rig.source.until_settled(1).await;
    rig.settle_down().await;
    assert!(rig.router.message("m").is_none() && rig.router.in_flight() == 0);
}

// § What is tracked is the message, its queue, its ids and since when.
#[tokio::test(start_paused = true)]
async fn what_is_tracked() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m", [done_after(10_000)]);
    rig.hand_out([grouped("m", "A", "g")]);
    rig.pass(3).await;
    let view = rig.router.message("m").expect("here");
    assert_eq!(
        (&*view.queue, view.pool.as_deref(), view.state),
        ("q", Some("A"), MessageState::Running)
    );
    assert_eq!((view.age.as_secs(), view.message.group.as_deref()), (3, Some("g")));
}

// § Tracking twice is refused, by either id, also within one batch.
#[tokio::test(start_paused = true)]
async fn never_twice() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.executor.otherwise(done_after(100));
    let mut other = delivery(grouped("m", "A", "h"));
    other.broker_id = "other".into();
    rig.deliver([delivery(grouped("m", "A", "g")), delivery(grouped("m", "A", "g")), other]);
    rig.settle_down().await;
    assert_eq!((rig.router.in_flight(), rig.executor.started().len()), (1, 1));
}

// § There are no stale index entries: a message is tracked until its settlement is known, not longer.
#[tokio::test(start_paused = true)]
async fn until_the_settlement_is_known() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.source.fail_settles(4);
    rig.hand_out([grouped("m", "A", "g")]);
    rig.settle_down().await;
    assert_eq!((rig.executor.ended().len(), rig.router.in_flight()), (1, 1));
    rig.source.until_settled(1).await;
    rig.settle_down().await;
    assert_eq!(rig.router.in_flight(), 0);
}
