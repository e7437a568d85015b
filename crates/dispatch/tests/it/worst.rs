//! The worst of moments: settlements that fail by themselves, sources that are dead, messages that come again late.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering as Memory};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::*;
use sluicegate_testkit::conformance::source::publication_in;
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, answers, done_after, fails, fails_for, pool};
use sluicegate_testkit::scripted::*;
use sluicegate_testkit::{FakeSource, Fault};
use tokio::time::Instant;

/// A source around a scripted one whose settlements go wrong as told.
struct Flaky {
    inner: Arc<ScriptedSource>,
    seen: Mutex<HashSet<Receipt>>,
    /// Each settlement fails once, by itself.
    each_once: bool,
    /// So many calls fail as a whole, after some time.
    calls: AtomicU32,
    takes: Duration,
}

impl Flaky {
    fn new(inner: &Arc<ScriptedSource>, each_once: bool, calls: u32, takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            seen: Mutex::default(),
            each_once,
            calls: AtomicU32::new(calls),
            takes,
        })
    }
}

impl Source for Flaky {
    fn profile(&self) -> Profile {
        self.inner.profile()
    }
    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        self.inner.receive(demand)
    }
    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move {
            tokio::time::sleep(self.takes).await;
            if self.calls.fetch_update(Memory::SeqCst, Memory::SeqCst, |n| n.checked_sub(1)).is_ok()
            {
                return Err(SourceError::new("a hiccup"));
            }
            let mut answers = Vec::new();
            for one in settle {
                if self.each_once && self.seen.lock().insert(one.receipt.clone()) {
                    answers.push(Settled::Failed(SourceError::new("once")));
                } else {
                    answers.extend(self.inner.settle(vec![one]).await?);
                }
            }
            Ok(answers)
        })
    }
    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        self.inner.extend(receipts)
    }
    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        self.inner.depth()
    }
    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }
    fn stop(&self) -> BoxFuture<'_, ()> {
        self.inner.stop()
    }
}

/// docs/rules.md#settle-4
#[tokio::test(start_paused = true)]
async fn a_settlement_that_failed_is_told_again_while_others_fail() {
    let rig = Rig::new([PoolSettings::new("A", 200)]).await;
    let source = ScriptedSource::new();
    let flaky = Flaky::new(&source, true, 0, Duration::ZERO);
    assert!(rig.router.add_queue("flaky", QUEUE, flaky).await.expect("a queue"));
    for n in 0..1200 {
        source.hand_out(vec![delivery(grouped(&format!("m{n}"), "A", &format!("g{n}")))]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A minute of traffic is over.
    let settled = source.settlements().len();
    let started = rig.executor.started().len();
    assert!(settled > 1000, "only {settled} of {started} were settled within a minute");
}

/// docs/rules.md#settle-4
#[tokio::test(start_paused = true)]
async fn a_hiccup_of_the_source_puts_settlements_off_for_a_moment() {
    let rig = Rig::new([PoolSettings::new("A", 200)]).await;
    let source = ScriptedSource::new();
    let flaky = Flaky::new(&source, false, 8, Duration::from_millis(10));
    assert!(rig.router.add_queue("flaky", QUEUE, flaky).await.expect("a queue"));
    source.hand_out(
        (0..80).map(|n| delivery(grouped(&format!("m{n}"), "A", &format!("g{n}")))).collect(),
    );
    let began = Instant::now();
    source.until_settled(80).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(1), "a hiccup of 10 ms took {took:?}");
}

fn malformed(n: usize) -> Delivery {
    let receipt = Receipt { handle: Some(format!("r-{n}").into()), ..Receipt::default() };
    let message = Err(Malformed { why: "no".to_owned(), raw: "x".repeat(1000) });
    Delivery { broker_id: format!("b-{n}").into(), receipt, attempts: 0, message }
}

/// docs/rules.md#settle-5
#[tokio::test(start_paused = true)]
async fn malformed_messages_that_cannot_be_kept_are_bounded() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.parked.fail(u32::MAX);
    for batch in 0..2000 {
        rig.deliver((0..10).map(|n| malformed(batch * 10 + n)));
    }
    rig.pass(10).await;
    let taken = rig.facts.of("malformed").len();
    let room = rig.router.room();
    assert!(taken as u64 <= room, "{taken} taken in, and room for {room}");
}

/// docs/rules.md#settle-5
#[tokio::test(start_paused = true)]
async fn a_malformed_message_that_comes_again_is_owed_once() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.parked.fail(u32::MAX);
    // What a source does with a window of 30 seconds: nobody extends it.
    for round in 0..100 {
        let mut again = malformed(1);
        again.receipt.tag = round;
        rig.deliver([again]);
        rig.pass(30).await;
    }
    let extended = rig.source.extensions().len();
    rig.parked.fail(0);
    rig.pass(60).await;
    let settled = rig.source.settlements().len();
    assert_eq!(settled, 1, "one message was owed {settled} times; extended {extended} times");
}

/// docs/rules.md#settle-5
#[tokio::test(start_paused = true)]
async fn messages_of_unknown_pools_that_cannot_be_kept_are_bounded() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.router.set_unknown_pool(UnknownPool::Park);
    rig.parked.fail(u32::MAX);
    for batch in 0..2000 {
        rig.hand_out((0..10).map(|n| message(&format!("m{}", batch * 10 + n), "NONE")));
    }
    rig.pass(10).await;
    let (taken, room) = (rig.router.in_flight() as u64, rig.router.room());
    assert!(taken <= room, "{taken} in flight, and room for {room}");
}

/// An observer that adds a pool when a message is admitted.
#[derive(Default)]
struct AddsPools {
    router: OnceLock<Router>,
}

impl Observer for AddsPools {
    fn observe(&self, fact: &Fact<'_>) {
        if let (Fact::Admitted { message, .. }, Some(router)) = (fact, self.router.get()) {
            drop((router.message(&message.id), router.queue_views(), router.pool_views()));
            router.set_pool(PoolSettings::new("B", 1)).expect("sound");
        }
    }
}

/// docs/rules.md#pool-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_go_home_are_not_overtaken() {
    let strict = PoolSettings { code: DEFAULT_POOL.into(), ..pool("x", 20, Ordering::Strict) };
    let rig = Rig::new([strict]).await;
    let groups = 190;
    for n in 0..groups {
        rig.executor.on(&format!("a{n}"), [fails_for(Some(3600))]);
    }
    rig.hand_out((0..groups).map(|n| grouped(&format!("a{n}"), "S", &format!("g{n}"))));
    rig.hand_out((0..groups).map(|n| grouped(&format!("b{n}"), "S", &format!("g{n}"))));
    rig.executor.until_started(groups).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(rig.executor.started().len(), groups);
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = rig.executor.started();
    let when = |what: String| started.iter().position(|one| *one == what);
    for n in 0..groups {
        let (second, next) = (when(format!("a{n}#2")), when(format!("b{n}#1")));
        assert!(next.is_none() || second.is_some_and(|second| Some(second) < next), "group {n}");
    }
}

/// docs/rules.md#pool-4
#[tokio::test(start_paused = true)]
async fn superseded_heads_rest_no_more() {
    for superseded in [0, 25] {
        let rig = Rig::new([pool("S", 1, Ordering::Strict)]).await;
        let of = |id: &str, n: usize, generation: u64| {
            let mut one = delivery(grouped(&format!("{id}{n}"), "S", &format!("g{n}")));
            one.receipt.generation = generation;
            one
        };
        for n in 0..superseded {
            rig.executor.on(&format!("b{n}"), [fails_for(Some(60))]);
            rig.source.expire(of("a", n, 0).receipt);
            rig.deliver([of("a", n, 0), of("b", n, 0)]);
        }
        rig.pass(1).await;
        for n in 0..superseded {
            rig.deliver([of("a", n, 1), of("b", n, 1)]);
        }
        rig.pass(600).await;
        assert_eq!(rig.router.in_flight(), 0);
        let keeps = ScriptedSource::with(Profile {
            keeps_order: KeepsOrder::OneByOne,
            ..Profile::new(Duration::from_secs(30), 10)
        });
        assert!(rig.router.add_queue("keeps", QUEUE, keeps.clone()).await.unwrap());
        rig.executor.on("head", [fails_for(Some(60))]);
        keeps.hand_out(vec![delivery(grouped("head", "S", "h"))]);
        rig.pass(1).await;
        assert_eq!(
            keeps.settlements(),
            Vec::<String>::new(),
            "an empty pool takes itself for half full of those that rest"
        );
    }
}

/// docs/rules.md#settle-1
#[tokio::test(start_paused = true)]
async fn attempts_have_no_end() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.deliver([Delivery { attempts: u32::MAX, ..delivery(message("m", "A")) }]);
    rig.pass(1).await;
    assert_eq!(rig.source.settlements(), ["m gone"]);
}

/// docs/rules.md#throttle-1
#[tokio::test(start_paused = true)]
async fn a_pause_without_end_has_one() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m", [answers(Outcome::Throttled { after: Duration::MAX, body: None })]);
    rig.hand_out([message("m", "A")]);
    rig.pass(1).await;
    assert_eq!(rig.source.settlements(), ["m again 43200s throttled #0"]);
}

/// docs/rules.md#throttle-1
#[tokio::test(start_paused = true)]
async fn a_pause_is_no_longer_than_a_delay() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let year = Duration::from_secs(365 * 86_400);
    rig.executor.on("m", [answers(Outcome::Throttled { after: year, body: None })]);
    rig.hand_out([message("m", "A")]);
    rig.pass(1).await;
    rig.pass(86_400).await;
    rig.hand_out([message("n", "A")]);
    rig.pass(1).await;
    assert_eq!(rig.executor.started().len(), 2);
}

/// docs/rules.md#route-4
#[tokio::test(start_paused = true)]
async fn a_little_room_is_told_of_too() {
    let settings = pool("A", 2, Ordering::Strict);
    let capacity = settings.capacity() as usize;
    let rig = Rig::new([settings]).await;
    rig.executor.on("h0", [done_after(3_600_000)]);
    rig.executor.otherwise(done_after(3));
    // One group is slow and fills the pool but for one place.
    rig.hand_out((0..capacity).map(|n| grouped(&format!("h{n}"), "A", "hot")));
    rig.settle_down().await;
    rig.hand_out((0..100).map(|n| grouped(&format!("f{n}"), "A", &format!("f{n}"))));
    rig.pass(10).await;
    let ran = rig.executor.started().len() - 1;
    assert!(ran >= 100, "one permit was idle, and {ran} of 100 messages of 3 ms ran in 10 s");
}

/// docs/rules.md#route-4
#[tokio::test(start_paused = true)]
async fn a_receive_that_fails_gives_its_places_back() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    // They come again before it tries again.
    let bad = Arc::new(FakeSource::new(Duration::from_millis(100)));
    bad.push((0..100).map(|n| publication_in(&format!("b{n}"), "A", None, false)));
    bad.fail_next(Fault::LoseReceived, u32::MAX);
    assert!(rig.router.add_queue("bad", QueueSettings::new(1, 1000), bad).await.unwrap());
    rig.pass(60).await;
    rig.hand_out((0..10).map(|n| grouped(&format!("m{n}"), "A", &format!("g{n}"))));
    rig.pass(60).await;
    assert_eq!(
        rig.executor.started().len(),
        10,
        "a queue that cannot receive has all the places of an empty pool"
    );
}

/// docs/rules.md#drain-1
#[tokio::test(start_paused = true)]
async fn a_router_that_has_ended_takes_no_queue() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let now = Instant::now();
    let fresh = ScriptedSource::new();
    let stalled = rig.router.source("q").expect("it is there");
    rig.router.shutdown(now + Duration::from_secs(1), now + Duration::from_secs(2)).await;
    let restarted = rig.router.restart_queue("q", &stalled, fresh.clone()).await;
    assert!(!restarted.expect("sound"), "it has ended");
    fresh.hand_out(vec![delivery(message("m", "A"))]);
    rig.pass(120).await;
    assert_eq!(rig.router.in_flight(), 0, "a router that has ended took a message and keeps it");
}

/// docs/rules.md#route-1
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_observer_may_change_the_router() {
    let observer = Arc::<AddsPools>::default();
    let rig = Rig::observed([PoolSettings::new("A", 1)], Some(observer.clone())).await;
    assert!(observer.router.set(rig.router.clone()).is_ok());
    rig.hand_out([message("m", "A")]);
    let settled = tokio::time::timeout(Duration::from_secs(10), rig.source.until_settled(1)).await;
    assert!(settled.is_ok(), "the observer waits for itself");
}

/// docs/rules.md#strict-1
#[tokio::test(start_paused = true)]
async fn after_an_ack_by_hand_the_group_waits_until_the_source_knows() {
    let rig = Rig::new([pool("S", 2, Ordering::Strict)]).await;
    rig.executor.on("m1", [fails_for(Some(3600))]);
    rig.hand_out([grouped("m1", "S", "g"), grouped("m2", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.settle_down().await;
    rig.source.fail_settles(3);
    assert_eq!(rig.router.ack("m1"), Ok(()));
    rig.settle_down().await;
    assert_eq!(rig.source.settlements(), Vec::<String>::new());
    assert_eq!(
        rig.executor.started(),
        ["m1#1"],
        "m2 started though the source does not know of m1"
    );
}

/// docs/rules.md#settle-5
#[tokio::test(start_paused = true)]
async fn a_removed_queue_whose_source_is_dead_leaves_its_places() {
    for hangs in [false, true] {
        let rig = Rig::new([PoolSettings::new("A", 1)]).await;
        let dead = ScriptedSource::new();
        assert!(rig.router.add_queue("dead", QUEUE, dead.clone()).await.unwrap());
        rig.executor.otherwise(done_after(10));
        for n in 0..20 {
            dead.hand_out(
                (0..10)
                    .map(|m| delivery(grouped(&format!("d{n}-{m}"), "A", &format!("d{n}-{m}"))))
                    .collect(),
            );
        }
        rig.settle_down().await;
        if hangs {
            dead.hang(true)
        } else {
            dead.fail_settles(u32::MAX)
        }
        rig.pass(60).await;
        rig.hand_out([grouped("other", "A", "o")]);
        rig.pass(60).await;
        assert!(rig.router.remove_queue("dead", Instant::now() + Duration::from_secs(25)).await);
        for _ in 0..24 {
            rig.pass(3600).await;
            rig.router.clean_up().await;
        }
        assert_eq!((rig.router.clean_up().await, rig.router.in_flight()), (0, 0));
        assert!(
            rig.executor.started().contains(&"other#1".to_owned()),
            "the places of a removed queue are never free"
        );
    }
}

/// docs/rules.md#dedupe-1
#[tokio::test(start_paused = true)]
async fn what_a_broker_requeues_late_is_not_run_again() {
    let rig = Rig::new([pool("S", 4, Ordering::Strict)]).await;
    let of = |id: &str, generation: u64| {
        let mut one = delivery(grouped(id, "S", "g"));
        one.receipt.generation = generation;
        one
    };
    rig.executor.on("m1", [done_after(60_000)]);
    rig.deliver([of("m1", 1)]);
    rig.executor.until_started(1).await;
    // The client has a new connection. The broker has not noticed yet that the old one is gone, and hands out what is next.
    rig.deliver([of("m2", 2)]);
    rig.pass(10).await;
    // Now it has.
    rig.deliver([of("m1", 2)]);
    rig.pass(600).await;
    assert_eq!(
        rig.executor.started(),
        ["m1#1", "m2#1"],
        "the key ends in the state of its older message"
    );
}

/// docs/rules.md#dedupe-1
#[tokio::test(start_paused = true)]
async fn a_superseded_head_blocks_nothing() {
    let settings = PoolSettings {
        max_attempts: 1,
        on_exhausted: OnExhausted::Block,
        ..pool("S", 2, Ordering::Strict)
    };
    let rig = Rig::new([settings]).await;
    let of = |id: &str, generation: u64| {
        let mut one = delivery(grouped(id, "S", "g"));
        one.receipt.generation = generation;
        one
    };
    rig.executor.on("b", [fails()]);
    rig.source.expire(of("a", 1).receipt);
    rig.deliver([of("a", 1), of("b", 1)]);
    rig.pass(1).await;
    rig.deliver([of("a", 2), of("b", 2), of("c", 2)]);
    rig.pass(1).await;
    rig.pass(60).await;
    assert!(
        rig.executor.started().contains(&"c#1".to_owned()),
        "the group is blocked by a message that is not here"
    );
}
