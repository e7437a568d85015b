//! A router between scripted ends.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    Delivery, Message, Ordering, Outcome, PoolSettings, QueueSettings, Rejection, Router, Severity,
};
use sluicegate_testkit::scripted::{
    Facts, MemoryParked, ScriptedExecutor, ScriptedSource, Step, delivery,
};
use tokio::time::Instant;

pub(crate) struct Rig {
    pub(crate) router: Router,
    pub(crate) source: Arc<ScriptedSource>,
    pub(crate) executor: Arc<ScriptedExecutor>,
    pub(crate) parked: Arc<MemoryParked>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) began: Instant,
}

pub(crate) const QUEUE: QueueSettings = QueueSettings { connections: 1, max_messages: 10 };

impl Rig {
    /// A router with these pools and one queue `q`.
    pub(crate) async fn new(pools: impl IntoIterator<Item = PoolSettings>) -> Self {
        let (executor, parked) = (ScriptedExecutor::new(), MemoryParked::new());
        let (source, facts) = (ScriptedSource::new(), Facts::new());
        let router =
            Router::new(executor.clone(), parked.clone(), facts.clone()).expect("a router");
        for pool in pools {
            router.set_pool(pool).expect("sound settings");
        }
        assert!(router.add_queue("q", QUEUE, source.clone()).await.expect("a queue"));
        Self { router, source, executor, parked, facts, began: Instant::now() }
    }

    pub(crate) fn hand_out(&self, messages: impl IntoIterator<Item = Message>) {
        self.deliver(messages.into_iter().map(delivery));
    }

    pub(crate) fn deliver(&self, deliveries: impl IntoIterator<Item = Delivery>) {
        self.source.hand_out(deliveries.into_iter().collect());
    }

    /// Lets everything happen that can happen now.
    pub(crate) async fn settle_down(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.settle_down().await;
    }

    /// What the source was told, sorted: settlements of different groups have no order.
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut all = self.source.settlements();
        all.sort();
        all
    }
}

pub(crate) fn pool(code: &str, concurrency: u32, ordering: Ordering) -> PoolSettings {
    PoolSettings { ordering, ..PoolSettings::new(code, concurrency) }
}

pub(crate) fn done_after(ms: u64) -> Step {
    Step::Answer(Duration::from_millis(ms), Outcome::Done)
}

pub(crate) fn fails() -> Step {
    fails_for(None)
}

pub(crate) fn fails_for(after: Option<u64>) -> Step {
    let after = after.map(Duration::from_secs);
    let why = "status 503".to_owned();
    Step::Answer(Duration::ZERO, Outcome::RetryLater { after, why, status: Some(503) })
}

pub(crate) fn answers(outcome: Outcome) -> Step {
    Step::Answer(Duration::ZERO, outcome)
}

pub(crate) fn rejects() -> Step {
    let why = "status 400".to_owned();
    answers(Outcome::Rejected(Rejection { status: Some(400), why, severity: Severity::Error }))
}
