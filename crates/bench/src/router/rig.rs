//! A router between the ends of a benchmark, and the count of what came through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};
use std::time::{Duration, Instant};

use sluicegate_dispatch::{
    BoxFuture, Executor, Fact, Message, Observer, Outcome, Parked, ParkedStore, PoolSettings,
    Publication, QueueSettings, Reason, Router, Source, SourceError,
};
use sluicegate_executors::InProcess;
use sluicegate_executors::http::{HttpExecutor, HttpSettings};
use sluicegate_sources::sqlite::{SqliteSource, Store};
use sluicegate_sources::wire;
use tokio::sync::Notify;

use super::sample;
use super::stock::Stock;

/// What a queue is set to unless told.
pub(crate) const QUEUE: QueueSettings = QueueSettings::new(1, 10);
/// How long what was received stays hidden.
pub(crate) const VISIBILITY: Duration = Duration::from_secs(120);

/// How long a turn may take at most.
const LONGEST: Duration = Duration::from_secs(300);

/// A router with its executor.
pub(crate) struct Rig {
    pub(crate) router: Router,
    pub(crate) tally: Arc<Tally>,
}

/// Counts what is settled, and tells when it is enough.
#[derive(Default)]
pub(crate) struct Tally {
    admitted: AtomicU64,
    settled: AtomicU64,
    wanted: AtomicU64,
    faults: AtomicU64,
    reached: Notify,
}

/// Nothing is parked here.
struct NothingParked;

impl Rig {
    /// With an executor that does nothing.
    pub(crate) fn in_process() -> Self {
        let nothing = InProcess::new(|_message, _cx| Box::pin(async { Outcome::Done }));
        Self::with(Arc::new(nothing), Arc::new(Tally::default()))
    }

    /// Over HTTP, to targets on loopback.
    pub(crate) fn over_http() -> Self {
        let tally = Arc::new(Tally::default());
        let loopback = "127.0.0.0/8".parse().expect("it is a range");
        let settings = HttpSettings { allow_targets: vec![loopback], ..HttpSettings::default() };
        let observer = Arc::clone(&tally) as Arc<dyn Observer>;
        let executor = HttpExecutor::new(settings, observer).expect("the settings are sound");
        Self::with(Arc::new(executor), tally)
    }

    pub(crate) fn with(executor: Arc<dyn Executor>, tally: Arc<Tally>) -> Self {
        let observer = Arc::clone(&tally) as Arc<dyn Observer>;
        let router = Router::new(executor, Arc::new(NothingParked), observer);
        Self { router: router.expect("the limits are sound"), tally }
    }

    pub(crate) fn pool(self, settings: PoolSettings) -> Self {
        self.router.set_pool(settings).expect("the settings are sound");
        self
    }

    pub(crate) async fn queue(&self, name: &str, source: Arc<dyn Source>) {
        self.queue_with(name, QUEUE, source).await;
    }

    pub(crate) async fn queue_with(
        &self,
        name: &str,
        settings: QueueSettings,
        source: Arc<dyn Source>,
    ) {
        let added = self.router.add_queue(name, settings, source).await;
        assert!(added.expect("the settings are sound"), "the name is free");
    }

    /// Sends messages from memory, and waits until all are settled.
    pub(crate) async fn memory(&self, stock: &Stock, messages: Vec<Message>) -> Duration {
        let reached = self.tally.expect(messages.len() as u64);
        let begun = Instant::now();
        stock.put(messages);
        reached.await;
        begun.elapsed()
    }

    /// Sends what a source hands out until so many are settled; then ends what was begun.
    pub(crate) async fn drain_queue(
        &self,
        name: &str,
        source: Arc<dyn Source>,
        count: u64,
    ) -> Duration {
        let reached = self.tally.expect(count);
        let begun = Instant::now();
        self.queue(name, source).await;
        reached.await;
        let took = begun.elapsed();
        assert!(self.router.remove_queue(name, soon()).await, "the queue is there");
        while self.router.clean_up().await > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        took
    }

    pub(crate) async fn stop(&self) {
        self.router.shutdown(soon(), soon()).await;
    }
}

fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(5)
}

/// A message as it is published.
pub(crate) fn publication(message: &Message) -> Publication {
    let body = wire::render(message, Duration::ZERO).into();
    Publication { message: message.clone(), body, delay: Duration::ZERO }
}

impl Tally {
    /// Waits for so many settlements from now on.
    pub(crate) fn expect(&self, count: u64) -> impl Future<Output = ()> + use<'_> {
        let before = self.settled.load(Memory::SeqCst);
        self.wanted.store(before + count, Memory::SeqCst);
        async move {
            let reached = tokio::time::timeout(LONGEST, self.reached.notified()).await;
            assert!(reached.is_ok(), "{} of {count} were settled", self.settled() - before);
        }
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Memory::SeqCst)
    }

    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Memory::SeqCst)
    }
}

impl Observer for Tally {
    fn observe(&self, fact: &Fact<'_>) {
        match fact {
            Fact::Admitted { .. } => {
                self.admitted.fetch_add(1, Memory::SeqCst);
            }
            Fact::Settled { again: None, stale: false, .. } => {
                let settled = self.settled.fetch_add(1, Memory::SeqCst) + 1;
                if settled == self.wanted.load(Memory::SeqCst) {
                    self.reached.notify_one();
                }
            }
            // What a drain hands back is no fault.
            Fact::Settled { again: Some(Reason::Draining), .. } => {}
            Fact::Settled { .. } | Fact::Parked { .. } | Fact::Panicked { .. } => {
                assert!(self.faults.fetch_add(1, Memory::SeqCst) < 10, "too many faults");
                eprintln!("not as it should be: {fact:?}");
            }
            _ => {}
        }
    }
}

impl ParkedStore for NothingParked {
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        drop(parked);
        Box::pin(async { Ok(()) })
    }

    fn holds_key(&self, _queue: &str, _pool: &str, _group: &str) -> bool {
        false
    }
}

/// A file in a temporary folder that goes with it.
pub(crate) struct File {
    pub(crate) store: Store,
    _folder: tempfile::TempDir,
}

impl File {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let store = Store::open_serving(folder.path().join("state.db")).await;
        Self { store: store.expect("a new file can be served"), _folder: folder }
    }

    pub(crate) async fn publish(&self, source: &SqliteSource, messages: &[Message]) {
        for lot in messages.chunks(1000) {
            let lot = lot.iter().map(publication).collect();
            source.publish(lot).await.expect("the file takes messages");
        }
    }
}

/// The messages of a turn: of their own numbers, so that none is a duplicate.
pub(crate) fn batch(first: u64, count: u64, groups: u64, url: &str) -> Vec<Message> {
    (first..first + count).map(|number| sample::message(number, number % groups, url)).collect()
}
