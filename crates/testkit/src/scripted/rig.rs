//! A router between scripted ends.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    Delivery, Message, Observer, Ordering, Outcome, PoolSettings, QueueSettings, Rejection, Router,
    Severity,
};
use tokio::time::Instant;

use super::{Facts, MemoryParked, ScriptedExecutor, ScriptedSource, Step, delivery};

/// A router with one queue `q` between scripted ends.
#[derive(Debug)]
pub struct Rig {
    /// The router.
    pub router: Router,
    /// The source of its queue.
    pub source: Arc<ScriptedSource>,
    /// Its executor.
    pub executor: Arc<ScriptedExecutor>,
    /// Its parked list.
    pub parked: Arc<MemoryParked>,
    /// What was observed.
    pub facts: Arc<Facts>,
    /// When it began.
    pub began: Instant,
}

/// One receiver that takes ten at a time.
pub const QUEUE: QueueSettings = QueueSettings::new(1, 10);

impl Rig {
    /// A router with these pools.
    ///
    /// # Panics
    /// When their settings cannot work.
    pub async fn new(pools: impl IntoIterator<Item = PoolSettings>) -> Self {
        Self::observed(pools, None).await
    }

    /// A router with these pools that reads nothing ahead, as the paper has it.
    ///
    /// # Panics
    /// When their settings cannot work.
    pub async fn without_window(pools: impl IntoIterator<Item = PoolSettings>) -> Self {
        Self::with(pools, None, QueueSettings { window: 0, ..QUEUE }).await
    }

    /// A router with these pools, observed by somebody else instead.
    ///
    /// # Panics
    /// When their settings cannot work.
    pub async fn observed(
        pools: impl IntoIterator<Item = PoolSettings>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        Self::with(pools, observer, QUEUE).await
    }

    async fn with(
        pools: impl IntoIterator<Item = PoolSettings>,
        observer: Option<Arc<dyn Observer>>,
        queue: QueueSettings,
    ) -> Self {
        let (executor, parked) = (ScriptedExecutor::new(), MemoryParked::new());
        let (source, facts) = (ScriptedSource::new(), Facts::new());
        let observer = observer.unwrap_or_else(|| facts.clone());
        let router = Router::new(executor.clone(), parked.clone(), observer).expect("a router");
        for pool in pools {
            router.set_pool(pool).expect("sound settings");
        }
        assert!(router.add_queue("q", queue, source.clone()).await.expect("a queue"));
        Self { router, source, executor, parked, facts, began: Instant::now() }
    }

    /// Hands out messages as one batch.
    pub fn hand_out(&self, messages: impl IntoIterator<Item = Message>) {
        self.deliver(messages.into_iter().map(delivery));
    }

    /// Hands out deliveries as one batch.
    pub fn deliver(&self, deliveries: impl IntoIterator<Item = Delivery>) {
        self.source.hand_out(deliveries.into_iter().collect());
    }

    /// Lets everything happen that can happen now.
    pub async fn settle_down(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Lets time pass.
    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.settle_down().await;
    }

    /// What the source was told, sorted: settlements of different groups have no order.
    #[must_use]
    pub fn sorted(&self) -> Vec<String> {
        let mut all = self.source.settlements();
        all.sort();
        all
    }
}

/// A pool with an order.
#[must_use]
pub fn pool(code: &str, concurrency: u32, ordering: Ordering) -> PoolSettings {
    PoolSettings { ordering, ..PoolSettings::new(code, concurrency) }
}

/// Succeeds after so many milliseconds.
#[must_use]
pub fn done_after(ms: u64) -> Step {
    Step::Answer(Duration::from_millis(ms), Outcome::Done)
}

/// Fails at once, without a wish.
#[must_use]
pub fn fails() -> Step {
    fails_for(None)
}

/// Fails at once, and wishes to be asked again after so many seconds.
#[must_use]
pub fn fails_for(after: Option<u64>) -> Step {
    let after = after.map(Duration::from_secs);
    let why = "status 503".to_owned();
    answers(Outcome::RetryLater { after, why, status: Some(503), body: None })
}

/// Answers at once.
#[must_use]
pub fn answers(outcome: Outcome) -> Step {
    Step::Answer(Duration::ZERO, outcome)
}

/// Rejects at once.
#[must_use]
pub fn rejects() -> Step {
    let why = "status 400".to_owned();
    answers(Outcome::Rejected(Rejection {
        status: Some(400),
        why,
        severity: Severity::Error,
        body: None,
    }))
}
