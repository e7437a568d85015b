//! Routing Algorithm.

use sluicegate_dispatch::{DEFAULT_POOL, Delivery, Message, Ordering, PoolSettings};
use sluicegate_testkit::scripted::rig::{Rig, done_after, pool};
use sluicegate_testkit::scripted::{Step, delivery, grouped, message};

fn copy(message: Message, broker_id: &str) -> Delivery {
    let mut copy = delivery(message);
    copy.broker_id = broker_id.into();
    copy.receipt.handle = Some(format!("r-{broker_id}").into());
    copy
}

/// A router in which `m1` runs.
async fn busy() -> Rig {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.executor.on("m1", [done_after(1_000)]);
    rig.hand_out([grouped("m1", "A", "g")]);
    rig.executor.until_started(1).await;
    rig
}

// § Phase 1, check 1: the same broker id while it is in flight is a redelivery and does not run again.
// § Its receipt is taken over.
// § It is not settled: the receipt that counts is the first one's now.
#[tokio::test(start_paused = true)]
async fn phase_1_a_physical_redelivery() {
    let rig = busy().await;
    let mut again = delivery(grouped("m1", "A", "g"));
    again.receipt.handle = Some("r-newer".into());
    rig.deliver([again]);
    rig.settle_down().await;
    assert_eq!(rig.source.settlements(), Vec::<String>::new());
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["newer gone"]);
    assert_eq!(rig.executor.started(), ["m1#1"]);
}

// § Phase 1, check 2: the same message under another broker id is a requeue, and is acked.
// § The original goes on.
#[tokio::test(start_paused = true)]
async fn phase_1_a_logical_requeue() {
    let rig = busy().await;
    rig.deliver([copy(grouped("m1", "A", "g"), "requeued")]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["requeued gone"]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.source.settlements(), ["requeued gone", "m1 gone"]);
    assert_eq!(rig.executor.started(), ["m1#1"]);
}

// § Phase 1: when the original is done, the same message is new again.
#[tokio::test(start_paused = true)]
async fn phase_1_what_is_done_is_forgotten() {
    let rig = busy().await;
    rig.source.until_settled(1).await;
    rig.settle_down().await;
    rig.deliver([copy(grouped("m1", "A", "g"), "later")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m1#1"]);
}

// § Phase 1: all others are grouped by their pool.
#[tokio::test(start_paused = true)]
async fn phase_1_by_pool() {
    let rig = Rig::new([PoolSettings::new("A", 1), PoolSettings::new("B", 1)]).await;
    rig.hand_out([grouped("a", "A", "g"), grouped("b", "B", "g"), grouped("a2", "A", "h")]);
    rig.source.until_settled(3).await;
    let mut admitted = rig.facts.of("admitted");
    admitted.sort();
    assert_eq!(admitted, ["admitted A a", "admitted A a2", "admitted B b"]);
}

// § Phase 2: an unknown pool is a warning, and its messages go to the default pool.
// § The default pool is created on demand with concurrency 20.
#[tokio::test(start_paused = true)]
async fn phase_2_an_unknown_pool() {
    let rig = Rig::new([]).await;
    assert!(rig.router.pool(DEFAULT_POOL).is_none());
    rig.hand_out([message("m", "NOPE")]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.facts.of("unknown-pool"), ["unknown-pool NOPE m"]);
    assert_eq!(rig.router.pool(DEFAULT_POOL).expect("made").concurrency, 20);
}

// § Phase 2: a pool without room for all of its part takes none of it, with a warning.
// § Other pools of the batch go on.
// § What fits exactly is taken.
#[tokio::test(start_paused = true)]
async fn phase_2_capacity() {
    let rig = Rig::without_window([PoolSettings::new("A", 1), PoolSettings::new("B", 1)]).await;
    rig.executor.otherwise(Step::Hang);
    rig.executor.on("b", [done_after(0)]);
    rig.hand_out([grouped("m", "A", "m")]);
    rig.executor.until_started(1).await;
    rig.hand_out((0..48).map(|n| grouped(&format!("w{n}"), "A", &format!("{n}"))));
    rig.hand_out([
        grouped("x", "A", "x"),
        grouped("y", "A", "y"),
        grouped("z", "A", "z"),
        grouped("b", "B", "b"),
    ]);
    rig.pass(2).await;
    let refused =
        ["x again 30s pool_full #0", "y again 30s pool_full #0", "z again 30s pool_full #0"];
    assert_eq!(rig.sorted(), [&["b gone"], &refused[..]].concat());
    assert_eq!(rig.facts.of("pool-full"), ["pool-full A 3"]);
    rig.hand_out([grouped("x", "A", "x"), grouped("y", "A", "y")]);
    rig.pass(2).await;
    assert_eq!((rig.router.in_flight(), rig.facts.of("pool-full").len()), (51, 1));
}

// § Phase 2: the rate is not looked at here.
#[tokio::test(start_paused = true)]
async fn phase_2_ignores_the_rate() {
    let limited = PoolSettings { rate_limit_per_minute: Some(1), ..PoolSettings::new("A", 4) };
    let rig = Rig::new([limited]).await;
    rig.hand_out((0..10).map(|n| grouped(&format!("m{n}"), "A", &format!("{n}"))));
    rig.pass(2).await;
    assert_eq!(rig.facts.of("admitted").len(), 10);
}

// § Phase 2: a part larger than the whole pool is taken in pieces, in order. #14
#[tokio::test(start_paused = true)]
async fn phase_2_more_than_a_pool_can_ever_hold() {
    let rig = Rig::new([pool("A", 1, Ordering::Batch)]).await;
    rig.hand_out((0..120).map(|n| grouped(&format!("m{n:03}"), "A", "g")));
    rig.source.until_settled(120).await;
    let wanted: Vec<String> = (0..120).map(|n| format!("m{n:03}#1")).collect();
    assert_eq!(rig.executor.started(), wanted);
}

// § Phase 3: a message that is not taken leaves nothing behind, and neither do those after it. #2
// § Phase 3: a malformed one does not hold up its batch. #13
#[tokio::test(start_paused = true)]
async fn phase_3_a_refused_message_leaves_nothing_behind() {
    let rig = Rig::without_window([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(Step::Hang);
    rig.hand_out((0..51).map(|n| grouped(&format!("m{n}"), "A", &format!("{n}"))));
    rig.pass(2).await;
    let before = rig.router.in_flight();
    rig.hand_out([grouped("x1", "A", "x"), grouped("x2", "A", "x")]);
    rig.pass(2).await;
    assert_eq!(rig.router.in_flight(), before);
    assert_eq!(
        rig.router.group_views(Some("A")).iter().filter(|group| &*group.group == "x").count(),
        0
    );
    let mut bad = delivery(message("bad", "A"));
    bad.message =
        Err(sluicegate_dispatch::Malformed { why: "no".to_owned(), raw: "no".to_owned() });
    rig.router.set_pool(PoolSettings::new("A", 60)).expect("sound");
    rig.deliver([bad, delivery(grouped("x1", "A", "x"))]);
    rig.pass(2).await;
    assert!(rig.executor.started().contains(&"x1#1".to_owned()));
}
