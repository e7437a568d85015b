//! What rests in the router is noted by its source, whatever happens to deliveries and sources meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering as Memory};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::*;
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, fails_for, pool};
use sluicegate_testkit::scripted::{ScriptedSource, delivery, grouped};

/// A scripted source that keeps what rests, by receipts that hold until the message is delivered anew.
struct Noting {
    inner: Arc<ScriptedSource>,
    /// The tag that is valid.
    valid: AtomicU32,
    /// Whether the next call delivers the message anew while it is under way.
    redelivers: AtomicBool,
    failing: AtomicU32,
    asked: AtomicU32,
    noted: Mutex<Vec<(u64, u32, Duration)>>,
}

impl Noting {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: ScriptedSource::new(),
            valid: AtomicU32::new(1),
            redelivers: AtomicBool::new(false),
            failing: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            noted: Mutex::default(),
        })
    }

    fn deliver(&self, message: Message) {
        let mut delivery = delivery(message);
        delivery.receipt.tag = self.valid.load(Memory::SeqCst).into();
        self.inner.hand_out(vec![delivery]);
    }

    async fn note(&self, rests: Vec<Rest>) -> Result<Vec<Settled>, SourceError> {
        self.asked.fetch_add(1, Memory::SeqCst);
        if self.redelivers.swap(false, Memory::SeqCst) {
            self.valid.fetch_add(1, Memory::SeqCst);
            self.deliver(grouped("m1", "S", "g"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if self.failing.fetch_update(Memory::SeqCst, Memory::SeqCst, |n| n.checked_sub(1)).is_ok() {
            return Err(SourceError::new("it is down"));
        }
        let valid = u64::from(self.valid.load(Memory::SeqCst));
        let answer = |rest: Rest| {
            if rest.receipt.tag != valid {
                return Settled::Stale;
            }
            self.noted.lock().push((rest.receipt.tag, rest.attempts, rest.after));
            Settled::Done
        };
        Ok(rests.into_iter().map(answer).collect())
    }
}

impl Source for Noting {
    fn profile(&self) -> Profile {
        Profile { keeps_order: KeepsOrder::OneByOne, keeps_rests: true, ..self.inner.profile() }
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
    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.note(rests))
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

async fn stage() -> (Rig, Arc<Noting>) {
    let rig = Rig::new([pool("S", 4, Ordering::Strict)]).await;
    rig.executor.on("m1", [fails_for(Some(600))]);
    let source = Noting::new();
    assert!(rig.router.add_queue("noting", QUEUE, source.clone()).await.expect("a queue"));
    (rig, source)
}

/// docs/rules.md#strict-7, docs/rules.md#dedupe-1: delivered anew while it is noted, it is noted by the receipt that is valid.
#[tokio::test(start_paused = true)]
async fn what_is_delivered_anew_meanwhile_is_noted_anew() {
    let (rig, source) = stage().await;
    source.redelivers.store(true, Memory::SeqCst);
    source.deliver(grouped("m1", "S", "g"));
    rig.pass(10).await;
    let noted = source.noted.lock().clone();
    let [(2, 1, after)] = noted[..] else { panic!("noted: {noted:?}") };
    assert!(after > Duration::from_secs(580), "{after:?}");
}

/// A source that is down is asked again, less and less often, and hears the rest of the delay.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_noted_is_noted_later() {
    let (rig, source) = stage().await;
    source.failing.store(20, Memory::SeqCst);
    source.deliver(grouped("m1", "S", "g"));
    rig.pass(30).await;
    let asked = source.asked.load(Memory::SeqCst);
    assert!((5..15).contains(&asked), "{asked} times");
    rig.pass(100).await;
    let noted = source.noted.lock().clone();
    let [(1, 1, after)] = noted[..] else { panic!("noted: {noted:?}") };
    assert!(after < Duration::from_secs(550), "{after:?}");
}

/// The same where it is replaced meanwhile: the new one hears of it.
#[tokio::test(start_paused = true)]
async fn what_a_replaced_source_has_not_noted_its_successor_does() {
    let (rig, source) = stage().await;
    source.failing.store(1_000, Memory::SeqCst);
    source.deliver(grouped("m1", "S", "g"));
    rig.pass(10).await;
    let new = Noting::new();
    let stalled = rig.router.source("noting").expect("it is there");
    assert!(rig.router.restart_queue("noting", &stalled, new.clone()).await.expect("a queue"));
    rig.pass(10).await;
    assert_eq!(new.noted.lock().len(), 1);
}
