//! Pools that come and go while messages are on their way to them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Delivery, Fact, Message, Observer, Ordering, PoolSettings};
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, done_after, fails, pool};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped, message};
use tokio::time::Instant;

/// docs/rules.md#strict-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_holds_and_nothing_stays_while_pools_come_and_go() {
    let strict = PoolSettings { code: "DEFAULT-POOL".into(), ..pool("x", 2, Ordering::Strict) };
    let rig = Rig::new([strict]).await;
    rig.executor.otherwise(done_after(1));
    let (rounds, groups) = (300, 4);
    for round in 0..rounds {
        rig.hand_out(
            (0..groups).map(|g| grouped(&format!("g{g}-{round:03}"), "S", &format!("g{g}"))),
        );
        // What goes back does not come again from this source: so nothing may go back, or be brought home.
        rig.router.set_pool(PoolSettings::new("OTHER", 1)).expect("sound");
        tokio::task::yield_now().await;
        assert!(rig.router.remove_pool("OTHER"));
    }
    rig.source.until_settled(rounds * groups).await;
    let started = rig.executor.started();
    for group in 0..groups {
        let of_group = format!("g{group}-");
        let own: Vec<_> = started.iter().filter(|id| id.starts_with(&of_group)).collect();
        assert!(own.len() == rounds && own.is_sorted(), "group {group}: {own:?}");
    }
    assert!(rig.sorted().iter().all(|one| one.ends_with("gone")));
}

/// docs/rules.md#pool-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_comes_and_goes_keeps_nothing() {
    let rig = Rig::new([PoolSettings::default_pool()]).await;
    let mut handed_out = 0;
    for round in 0..300 {
        rig.hand_out((0..4).map(|n| message(&format!("m{round}-{n}"), "A")));
        handed_out += 4;
        rig.router.set_pool(PoolSettings::new("A", 1)).expect("sound");
        tokio::task::yield_now().await;
        assert!(rig.router.remove_pool("A"));
    }
    // Each was called, or went back at once; none waits for a pool that is gone.
    rig.source.until_settled(handed_out).await;
    while rig.router.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Stops where a message has a field that nobody knows, between taking in and routing, until it is told to go on.
struct Stops {
    came: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Observer for Stops {
    fn observe(&self, fact: &Fact<'_>) {
        if matches!(fact, Fact::UnknownField { .. }) {
            self.came.send(()).expect("somebody hears");
            self.go_on.lock().recv().expect("told to go on");
        }
    }
}

/// docs/rules.md#route-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_late_receiver_brings_goes_back_when_the_router_ends() {
    let (came, hear) = sync_channel(1);
    let (tell, go_on) = sync_channel(1);
    let observer = Arc::new(Stops { came, go_on: Mutex::new(go_on) });
    let pools = [PoolSettings::new("A", 1), PoolSettings::default_pool()];
    let rig = Rig::observed(pools, Some(observer)).await;
    let odd = Message { unknown_fields: ["odd".into()].into(), ..message("odd", "NONE") };
    rig.hand_out([message("m1", "A"), message("m2", "A"), odd]);
    while hear.try_recv().is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let now = Instant::now();
    let later = async {
        // Long enough for everything to be closed, and less than the last settlements may take.
        tokio::time::sleep(Duration::from_millis(300)).await;
        tell.send(()).expect("it waits");
    };
    let (ended, ()) = tokio::join!(rig.router.shutdown(now, now), later);
    assert_eq!(ended.unsettled, 0);
    let back = ["m1", "m2", "odd"].map(|id| format!("{id} again 0s draining #0"));
    assert_eq!(rig.sorted(), back);
}

/// docs/rules.md#route-4
#[tokio::test(start_paused = true)]
async fn a_message_that_is_read_ahead_is_acknowledged_by_hand() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m00", [Step::Hang]);
    let all: Vec<_> =
        (0..80).map(|n| grouped(&format!("m{n:02}"), "A", &format!("g{n}"))).collect();
    all.chunks(10).for_each(|batch| rig.hand_out(batch.to_vec()));
    rig.settle_down().await;
    assert_eq!(rig.router.ack("m70"), Ok(()));
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["m70 gone"]);
    assert_eq!(rig.router.in_flight(), 79);
}

/// docs/rules.md#strict-6
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_group_in_another_pool_says_so() {
    let rig = Rig::new([pool("S", 4, Ordering::Strict), PoolSettings::default_pool()]).await;
    rig.executor.on("m1", [done_after(5_000)]);
    rig.hand_out([grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_pool("S");
    rig.hand_out([grouped("m2", "S", "g"), grouped("m3", "S", "g")]);
    rig.settle_down().await;
    let why = rig.router.message("m2").and_then(|view| view.why).expect("it waits");
    assert_eq!(why.reason, "group_busy");
    assert_eq!(rig.router.ack("m2"), Ok(()));
    rig.source.until_settled(3).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m3#1"]);
}

/// docs/rules.md#strict-6. From a source that keeps no order (RabbitMQ, NATS), the next message of the group may
/// be on its way while those before it wait in the pool.
#[tokio::test(start_paused = true)]
async fn what_waits_in_a_strict_pool_that_goes_is_not_overtaken() {
    let pools = [pool("S", 1, Ordering::Strict), pool("DEFAULT-POOL", 4, Ordering::Strict)];
    let rig = Rig::new(pools).await;
    rig.executor.on("busy", [done_after(5_000)]);
    rig.hand_out([grouped("busy", "S", "other"), grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_pool("S");
    rig.hand_out([grouped("m2", "S", "g")]);
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["busy#1", "m1#1", "m2#1"]);
}

/// docs/rules.md#strict-6. The same when it comes back.
#[tokio::test(start_paused = true)]
async fn what_waits_in_the_default_pool_is_not_overtaken_when_its_own_comes_back() {
    let default = pool("DEFAULT-POOL", 1, Ordering::Strict);
    let rig = Rig::new([default]).await;
    rig.executor.on("busy", [done_after(5_000)]);
    rig.hand_out([grouped("busy", "T", "other"), grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound settings");
    rig.hand_out([grouped("m2", "S", "g")]);
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["busy#1", "m1#1", "m2#1"]);
}

fn of(id: &str, group: &str, generation: u64) -> Delivery {
    let mut one = delivery(grouped(id, "S", group));
    one.receipt.generation = generation;
    one
}

/// A superseded message that still runs in a pool that is leaving is in no index any more: nothing waits for it.
#[tokio::test(start_paused = true)]
async fn a_message_never_runs_twice_at_once_when_it_is_superseded_in_a_pool_that_leaves() {
    let pools = [pool("S", 4, Ordering::Strict), pool("DEFAULT-POOL", 4, Ordering::Strict)];
    let rig = Rig::new(pools).await;
    rig.executor.on("b", [done_after(60_000), done_after(60_000)]);
    rig.deliver([of("a", "g", 1), of("b", "g", 1)]);
    rig.executor.until_started(2).await;
    rig.router.remove_pool("S");
    // The connection breaks before the broker has heard of a's ack: it delivers all again, in order.
    rig.deliver([of("a", "g", 2), of("b", "g", 2)]);
    rig.pass(10).await;
    assert_eq!(
        rig.executor.started(),
        ["a#1", "b#1"],
        "b runs {} times at once",
        rig.executor.running()
    );
}

/// docs/rules.md#strict-2, docs/rules.md#strict-6. From a source that keeps no order.
#[tokio::test(start_paused = true)]
async fn a_head_that_fails_in_a_removed_pool_is_not_overtaken() {
    let pools = [pool("S", 1, Ordering::Strict), pool("DEFAULT-POOL", 4, Ordering::Strict)];
    let rig = Rig::new(pools).await;
    let Step::Answer(_, outcome) = fails() else { unreachable!() };
    rig.executor.on("m1", [Step::Answer(Duration::from_secs(5), outcome)]);
    rig.hand_out([grouped("m1", "S", "g"), grouped("m2", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_pool("S");
    rig.pass(10).await;
    // It goes to another pool, where it is tried at once, and its group after it.
    assert_eq!(rig.executor.started(), ["m1#1", "m1#2", "m2#1"]);
    assert_eq!(rig.source.settlements(), ["m1 gone", "m2 gone"]);
}

/// docs/rules.md#strict-6. The default pool as it is made when it is first needed.
#[tokio::test(start_paused = true)]
async fn what_runs_in_an_unordered_default_pool_is_waited_for_when_its_strict_pool_is_back() {
    let rig = Rig::new([pool("S", 1, Ordering::Strict), PoolSettings::default_pool()]).await;
    rig.router.remove_pool("S");
    assert_eq!(rig.router.clean_up().await, 0);
    rig.executor.on("m1", [done_after(60_000)]);
    rig.hand_out([grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.set_pool(pool("S", 1, Ordering::Strict)).expect("sound");
    rig.hand_out([grouped("m2", "S", "g")]);
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["m1#1"], "two of a group of a strict pool run at once");
}

/// docs/rules.md#pool-2: "Concurrency, capacity, rate and everything else, at once and for what waits."
#[tokio::test(start_paused = true)]
async fn what_waits_is_in_order_when_its_pool_becomes_strict() {
    let rig = Rig::new([pool("A", 1, Ordering::None)]).await;
    rig.executor.otherwise(done_after(1_000));
    rig.hand_out((0..6).map(|n| grouped(&format!("m{n}"), "A", "g")));
    rig.executor.until_started(1).await;
    rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
    rig.pass(10).await;
    assert_eq!(rig.executor.most_running(), 1, "of one group of a strict pool");
}

/// docs/rules.md#strict-6. The queue was removed and added again, and its pool was removed: what comes from the new one
/// must wait for what the old one still runs.
#[tokio::test(start_paused = true)]
async fn order_holds_when_queue_and_pool_are_changed_together() {
    let pools = [pool("S", 4, Ordering::Strict), pool("DEFAULT-POOL", 4, Ordering::Strict)];
    let rig = Rig::new(pools).await;
    rig.executor.on("m1", [done_after(60_000)]);
    rig.hand_out([grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    assert!(rig.router.remove_queue("q", Instant::now() + Duration::from_secs(1)).await);
    let new = ScriptedSource::new();
    assert!(rig.router.add_queue("q", QUEUE, new.clone()).await.expect("a queue"));
    rig.router.remove_pool("S");
    new.hand_out(vec![of("m2", "g", 0)]);
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["m1#1"], "two of a group of one queue run at once");
}
