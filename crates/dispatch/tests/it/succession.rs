//! Messages that are taken in again while an earlier delivery of them still runs: the two never run at once. And queues
//! that follow one of their name: what that one still has is before theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Fact, Message, Observer, Ordering};
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, done_after, fails_for, pool};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped};
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

/// The queue `q` goes, and another of its name comes.
async fn follower(rig: &Rig) -> Arc<ScriptedSource> {
    let source = ScriptedSource::new();
    follow(rig, &source).await;
    source
}

async fn follow(rig: &Rig, source: &Arc<ScriptedSource>) {
    assert!(rig.router.remove_queue("q", Instant::now() + Duration::from_secs(1)).await);
    assert!(rig.router.add_queue("q", QUEUE, source.clone()).await.expect("a queue"));
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

/// What waits of a removed queue is before what came of the queue of the same name that followed it.
#[tokio::test(start_paused = true)]
async fn what_is_brought_home_stays_before_what_came_of_the_next_queue() {
    let rig = Rig::new([pool("DEFAULT-POOL", 4, Ordering::Strict)]).await;
    rig.executor.otherwise(done_after(1_000));
    rig.executor.on("m1", [done_after(60_000)]);
    rig.hand_out(["m1", "m2", "m3"].map(|id| grouped(id, "A", "g")));
    rig.executor.until_started(1).await;
    let new = follower(&rig).await;
    new.hand_out(vec![delivery(grouped("m4", "A", "g"))]);
    rig.settle_down().await;
    assert_eq!(rig.executor.started(), ["m1#1"]);
    // m1 has run and m2 fails: it rests.
    rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
    rig.pass(200).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m2#1", "m3#1", "m4#1"]);
}

/// The same where the head rests when its own pool comes.
#[tokio::test(start_paused = true)]
async fn a_head_that_rests_stays_before_what_came_of_the_next_queue() {
    let rig = Rig::new([pool("DEFAULT-POOL", 4, Ordering::Strict)]).await;
    rig.executor.otherwise(done_after(1_000));
    rig.executor.on("m1", [fails_for(Some(60)), done_after(1_000)]);
    rig.hand_out(["m1", "m2"].map(|id| grouped(id, "A", "g")));
    rig.executor.until_started(1).await;
    rig.pass(1).await;
    let new = follower(&rig).await;
    new.hand_out(vec![delivery(grouped("m3", "A", "g"))]);
    rig.settle_down().await;
    assert_eq!(rig.executor.started(), ["m1#1"]);
    rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
    rig.pass(200).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m1#2", "m2#1", "m3#1"]);
}

/// Takes its time over one message that is let in, after it has handed out another: all that may happen meanwhile does.
struct Lingers {
    over: (&'static str, &'static str),
    source: Arc<ScriptedSource>,
    meanwhile: Vec<Message>,
    /// Not before it is told to.
    does: AtomicBool,
}

impl Observer for Lingers {
    fn observe(&self, fact: &Fact<'_>) {
        if let Fact::Admitted { pool, message } = fact
            && (&***pool, &*message.id) == self.over
            && self.does.load(Memory::SeqCst)
        {
            self.source.hand_out(self.meanwhile.iter().cloned().map(delivery).collect());
            // What it has woken runs on another thread.
            tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(100)));
        }
    }
}

async fn until_in_flight(rig: &Rig, count: usize) {
    while rig.router.in_flight() < count {
        rig.settle_down().await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// docs/rules.md#pool-5, docs/rules.md#strict-6. What of one queue waits behind another's in the default pool starts there
/// no more when that goes home: not before it is brought home itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_starts_between_two_queues_that_are_brought_home() {
    for name in ["q", "r"] {
        let lingers = Lingers {
            over: ("A", "m1"),
            source: ScriptedSource::new(),
            meanwhile: Vec::new(),
            does: AtomicBool::new(true),
        };
        let default = pool("DEFAULT-POOL", 4, Ordering::Strict);
        let rig = Rig::observed([default], Some(Arc::new(lingers))).await;
        rig.executor.on("m1", [fails_for(Some(60)), done_after(200)]);
        rig.hand_out([grouped("m1", "A", "g")]);
        rig.executor.until_started(1).await;
        let next = ScriptedSource::new();
        match name {
            "q" => follow(&rig, &next).await,
            _ => assert!(rig.router.add_queue(name, QUEUE, next.clone()).await.expect("a queue")),
        }
        next.hand_out(vec![delivery(grouped("m2", "A", "g"))]);
        until_in_flight(&rig, 2).await;
        rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
        next.until_settled(1).await;
        assert_eq!(rig.executor.started(), ["m1#1", "m1#2", "m2#1"], "{name}");
        assert_eq!(rig.executor.most_running(), 1, "{name}: of one group");
    }
}

/// docs/rules.md#strict-6. A head that fails where it lacks its place in line is let in again. What an earlier queue of its
/// name has goes before it, and nothing that came after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_goes_before_what_is_on_its_way_to_another_place() {
    let of_group = |id: &str| grouped(id, "A", "g");
    let new = ScriptedSource::new();
    let lingers = Arc::new(Lingers {
        over: ("A", "m1"),
        source: new.clone(),
        meanwhile: vec![of_group("m3")],
        does: AtomicBool::new(false),
    });
    let rig = Rig::observed([pool("A", 1, Ordering::None)], Some(lingers.clone())).await;
    rig.executor.on("busy", [done_after(100)]);
    let Step::Answer(_, fails) = fails_for(Some(1)) else { unreachable!() };
    rig.executor.on("m2", [Step::Answer(Duration::from_millis(500), fails)]);
    rig.hand_out([grouped("busy", "A", "busy"), of_group("m1")]);
    rig.executor.until_started(1).await;
    follow(&rig, &new).await;
    // It is urgent, and goes first as long as nothing is in order.
    new.hand_out(vec![delivery(Message { high_priority: true, ..of_group("m2") })]);
    rig.executor.until_started(2).await;
    lingers.does.store(true, Memory::SeqCst);
    rig.router.set_pool(pool("A", 4, Ordering::Strict)).expect("sound");
    new.until_settled(2).await;
    assert_eq!(rig.executor.started(), ["busy#1", "m2#1", "m1#1", "m2#2", "m3#1"]);
}
