//! Numbers for Prometheus: counted where facts happen, read off the router at a scrape.

mod agents;
mod events;
mod page;
mod series;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use sluicegate_dispatch::{Depth, Fact, PoolView, QueueView, Router, Severity};
use sluicegate_event_store::StoreStats;

use crate::warnings::Code;

pub use agents::AgentSnapshot;

use agents::AgentSeries;
use page::Page;
use series::{Book, PoolSeries, QueueSeries};

/// What begins every name.
const PREFIX: &str = "sluicegate";

/// The media type of a [page](Metrics::render).
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All that is counted.
#[derive(Debug)]
pub struct Metrics {
    series: Arc<Series>,
    others: Mutex<Registry>,
}

/// What facts are counted in.
#[derive(Debug, Default)]
struct Series {
    pools: Book<PoolSeries>,
    queues: Book<QueueSeries>,
    agents: AgentSeries,
}

/// What is there at one moment, and is not counted by facts.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The router's pools.
    pub pools: Vec<PoolView>,
    /// The router's queues.
    pub queues: Vec<QueueView>,
    /// How much the sources hold, of those queues whose sources could say.
    pub depths: BTreeMap<Arc<str>, Depth>,
    /// How many messages are parked.
    pub parked: u64,
    /// How many breakers there are in each state.
    pub breakers: Breakers,
    /// How many messages of each queue are done and not settled.
    pub unsettled: BTreeMap<Arc<str>, usize>,
    /// How many warnings are open, of those that are kept.
    pub warnings: BTreeMap<(Severity, Code), u64>,
    /// Whether this instance does the work.
    pub leader: bool,
    /// The event store, if it is open.
    pub events: Option<StoreStats>,
    /// Agents, if they run.
    pub agents: Option<AgentSnapshot>,
}

/// How many breakers there are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakers {
    /// Those that let calls through.
    pub closed: u64,
    /// Those that try.
    pub half_open: u64,
    /// Those that let nothing through.
    pub open: u64,
}

impl Snapshot {
    /// A router as it is now. The rest is the caller's.
    #[must_use]
    pub fn of(router: &Router) -> Self {
        Self {
            pools: router.pool_views(),
            queues: router.queue_views(),
            unsettled: router.unsettled(),
            ..Self::default()
        }
    }
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new() -> Self {
        Self { series: Arc::default(), others: Mutex::new(Registry::with_prefix(PREFIX)) }
    }

    /// Counts a fact.
    pub fn count(&self, fact: &Fact<'_>) {
        let Series { pools, queues, .. } = &*self.series;
        match *fact {
            Fact::Called { pool, status, took, .. } => pools.count(pool, |pool| {
                pool.statuses.count(status);
                pool.delivery.record(took);
            }),
            Fact::Finished { pool, outcome, .. } => pools.count(pool, |pool| pool.ended(outcome)),
            Fact::Settled { queue, again, stale, .. } => queues.count(queue, |queue| {
                let count = match (stale, again) {
                    (true, _) => &queue.stale,
                    (false, None) => &queue.acked,
                    (false, Some(_)) => &queue.retried,
                };
                count.add(1);
            }),
            Fact::SourceFailed { queue, doing: "settle" | "park", .. } => {
                queues.count(queue, |queue| queue.settle_failures.add(1));
            }
            Fact::Received { queue, count } => {
                queues.count(queue, |queue| queue.received.add(count as u64));
            }
            Fact::Panicked { pool, .. } => pools.count(pool, |pool| pool.panics.add(1)),
            Fact::Paused { pool, .. } => pools.count(pool, |pool| pool.rate_limited.add(1)),
            _ => {}
        }
    }

    /// What is counted of agents.
    pub(crate) fn agents(&self) -> &AgentSeries {
        &self.series.agents
    }

    /// Adds what other parts count. Their names get the prefix, too.
    pub fn register(&self, collector: impl Collector) {
        self.others.lock().register_collector(Box::new(collector));
    }

    /// Everything as OpenMetrics text. Pools and queues that a snapshot does not have are not shown,
    /// and soon forgotten.
    #[must_use]
    pub fn render(&self, snapshot: Snapshot) -> String {
        let mut own = Registry::with_prefix(PREFIX);
        let page = Page::new(Arc::clone(&self.series), snapshot);
        page.forget_the_gone();
        own.register_collector(Box::new(page));
        let mut text = String::new();
        let written = encode_registry(&mut text, &own)
            .and_then(|()| encode_registry(&mut text, &self.others.lock()))
            .and_then(|()| encode_eof(&mut text));
        if written.is_err() {
            tracing::error!(target: "sluicegate", "a metric could not be written");
        }
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
