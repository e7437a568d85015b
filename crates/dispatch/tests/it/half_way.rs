//! Changes of queues that are given up half-way, or meet each other: each is done as a whole, whoever stops waiting for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::time::Duration;

use sluicegate_dispatch::*;
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, pool};
use sluicegate_testkit::scripted::*;
use tokio::time::{Instant, timeout};

/// A source that takes its time to stop.
struct Slow {
    inner: Arc<ScriptedSource>,
    stop_takes: Duration,
    is_stopped: AtomicBool,
}

impl Slow {
    fn new(inner: &Arc<ScriptedSource>) -> Arc<Self> {
        let (inner, stop_takes) = (Arc::clone(inner), Duration::from_secs(3));
        Arc::new(Self { inner, stop_takes, is_stopped: AtomicBool::new(false) })
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Memory::SeqCst)
    }
}

impl Source for Slow {
    fn profile(&self) -> Profile {
        self.inner.profile()
    }
    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        self.inner.receive(demand)
    }
    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        self.inner.settle(settle)
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
            self.is_stopped.store(true, Memory::SeqCst);
        })
    }
}

const A_SECOND: Duration = Duration::from_secs(1);

/// docs/rules.md#settle-3
#[tokio::test(start_paused = true)]
async fn a_queue_whose_removal_nobody_waits_for_is_removed() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let inner = ScriptedSource::new();
    let source = Slow::new(&inner);
    assert!(rig.router.add_queue("h", QUEUE, source.clone()).await.expect("a queue"));
    rig.executor.otherwise(Step::Hang);
    for batch in 0..8 {
        let id = |n| format!("m{batch}-{n}");
        inner.hand_out((0..10).map(|n| delivery(grouped(&id(n), "A", &id(n)))).collect());
    }
    rig.pass(1).await;
    assert_eq!(rig.router.in_flight(), 80);
    let by = Instant::now() + Duration::from_secs(25);
    assert!(timeout(A_SECOND, rig.router.remove_queue("h", by)).await.is_err(), "given up");
    rig.pass(10).await;
    assert!(source.is_stopped(), "what it has read ahead of its broker stays there");
    // One runs, fifty wait for it, and the rest goes back.
    assert_eq!((inner.settlements().len(), rig.router.in_flight()), (29, 51));
    assert_eq!(rig.router.queues(), ["q".into()]);
    assert!(rig.router.add_queue("h", QUEUE, ScriptedSource::new()).await.expect("a queue"));
    assert!(rig.router.remove_queue("h", Instant::now() + A_SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_replaced_is_stopped_though_nobody_waits_for_it() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let (old, new) = (Slow::new(&ScriptedSource::new()), ScriptedSource::new());
    assert!(rig.router.add_queue("h", QUEUE, old.clone()).await.expect("a queue"));
    let stalled = rig.router.source("h").expect("it is there");
    let restarting = rig.router.restart_queue("h", &stalled, new.clone());
    timeout(A_SECOND, restarting).await.ok();
    rig.pass(10).await;
    assert!(old.is_stopped());
    new.hand_out(vec![delivery(message("m", "A"))]);
    new.until_settled(1).await;
}

/// A queue is given a new address while a new source is made for the old one, which has stalled.
#[tokio::test(start_paused = true)]
async fn a_source_that_comes_too_late_takes_nobody_elses_place() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let stalled = rig.router.source("q").expect("it is there");
    let (fresh, elsewhere) = (ScriptedSource::new(), ScriptedSource::new());
    assert!(rig.router.remove_queue("q", Instant::now() + A_SECOND).await);
    assert!(rig.router.add_queue("q", QUEUE, elsewhere.clone()).await.expect("a queue"));
    let restarted = rig.router.restart_queue("q", &stalled, fresh.clone()).await;
    fresh.hand_out(vec![delivery(message("old", "A"))]);
    elsewhere.hand_out(vec![delivery(message("new", "A"))]);
    rig.pass(60).await;
    assert_eq!(restarted, Ok(false));
    assert_eq!(rig.executor.started(), ["new#1"], "the old address is still read");
    assert_eq!((elsewhere.settlements().len(), fresh.settlements().len()), (1, 0));
}

/// docs/rules.md#strict-5. One of two receivers fails, and pauses alone.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_holds_up_no_other() {
    let rig = Rig::new([pool("S", 1, Ordering::Strict)]).await;
    let source = ScriptedSource::new();
    source.fail_receives(1);
    source.hand_out(vec![delivery(grouped("m", "S", "g"))]);
    let queue = QueueSettings::new(2, 10);
    assert!(rig.router.add_queue("two", queue, source.clone()).await.expect("a queue"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(rig.executor.started(), ["m#1"], "the other waits for its pause");
}

/// docs/rules.md#window-1. The source before had no window.
#[tokio::test(start_paused = true)]
async fn what_comes_from_a_new_source_is_extended() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let old = ScriptedSource::with(Profile::new(Duration::MAX, 10));
    assert!(rig.router.add_queue("h", QUEUE, old.clone()).await.expect("a queue"));
    rig.pass(1).await;
    let stalled = rig.router.source("h").expect("it is there");
    let new = ScriptedSource::new();
    assert_eq!(rig.router.restart_queue("h", &stalled, new.clone()).await, Ok(true));
    rig.executor.otherwise(Step::Hang);
    new.hand_out(vec![delivery(message("m", "A"))]);
    rig.pass(25).await;
    assert_eq!(new.extensions(), [("r-m".to_owned(), 2)]);
}
