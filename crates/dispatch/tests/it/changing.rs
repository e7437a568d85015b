//! Order while the settings of pools change: what waits, rests or runs without a key when its pool begins to keep
//! order, and pools that are replaced by the default pool.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    KeepsOrder, Message, Ordering, Outcome, PoolSettings, Profile, Ungrouped,
};
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, answers, done_after, fails_for, pool};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped, message};

/// Fails after so many milliseconds, and wishes to be asked again after so many seconds.
fn fails_after(ms: u64, again: u64) -> Step {
    let Step::Answer(_, outcome) = fails_for(Some(again)) else { unreachable!() };
    Step::Answer(Duration::from_millis(ms), outcome)
}

/// Lets time pass, in which no two messages may run at once.
async fn one_at_a_time(rig: &Rig, seconds: u64) {
    for _ in 0..seconds * 100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(rig.executor.running() <= 1, "at once: {:?}", rig.executor.started());
    }
}

/// A second source, which keeps order so far.
async fn beside(rig: &Rig, keeps_order: KeepsOrder) -> Arc<ScriptedSource> {
    let profile = Profile { keeps_order, ..Profile::new(Duration::from_secs(30), 10) };
    let source = ScriptedSource::with(profile);
    assert!(rig.router.add_queue("beside", QUEUE, source.clone()).await.expect("a queue"));
    source
}

fn of_group(ids: &[&str]) -> Vec<Message> {
    ids.iter().map(|id| grouped(id, "A", "g")).collect()
}

/// docs/rules.md#strict-6. What waits for a paused host rests without a key.
#[tokio::test(start_paused = true)]
async fn what_rests_is_in_order_when_its_pool_becomes_strict() {
    let rig = Rig::new([pool("A", 4, Ordering::None)]).await;
    let pause = Outcome::Throttled { after: Duration::from_secs(10), body: None };
    rig.executor.on("first", [answers(pause)]);
    rig.executor.otherwise(done_after(1_000));
    rig.hand_out([grouped("first", "A", "other")]);
    rig.source.until_settled(1).await;
    rig.hand_out(of_group(&["m1", "m2", "m3"]));
    rig.pass(1).await;
    rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
    one_at_a_time(&rig, 8).await;
    assert_eq!(rig.executor.started(), ["first#1"], "before the pause is over");
    one_at_a_time(&rig, 10).await;
    assert_eq!(rig.executor.started(), ["first#1", "m1#1", "m2#1", "m3#1"]);
}

/// docs/rules.md#strict-6, docs/rules.md#settle-1. Those that run meanwhile fail after it.
#[tokio::test(start_paused = true)]
async fn what_fails_after_its_pool_became_strict_is_tried_again_in_order() {
    for (first, second) in [(5, 3), (3, 5)] {
        let rig = Rig::new([pool("A", 4, Ordering::None)]).await;
        rig.executor.otherwise(done_after(1_000));
        rig.executor.on("m1", [fails_after(first * 1_000, 20)]);
        rig.executor.on("m2", [fails_after(second * 1_000, 10)]);
        rig.hand_out(of_group(&["m1", "m2"]));
        rig.executor.until_started(2).await;
        rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
        rig.hand_out(of_group(&["m3"]));
        rig.pass(6).await;
        one_at_a_time(&rig, 60).await;
        assert_eq!(rig.executor.started(), ["m1#1", "m2#1", "m1#2", "m2#2", "m3#1"]);
        assert_eq!(rig.source.settlements(), ["m1 gone", "m2 gone", "m3 gone"]);
        let m1 = rig.source.settled_after("m1", rig.began).expect("settled");
        assert!(m1 >= Duration::from_secs(first + 20), "m1 was to wait for 20 s: {m1:?}");
    }
}

/// docs/rules.md#strict-1. With a key, and its pool becomes strict while it runs.
#[tokio::test(start_paused = true)]
async fn the_next_waits_for_the_settlement_of_what_ran_when_its_pool_became_strict() {
    for ordering in [Ordering::Batch, Ordering::None] {
        let rig = Rig::new([pool("A", 1, ordering)]).await;
        rig.executor.on("m1", [done_after(5_000)]);
        rig.hand_out(of_group(&["m1", "m2"]));
        rig.executor.until_started(1).await;
        rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
        rig.source.hang(true);
        rig.pass(10).await;
        assert_eq!(
            rig.executor.started(),
            ["m1#1"],
            "{ordering:?}: the source knows nothing of m1"
        );
        rig.source.hang(false);
        rig.source.until_settled(2).await;
        assert_eq!(rig.executor.started(), ["m1#1", "m2#1"]);
    }
}

/// docs/rules.md#strict-2. The same when it fails: it stays at the front.
#[tokio::test(start_paused = true)]
async fn what_ran_when_its_pool_became_strict_and_fails_is_not_overtaken() {
    for ordering in [Ordering::Batch, Ordering::None] {
        let rig = Rig::new([pool("A", 1, ordering)]).await;
        rig.executor.on("m1", [fails_after(5_000, 10)]);
        rig.hand_out(of_group(&["m1"]));
        rig.hand_out(of_group(&["m2"]));
        rig.executor.until_started(1).await;
        rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
        rig.source.until_settled(2).await;
        assert_eq!(rig.executor.started(), ["m1#1", "m1#2", "m2#1"], "{ordering:?}");
    }
}

/// docs/rules.md#strict-6. What waits in it with its key, while another of its group is in the default pool.
#[tokio::test(start_paused = true)]
async fn what_runs_in_the_default_pool_is_waited_for_when_its_own_becomes_strict() {
    let rig = Rig::new([PoolSettings::default_pool()]).await;
    rig.executor.on("m1", [done_after(60_000)]);
    rig.hand_out(of_group(&["m1"]));
    rig.executor.until_started(1).await;
    rig.router.set_pool(pool("A", 1, Ordering::Batch)).expect("sound");
    rig.executor.on("busy", [done_after(5_000)]);
    rig.hand_out([grouped("busy", "A", "busy"), grouped("m2", "A", "g")]);
    rig.executor.until_started(2).await;
    rig.router.set_pool(pool("A", 1, Ordering::Strict)).expect("sound");
    rig.hand_out(of_group(&["m3"]));
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["m1#1", "busy#1"], "beside m1");
    rig.source.until_settled(4).await;
    assert_eq!(rig.executor.started(), ["m1#1", "busy#1", "m2#1", "m3#1"]);
}

/// docs/rules.md#strict-6. It ran beside one elsewhere that has ended since.
#[tokio::test(start_paused = true)]
async fn what_ran_beside_one_elsewhere_is_not_overtaken_when_it_fails() {
    let rig = Rig::new([PoolSettings::default_pool()]).await;
    rig.executor.otherwise(done_after(1_000));
    rig.executor.on("m1", [done_after(10_000)]);
    rig.executor.on("m2", [fails_after(30_000, 5)]);
    rig.hand_out(of_group(&["m1"]));
    rig.executor.until_started(1).await;
    rig.router.set_pool(pool("A", 4, Ordering::Batch)).expect("sound");
    rig.hand_out(of_group(&["m2"]));
    rig.executor.until_started(2).await;
    rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
    rig.hand_out(of_group(&["m3"]));
    rig.pass(60).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m2#1", "m2#2", "m3#1"]);
}

/// docs/rules.md#strict-6. It begins to keep order and grows in one change.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_pool_that_becomes_strict_and_grows_keeps_order_from_the_first_on() {
    for round in 0..200 {
        let rig = Rig::new([pool("A", 1, Ordering::None)]).await;
        rig.executor.otherwise(done_after(2));
        rig.hand_out((0..8).map(|n| grouped(&format!("m{n}"), "A", "g")));
        rig.executor.until_started(1).await;
        rig.router.set_pool(pool("A", 8, Ordering::Strict)).expect("sound");
        rig.source.until_settled(8).await;
        let (most, started) = (rig.executor.most_running(), rig.executor.started());
        assert_eq!(most, 1, "round {round}: at once, of one group: {started:?}");
        assert!(started.is_sorted(), "round {round}: {started:?}");
    }
}

/// docs/rules.md#strict-6. Heads that rest side by side become one line.
#[tokio::test(start_paused = true)]
async fn heads_without_a_group_that_rest_are_one_line_when_they_become_one_group() {
    let parallel =
        PoolSettings { ungrouped: Ungrouped::Parallel, ..pool("A", 4, Ordering::Strict) };
    let rig = Rig::new([parallel.clone()]).await;
    rig.executor.otherwise(done_after(1_000));
    for (id, again) in [("u1", 20), ("u2", 10), ("u3", 10)] {
        rig.executor.on(id, [fails_for(Some(again))]);
    }
    rig.hand_out(["u1", "u2", "u3"].map(|id| message(id, "A")));
    rig.executor.until_started(3).await;
    rig.settle_down().await;
    rig.router.set_pool(PoolSettings { ungrouped: Ungrouped::Fifo, ..parallel }).expect("sound");
    one_at_a_time(&rig, 19).await;
    assert_eq!(rig.executor.started().len(), 3, "u1 is first, and was to wait for 20 s");
    one_at_a_time(&rig, 20).await;
    assert_eq!(rig.executor.started()[3..], ["u1#2", "u2#2", "u3#2"]);
}

/// docs/rules.md#strict-6. The pool that goes is the default pool itself; another is made when it is needed.
#[tokio::test(start_paused = true)]
async fn order_holds_when_a_strict_default_pool_is_removed() {
    let rig = Rig::new([pool("DEFAULT-POOL", 4, Ordering::Strict)]).await;
    rig.executor.on("m1", [done_after(60_000)]);
    rig.hand_out(["m1", "m2"].map(|id| grouped(id, "NOWHERE", "g")));
    rig.executor.until_started(1).await;
    rig.router.remove_pool("DEFAULT-POOL");
    rig.hand_out([grouped("m3", "NOWHERE", "g")]);
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["m1#1"], "beside the one that still runs");
    rig.source.until_settled(3).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m2#1", "m3#1"]);
}

/// docs/rules.md#strict-1, docs/rules.md#strict-6. What a removed pool has done, and its source does not know.
#[tokio::test(start_paused = true)]
async fn what_a_removed_strict_pool_did_is_settled_before_the_next_starts() {
    let rig = Rig::new([pool("S", 4, Ordering::Strict), PoolSettings::default_pool()]).await;
    rig.source.fail_settles(u32::MAX);
    rig.hand_out([grouped("m1", "S", "g")]);
    rig.pass(1).await;
    assert_eq!(rig.executor.ended(), ["m1"]);
    rig.router.remove_pool("S");
    rig.router.clean_up().await;
    rig.hand_out([grouped("m2", "S", "g")]);
    rig.pass(10).await;
    rig.router.clean_up().await;
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["m1#1"], "after a crash they would be 1 2 1");
    rig.source.fail_settles(0);
    rig.source.until_settled(2).await;
    assert_eq!(rig.router.clean_up().await, 0);
}

/// docs/rules.md#pool-5, docs/rules.md#settle-1. A head that waits in the default pool for its next attempt.
#[tokio::test(start_paused = true)]
async fn a_head_that_is_brought_home_keeps_its_delay_where_its_source_does() {
    let rig = Rig::new([pool("DEFAULT-POOL", 4, Ordering::Strict)]).await;
    let source = beside(&rig, KeepsOrder::OneByOne).await;
    rig.executor.on("m1", [fails_for(Some(600))]);
    source.hand_out(vec![delivery(grouped("m1", "S", "g"))]);
    rig.pass(100).await;
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound");
    source.until_settled(1).await;
    assert_eq!(source.settlements(), ["m1 again 499s draining #1"]);
}

/// docs/rules.md#strict-1. A message that is given up by hand is the next to be settled of its group.
#[tokio::test(start_paused = true)]
async fn the_next_waits_until_the_source_knows_what_was_acknowledged_by_hand() {
    // Waiting in its pool; read ahead of it.
    for before in [0, 60] {
        let rig = Rig::new([pool("A", 1, Ordering::Strict)]).await;
        rig.executor.on("busy", [done_after(5_000)]);
        rig.hand_out([grouped("busy", "A", "busy")]);
        rig.executor.until_started(1).await;
        let others = (0..before).map(|n| grouped(&format!("x{n}"), "A", &format!("x{n}")));
        rig.hand_out(others.chain(of_group(&["m1", "m2"])));
        rig.pass(1).await;
        assert_eq!(rig.router.ack("m1"), Ok(()));
        rig.source.hang(true);
        rig.pass(60).await;
        let started = rig.executor.started();
        assert!(!started.contains(&"m2#1".to_owned()), "m1 is not settled: {started:?}");
        rig.source.hang(false);
        rig.source.until_settled(before + 3).await;
        let started = rig.executor.started();
        assert!(started.contains(&"m2#1".to_owned()) && !started.contains(&"m1#1".to_owned()));
    }
}

/// docs/rules.md#strict-5. Several of a group came together: one of them waits in the default pool, the next for room
/// there, when their own pool comes. Neither may go back without the other.
#[tokio::test(start_paused = true)]
async fn what_came_together_stays_in_order_when_its_pool_comes() {
    let default = pool("DEFAULT-POOL", 1, Ordering::Strict);
    let rig = Rig::new([default.clone()]).await;
    let source = beside(&rig, KeepsOrder::ByBatch).await;
    rig.executor.on("busy", [done_after(60_000)]);
    let fillers = (1..default.capacity()).map(|n| format!("filler-{n}"));
    let fillers = fillers.map(|id| grouped(&id, "DEFAULT-POOL", &id));
    rig.hand_out([grouped("busy", "DEFAULT-POOL", "busy")].into_iter().chain(fillers));
    rig.executor.until_started(1).await;
    source.hand_out(of_group(&["m1", "m2"]).into_iter().map(delivery).collect());
    rig.pass(1).await;
    rig.router.set_pool(pool("A", 1, Ordering::Strict)).expect("sound");
    rig.pass(1).await;
    assert_eq!(rig.executor.started(), ["busy#1", "m1#1", "m2#1"]);
    assert_eq!(source.settlements(), ["m1 gone", "m2 gone"]);
}

/// docs/rules.md#strict-5, docs/rules.md#pool-4. A head that fails while as many rest as may stays before those that came
/// with it.
#[tokio::test(start_paused = true)]
async fn what_came_together_stays_in_order_while_many_rest() {
    let strict = pool("A", 100, Ordering::Strict);
    let resting = strict.capacity() as usize / 2;
    let rig = Rig::new([strict]).await;
    let source = beside(&rig, KeepsOrder::ByBatch).await;
    let ids: Vec<String> = (0..resting).map(|n| format!("rests-{n}")).collect();
    for id in &ids {
        rig.executor.on(id, [fails_for(Some(600))]);
    }
    rig.hand_out(ids.iter().map(|id| grouped(id, "A", id)));
    rig.executor.until_started(resting).await;
    rig.pass(1).await;
    rig.executor.on("m1", [fails_for(Some(60))]);
    source.hand_out(of_group(&["m1", "m2"]).into_iter().map(delivery).collect());
    rig.pass(100).await;
    assert_eq!(rig.executor.started()[resting..], ["m1#1", "m1#2", "m2#1"]);
}
