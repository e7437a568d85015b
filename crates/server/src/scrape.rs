//! What a scrape asks a daemon: how deep its queues are, and the whole page. It always answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_dispatch::{BreakerState, Depth};
use sluicegate_executors::BreakerReport;
use tokio::time::timeout;

use crate::daemon::Daemon;
use crate::metrics::{AgentSnapshot, Breakers, Snapshot};

/// How long a source may take to say how much it holds.
const DEPTH_TIME: Duration = Duration::from_secs(2);

impl Daemon {
    /// How many messages each queue holds. All are asked at once; those that cannot say, or do not
    /// within two seconds, are left out.
    pub async fn depths(&self) -> BTreeMap<Arc<str>, Depth> {
        let names = self.inner.router.queues();
        let asked = names.into_iter().map(async |name| Some((self.depth(&name).await?, name)));
        let depths = join_all(asked).await.into_iter().flatten();
        depths.map(|(depth, name)| (name, depth)).collect()
    }

    /// How many messages a queue holds, if it says so within two seconds.
    pub(crate) async fn depth(&self, queue: &str) -> Option<Depth> {
        let source = self.inner.router.source(queue)?;
        timeout(DEPTH_TIME, source.depth()).await.ok()?.ok()
    }

    /// The page of metrics.
    pub async fn metrics(&self) -> String {
        let mut snapshot = Snapshot::of(&self.inner.router);
        snapshot.depths = self.depths().await;
        snapshot.parked = self.inner.store.parked_count();
        snapshot.breakers = breakers(&self.breakers().list());
        snapshot.warnings = self.inner.record.warnings.open_by_code();
        snapshot.leader = true;
        snapshot.events = self.inner.events.stats();
        snapshot.agents = self.agents().ok().map(|agents| AgentSnapshot::of(&agents));
        self.inner.record.metrics.render(snapshot)
    }
}

fn breakers(reports: &[BreakerReport]) -> Breakers {
    let mut counts = Breakers::default();
    for report in reports {
        match report.state {
            BreakerState::Closed => counts.closed += 1,
            BreakerState::Open => counts.open += 1,
            BreakerState::HalfOpen => counts.half_open += 1,
        }
    }
    counts
}
