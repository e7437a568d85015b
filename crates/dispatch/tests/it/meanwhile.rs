//! What goes wrong, or is changed, in the middle of something: panics of others' code, queues that come and go
//! together.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering as Memory};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::*;
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, done_after, fails, pool, rejects};
use sluicegate_testkit::scripted::*;
use tokio::time::Instant;

type Hook = Box<dyn Fn() + Send + Sync>;

/// A source around a scripted one, with hooks.
struct Hooked {
    inner: Arc<ScriptedSource>,
    /// Called on entry to `keep_order`, before the source takes note: as if the caller was preempted just before.
    before_keep_order: Mutex<Option<Arc<Hook>>>,
    panics_in_settle: AtomicU32,
    panics_in_receive: AtomicU32,
    answers_short: AtomicBool,
    stop_takes: Duration,
}

impl Hooked {
    fn new(inner: &Arc<ScriptedSource>) -> Arc<Self> {
        Self::stopping(inner, Duration::ZERO)
    }

    fn stopping(inner: &Arc<ScriptedSource>, stop_takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            before_keep_order: Mutex::default(),
            panics_in_settle: AtomicU32::new(0),
            panics_in_receive: AtomicU32::new(0),
            answers_short: AtomicBool::new(false),
            stop_takes,
        })
    }

    /// Once.
    fn on_keep_order(&self, hook: impl Fn() + Send + Sync + 'static) {
        *self.before_keep_order.lock() = Some(Arc::new(Box::new(hook)));
    }
}

fn one_less(count: &AtomicU32) -> bool {
    count.fetch_update(Memory::SeqCst, Memory::SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl Source for Hooked {
    fn profile(&self) -> Profile {
        self.inner.profile()
    }
    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        assert!(!one_less(&self.panics_in_receive), "a bug in a source's receive");
        self.inner.receive(demand)
    }
    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        assert!(!one_less(&self.panics_in_settle), "a bug in a source's settle");
        let short = self.answers_short.swap(false, Memory::SeqCst);
        Box::pin(async move {
            let mut answers = self.inner.settle(settle).await?;
            if short {
                answers.pop();
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
        Box::pin(async move {
            tokio::time::sleep(self.stop_takes).await;
            self.inner.stop().await;
        })
    }
    fn keep_order(&self, order: &Arc<Order>) {
        let hook = self.before_keep_order.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        self.inner.keep_order(order);
    }
}

/// A queue with hooks, beside the rig's own.
async fn hooked_queue(rig: &Rig) -> (Arc<ScriptedSource>, Arc<Hooked>) {
    let inner = ScriptedSource::new();
    let source = Hooked::new(&inner);
    assert!(rig.router.add_queue("h", QUEUE, source.clone()).await.expect("a queue"));
    (inner, source)
}

/// Does something while the router ends and a source takes its time to stop.
async fn while_it_ends<A>(rig: &Rig, act: impl Future<Output = A>) -> A {
    let slow = Hooked::stopping(&ScriptedSource::new(), Duration::from_secs(5));
    assert!(rig.router.add_queue("slow", QUEUE, slow).await.expect("a queue"));
    let now = Instant::now();
    let ending = rig.router.shutdown(now + Duration::from_secs(10), now + Duration::from_secs(20));
    let acting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        act.await
    };
    tokio::join!(ending, acting).1
}

/// Does something on another thread, and waits for it.
fn beside<F: Future<Output = ()> + Send>(
    work: impl Fn() -> F + Send + Sync,
) -> impl Fn() + Send + Sync {
    let runtime = tokio::runtime::Handle::current();
    move || {
        std::thread::scope(|scope| {
            scope.spawn(|| runtime.block_on(work()));
        });
    }
}

fn of(id: &str, group: &str, generation: u64) -> Delivery {
    let mut one = delivery(grouped(id, "S", group));
    one.receipt.generation = generation;
    one
}

/// A message that was taken in again while it ran fails: nobody needs it to wait at the front.
#[tokio::test(start_paused = true)]
async fn a_superseded_message_that_fails_does_not_block_its_group() {
    let settings = PoolSettings {
        max_attempts: 1,
        on_exhausted: OnExhausted::Block,
        ..pool("S", 2, Ordering::Strict)
    };
    let rig = Rig::new([settings]).await;
    let Step::Answer(_, outcome) = fails() else { unreachable!() };
    rig.executor.on("b", [Step::Answer(Duration::from_secs(5), outcome)]);
    rig.deliver([of("a", "g", 1), of("b", "g", 1)]);
    rig.executor.until_started(2).await;
    rig.deliver([of("a", "g", 2), of("b", "g", 2), of("c", "g", 2)]);
    rig.pass(24 * 3600).await;
    assert!(
        rig.executor.started().contains(&"c#1".to_owned()),
        "a day later the group is blocked by an entry that stands for nothing: {:?}",
        rig.executor.started()
    );
}

/// The same with `park`: the key is parked by an entry whose own row is never written.
#[tokio::test(start_paused = true)]
async fn a_superseded_message_that_fails_does_not_park_its_group() {
    let settings = PoolSettings { max_attempts: 1, ..pool("S", 2, Ordering::Strict) };
    let rig = Rig::new([settings]).await;
    let Step::Answer(_, outcome) = fails() else { unreachable!() };
    rig.executor.on("b", [Step::Answer(Duration::from_secs(5), outcome)]);
    rig.deliver([of("a", "g", 1), of("b", "g", 1)]);
    rig.executor.until_started(2).await;
    rig.deliver([of("a", "g", 2), of("b", "g", 2), of("c", "g", 2)]);
    rig.pass(3600).await;
    assert_eq!(
        rig.parked.words(),
        Vec::<String>::new(),
        "nothing that is here failed, yet it is parked"
    );
}

/// docs/rules.md#settle-3: "Dropped on any path, a panic included, it hands itself back."
#[tokio::test(start_paused = true)]
async fn a_panic_in_settle_does_not_end_all_settling() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let (inner, source) = hooked_queue(&rig).await;
    source.panics_in_settle.store(1, Memory::SeqCst);
    inner.hand_out(vec![delivery(message("m1", "A"))]);
    rig.pass(60).await;
    for n in 0..300 {
        inner.hand_out(vec![delivery(message(&format!("n{n}"), "A"))]);
    }
    // Of another queue, in the same pool.
    rig.pass(60).await;
    rig.hand_out([message("other", "A")]);
    rig.pass(24 * 3600).await;
    let (settled, stalled) = (inner.settlements().len(), rig.router.stalled_queues());
    let ran = rig.executor.started().contains(&"other#1".to_owned());
    assert!(
        settled == 301 && ran,
        "after one panic {settled} of 301 were settled in a day; another queue's message ran: {ran}; stalled: {stalled:?}; \
         health: {:?}",
        rig.router.queue_views().iter().map(|view| view.health.clone()).collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_receive_does_not_end_all_receiving() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let inner = ScriptedSource::new();
    let source = Hooked::new(&inner);
    source.panics_in_receive.store(1, Memory::SeqCst);
    assert!(rig.router.add_queue("h", QUEUE, source.clone()).await.expect("a queue"));
    inner.hand_out(vec![delivery(message("m1", "A"))]);
    rig.pass(24 * 3600).await;
    assert!(
        !rig.executor.started().is_empty(),
        "a day after one panic nobody receives; stalled: {:?}, facts: {:?}",
        rig.router.stalled_queues(),
        rig.facts.all()
    );
}

/// A parked list that goes wrong.
#[derive(Default)]
struct OddParked {
    kept: Mutex<Vec<String>>,
    panics: AtomicU32,
    panics_when_asked: AtomicU32,
    /// A row that it can never keep.
    poison: Option<&'static str>,
}

impl ParkedStore for OddParked {
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        assert!(!one_less(&self.panics), "a bug in a parked list");
        let ids: Vec<String> = parked
            .iter()
            .filter_map(|one| Some(one.message.as_ref().ok()?.id.to_string()))
            .collect();
        Box::pin(async move {
            if ids.iter().any(|id| Some(&**id) == self.poison) {
                return Err(SourceError::new("a row is too large"));
            }
            self.kept.lock().extend(ids);
            Ok(())
        })
    }
    fn holds_key(&self, _: &str, _: &str, _: &str) -> bool {
        assert!(!one_less(&self.panics_when_asked), "a bug in a parked list");
        false
    }
}

async fn with_parked(
    parked: Arc<OddParked>,
) -> (Router, Arc<ScriptedSource>, Arc<ScriptedExecutor>) {
    let (executor, source) = (ScriptedExecutor::new(), ScriptedSource::new());
    let router = Router::new(executor.clone(), parked, Facts::new()).expect("a router");
    router.set_pool(PoolSettings::new("A", 4)).expect("sound");
    assert!(router.add_queue("q", QUEUE, source.clone()).await.expect("a queue"));
    (router, source, executor)
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_parked_list_does_not_end_all_parking() {
    let parked = Arc::new(OddParked { panics: AtomicU32::new(1), ..OddParked::default() });
    let (router, source, executor) = with_parked(parked.clone()).await;
    executor.otherwise(rejects());
    source.hand_out(vec![delivery(grouped("m1", "A", "m1"))]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    source.hand_out(vec![delivery(grouped("m2", "A", "m2"))]);
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!((parked.kept.lock().len(), router.in_flight()), (2, 0), "kept, in flight");
}

/// docs/rules.md#settle-5. A source that answers fewer than it was asked.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_not_answered_is_told_again() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let (inner, source) = hooked_queue(&rig).await;
    source.answers_short.store(true, Memory::SeqCst);
    inner.hand_out(vec![delivery(message("m1", "A"))]);
    rig.pass(24 * 3600).await;
    assert_eq!(rig.router.in_flight(), 0, "a message is in flight for ever, with its place");
}

/// docs/rules.md#drain-1
#[tokio::test(start_paused = true)]
async fn a_router_that_is_ending_takes_no_queue() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let late = ScriptedSource::new();
    let adding = rig.router.add_queue("late", QUEUE, late.clone());
    let added = while_it_ends(&rig, adding).await.expect("sound");
    for n in 0..5 {
        late.hand_out(vec![delivery(message(&format!("m{n}"), "A"))]);
        rig.pass(60).await;
    }
    assert_eq!(
        late.settlements(),
        Vec::<String>::new(),
        "added: {added}; a router that has ended goes on to receive, and hands back at once"
    );
}

/// docs/rules.md#drain-1
#[tokio::test(start_paused = true)]
async fn a_router_that_is_ending_restarts_no_queue() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let fresh = ScriptedSource::new();
    let restarting = async {
        let stalled = rig.router.source("slow").expect("it is there");
        rig.router.restart_queue("slow", &stalled, fresh.clone()).await
    };
    let restarted = while_it_ends(&rig, restarting).await.expect("sound");
    for n in 0..5 {
        fresh.hand_out(vec![delivery(message(&format!("m{n}"), "A"))]);
    }
    rig.pass(3600).await;
    assert_eq!(
        rig.router.in_flight(),
        0,
        "restarted: {restarted}; a router that has ended takes messages and keeps them"
    );
}

/// docs/rules.md#dedupe-1. A queue that is removed while another of its name is added.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_queue_that_is_removed_while_its_successor_is_added_is_known_to_it() {
    let rig = Rig::new([pool("A", 4, Ordering::None)]).await;
    let (old, inner) = (ScriptedSource::new(), ScriptedSource::new());
    assert!(rig.router.add_queue("h", QUEUE, old.clone()).await.expect("a queue"));
    rig.executor.on("m", [done_after(3_000), done_after(3_000)]);
    old.hand_out(vec![delivery(message("m", "A"))]);
    rig.executor.until_started(1).await;
    let new = Hooked::new(&inner);
    let router = rig.router.clone();
    new.on_keep_order(beside(move || {
        let router = router.clone();
        async move {
            let soon = Instant::now() + Duration::from_millis(500);
            assert!(router.remove_queue("h", soon).await);
        }
    }));
    assert!(rig.router.add_queue("h", QUEUE, new).await.expect("a queue"));
    let mut again = delivery(message("m", "A"));
    again.receipt.tag = 2;
    inner.hand_out(vec![again]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.executor.running(), 1, "m runs twice at once: {:?}", rig.executor.started());
}

/// docs/rules.md#strict-1 and the seam: what sources keep in order follows from the pools that there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_hear_last_what_holds() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let (inner, source) = hooked_queue(&rig).await;
    let router = rig.router.clone();
    // Just then: the caller has read what it is going to tell.
    source.on_keep_order(beside(move || {
        let router = router.clone();
        async move { router.set_pool(pool("S", 1, Ordering::Strict)).expect("sound") }
    }));
    rig.router.set_pool(PoolSettings::new("B", 1)).expect("sound");
    assert_eq!(rig.router.pools().len(), 3);
    assert_eq!(inner.strict_pools(), ["S".into()], "the source does not know that S is strict");
}

/// docs/rules.md#settle-5. A removed queue of which only something malformed is left.
#[tokio::test(start_paused = true)]
async fn a_removed_queue_whose_source_is_dead_goes_though_it_is_owed_strays() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let dead = ScriptedSource::new();
    assert!(rig.router.add_queue("dead", QUEUE, dead.clone()).await.expect("a queue"));
    dead.fail_settles(u32::MAX);
    let receipt = Receipt { handle: Some("r-odd".into()), ..Receipt::default() };
    let message = Err(Malformed { why: "no".to_owned(), raw: "x".to_owned() });
    dead.hand_out(vec![Delivery { broker_id: "b-odd".into(), receipt, attempts: 0, message }]);
    rig.pass(60).await;
    assert!(rig.router.remove_queue("dead", Instant::now() + Duration::from_secs(25)).await);
    for _ in 0..24 {
        rig.pass(3600).await;
        rig.router.clean_up().await;
    }
    assert_eq!((rig.router.clean_up().await, rig.router.in_flight()), (0, 0), "a day later");
}

/// A queue that is given a new source just while it is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_queue_that_is_removed_while_it_is_restarted_ends() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    assert!(rig.router.add_queue("h", QUEUE, ScriptedSource::new()).await.expect("a queue"));
    let inner = ScriptedSource::new();
    let fresh = Hooked::new(&inner);
    let stalled = rig.router.source("h").expect("it is there");
    let router = rig.router.clone();
    fresh.on_keep_order(beside(move || {
        let router = router.clone();
        async move {
            let soon = Instant::now() + Duration::from_secs(1);
            assert!(router.remove_queue("h", soon).await);
        }
    }));
    let restarted = rig.router.restart_queue("h", &stalled, fresh).await.expect("sound");
    tokio::time::sleep(Duration::from_millis(100)).await;
    inner.hand_out(vec![delivery(message("m", "A"))]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let left = rig.router.clean_up().await;
    assert_eq!(
        (left, rig.executor.started()),
        (0, Vec::<String>::new()),
        "restarted: {restarted}; queues: {:?}; a queue that was removed receives for ever",
        rig.router.queues()
    );
}

/// Waits, blocking this thread, until something was started, for two seconds at most.
fn block_until_started(executor: &ScriptedExecutor, id: &str) {
    let began = std::time::Instant::now();
    while !executor.started().iter().any(|one| one == id) && began.elapsed().as_secs() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(20));
}

fn at(started: &[String], id: &str) -> usize {
    started.iter().position(|one| one == id).unwrap_or_else(|| panic!("{id} never: {started:?}"))
}

/// docs/rules.md#strict-6. What waits in the window for a pool that goes is not seen by what comes meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_window_is_not_overtaken_while_its_pool_is_removed() {
    let pools = [pool("S", 1, Ordering::Strict), pool("DEFAULT-POOL", 4, Ordering::Strict)];
    let rig = Rig::new(pools).await;
    let (inner, source) = hooked_queue(&rig).await;
    rig.executor.on("x0", [Step::Hang]);
    inner.hand_out((0..51).map(|n| of(&format!("x{n}"), &format!("x{n}"), 0)).collect());
    inner.hand_out(vec![of("m1", "g", 0)]);
    rig.executor.until_started(1).await;
    while rig.router.in_flight() < 52 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let executor = rig.executor.clone();
    source.on_keep_order(move || {
        inner.hand_out(vec![of("m2", "g", 0)]);
        block_until_started(&executor, "m2#1");
    });
    rig.router.remove_pool("S");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = rig.executor.started();
    assert!(at(&started, "m1#1") < at(&started, "m2#1"), "m2 came before m1: {started:?}");
}

/// Hands out a message of another queue when one was admitted, and waits until that runs.
struct WhenAdmitted {
    id: &'static str,
    then: OnceLock<Hook>,
}

impl Observer for WhenAdmitted {
    fn observe(&self, fact: &Fact<'_>) {
        if let Fact::Admitted { message, .. } = fact
            && &*message.id == self.id
            && let Some(then) = self.then.get()
        {
            then();
        }
    }
}

/// docs/rules.md#strict-6. The same while its own pool comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_window_is_not_overtaken_while_its_pool_comes_back() {
    let observer = Arc::new(WhenAdmitted { id: "y", then: OnceLock::new() });
    let rig =
        Rig::observed([pool("DEFAULT-POOL", 1, Ordering::Strict)], Some(observer.clone())).await;
    let (first, second) = (ScriptedSource::new(), ScriptedSource::new());
    assert!(rig.router.add_queue("1st", QUEUE, first.clone()).await.expect("a queue"));
    assert!(rig.router.add_queue("2nd", QUEUE, second.clone()).await.expect("a queue"));
    rig.executor.on("x0", [Step::Hang]);
    rig.hand_out((0..51).map(|n| grouped(&format!("x{n}"), "T", &format!("x{n}"))));
    rig.executor.until_started(1).await;
    while rig.router.in_flight() < 51 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    first.hand_out(vec![of("y", "y", 0)]);
    second.hand_out(vec![of("m1", "g", 0)]);
    while rig.router.in_flight() < 53 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let executor = rig.executor.clone();
    let then: Hook = Box::new(move || {
        second.hand_out(vec![of("m2", "g", 0)]);
        block_until_started(&executor, "m2#1");
    });
    assert!(observer.then.set(then).is_ok());
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = rig.executor.started();
    assert!(at(&started, "m1#1") < at(&started, "m2#1"), "m2 came before m1: {started:?}");
}

/// docs/rules.md#settle-4: "One that fails is told again by itself and holds up no other."
#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_kept_holds_up_no_other() {
    let parked = Arc::new(OddParked { poison: Some("p"), ..OddParked::default() });
    let (router, source, executor) = with_parked(parked.clone()).await;
    executor.otherwise(rejects());
    source.hand_out(["m1", "p", "m2"].iter().map(|id| delivery(grouped(id, "A", id))).collect());
    tokio::time::sleep(Duration::from_secs(10)).await;
    source.hand_out(
        (3..9).map(|n| delivery(grouped(&format!("m{n}"), "A", &format!("m{n}")))).collect(),
    );
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    let kept = parked.kept.lock().clone();
    assert_eq!(
        kept.len(),
        8,
        "after a day these were kept: {kept:?}; in flight {}",
        router.in_flight()
    );
}

/// docs/rules.md#strict-2, docs/rules.md#settle-3: what a panic hands back is not overtaken.
#[tokio::test(start_paused = true)]
async fn a_panic_where_a_message_would_start_does_not_let_the_next_of_its_group_overtake() {
    let parked =
        Arc::new(OddParked { panics_when_asked: AtomicU32::new(1), ..OddParked::default() });
    let (router, source, executor) = with_parked(parked).await;
    router.set_pool(pool("S", 2, Ordering::Strict)).expect("sound");
    source.hand_out(vec![of("m1", "g", 0), of("m2", "g", 0)]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(
        !executor.started().contains(&"m2#1".to_owned()),
        "m2 ran before m1: {:?}, {:?}",
        executor.started(),
        source.settlements()
    );
}
