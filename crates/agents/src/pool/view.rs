//! Looking in: requests, why one waits, workers, tenants, metrics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_tasks::{ItemId, TenantView, Why};
use tokio::time::Instant;

use super::{Agents, Shared, TenantTally};
use crate::event::ms;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::worker::{WorkerState, WorkerView};
use crate::{
    Follow, JournalError, Outcome, Priority, Request, RequestError, SessionId, Stage, Tenant,
};

/// A request that was asked for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Found {
    /// The request.
    pub request_id: Arc<str>,
    /// Its session.
    pub session_id: SessionId,
    /// Whose it is.
    pub tenant: Tenant,
    /// How urgent it is.
    pub priority: Priority,
    /// How it stands.
    pub stage: Stage,
}

impl Found {
    fn of(live: &Live) -> Self {
        let Request { id, session, ask } = &live.request;
        Self {
            request_id: Arc::clone(id),
            session_id: session.clone(),
            tenant: ask.tenant.clone(),
            priority: ask.priority,
            stage: live.stage(),
        }
    }

    /// When it was let in, in milliseconds since 1970: its id says so.
    #[must_use]
    pub fn admitted_at(&self) -> u64 {
        let id = uuid::Uuid::parse_str(&self.request_id).ok();
        let time = id.and_then(|id| id.get_timestamp()).map(|time| time.to_unix());
        time.map_or(0, |(secs, nanos)| secs * 1000 + u64::from(nanos / 1_000_000))
    }
}

/// A request that waits or runs, without what it asks for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pending {
    /// How it stands.
    pub found: Found,
    /// How long ago it was let in.
    pub age: Duration,
    /// How long its turn has lasted, if it runs.
    pub running_for: Option<Duration>,
    /// Which worker has it: none while its turn waits for one.
    pub worker: Option<Arc<str>>,
}

/// Why a request is not running yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhyNot {
    /// In one word: `session_busy`, `no_worker`, `tenant_limit`, `rate_limited`, `memory`, `draining` or `ready`.
    pub reason: &'static str,
    /// In an operator's words.
    pub detail: String,
    /// Until when, where that is known.
    pub until: Option<Instant>,
}

/// A tenant: what it has here, what became of its requests, and how long the one has waited that waits for longest.
pub type TenantLine = (TenantView<Arc<str>>, TenantTally, Duration);

impl Pending {
    /// `None` of what is over.
    fn of(live: &Live) -> Option<Self> {
        let found = Found::of(live);
        // What is tried again has run, and waits.
        let runs = match &found.stage {
            Stage::Queued => false,
            Stage::Running => true,
            Stage::Ended(_) => return None,
        };
        let running_for = live.started().filter(|_| runs).map(|started| started.elapsed());
        let worker = live.runs().filter(|_| runs).map(|(worker, _)| worker);
        Some(Self { found, age: live.admitted.elapsed(), running_for, worker })
    }
}

impl Agents {
    /// Waits for what comes of a request; `None` if nobody knows it. Cancel safe: the request goes on.
    ///
    /// # Errors
    /// What is known of old requests cannot be read.
    pub async fn wait(&self, id: &str) -> Result<Option<Arc<Outcome>>, JournalError> {
        let live = self.shared.table.lock().live.get(id).cloned();
        if let Some(live) = live {
            return Ok(Some(live.outcome().await));
        }
        Ok(self.find(id).await?.and_then(|found| match found.stage {
            Stage::Ended(outcome) => Some(outcome),
            _ => None,
        }))
    }

    /// How a request stands; `None` if nobody knows it.
    ///
    /// # Errors
    /// What is known of old requests cannot be read.
    pub async fn find(&self, id: &str) -> Result<Option<Found>, JournalError> {
        if let Some(found) = self.shared.find_here(id) {
            return Ok(Some(found));
        }
        let recorded = self.shared.journal.request(id).await?;
        // What is here by now was not over when the journal was read.
        if let Some(found) = self.shared.find_here(id) {
            return Ok(Some(found));
        }
        Ok(recorded.map(|recorded| {
            let interrupted = || Arc::new(Err(RequestError::Interrupted));
            Found {
                request_id: id.into(),
                session_id: recorded.admitted.session_id,
                tenant: recorded.admitted.tenant,
                priority: recorded.admitted.priority,
                stage: Stage::Ended(recorded.outcome.unwrap_or_else(interrupted)),
            }
        }))
    }

    /// The longest that a request may run which runs now: each with the limit that it began with.
    #[must_use]
    pub fn longest_limit(&self) -> Option<Duration> {
        let table = self.shared.table.lock();
        table.live.values().filter_map(|live| live.runs()).map(|(_, limit)| limit).max()
    }

    /// Follows a request to its end; `None` if nobody knows it.
    ///
    /// # Errors
    /// What is known of old requests cannot be read.
    pub async fn follow(&self, id: &str) -> Result<Option<Follow>, JournalError> {
        let live = self.shared.table.lock().live.get(id).cloned();
        if let Some(live) = live {
            return Ok(Some(live.follow()));
        }
        Ok(self.find(id).await?.and_then(|found| match found.stage {
            Stage::Ended(outcome) => Some(Follow::ended(outcome)),
            _ => None,
        }))
    }

    /// All requests that wait or run, in no order. They are as many as may wait and run.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        let live: Vec<Arc<Live>> = self.shared.table.lock().live.values().cloned().collect();
        live.iter().filter_map(|live| Pending::of(live)).collect()
    }

    /// Why a request is not running yet; `None` if it does not wait.
    #[must_use]
    pub fn why(&self, id: &str) -> Option<WhyNot> {
        self.shared.why(id)
    }

    /// All workers, oldest first.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerView> {
        self.shared.workers()
    }

    /// The tenants that have requests here, or had some lately: counts, what became of their requests, and how long
    /// the one has waited that waits for longest.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantLine> {
        self.shared.tenants()
    }

    /// The paper's metrics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }
}

impl Shared {
    fn find_here(&self, id: &str) -> Option<Found> {
        let mut table = self.table.lock();
        if let Some(live) = table.live.get(id) {
            return Some(Found::of(live));
        }
        let over = table.kept.get(Instant::now(), id)?;
        Some(Found {
            request_id: id.into(),
            session_id: over.session,
            tenant: over.tenant,
            priority: over.priority,
            stage: Stage::Ended(over.outcome),
        })
    }

    fn why(&self, id: &str) -> Option<WhyNot> {
        let live: Arc<Live> = self.table.lock().live.get(id).cloned()?;
        let not = self.sluice.why(*live.item.get()?)?;
        let (reason, detail) = match not.why {
            Why::Running | Why::Lingering => return None,
            Why::KeyBusy { .. } | Why::KeyRetrying { .. } if self.settings().serial => {
                ("no_worker", "one at a time, because workerPool.enabled is false".to_owned())
            }
            Why::KeyBusy { head } | Why::KeyRetrying { head, .. } => {
                ("session_busy", self.before(head))
            }
            Why::TenantAtLimit { running, max } => {
                ("tenant_limit", format!("tenant {} at {running} of {max}", live.tenant))
            }
            Why::AtLimit { running, limit } => {
                ("no_worker", format!("{running} of {limit} workers have requests"))
            }
            Why::RateLimited { .. } => ("rate_limited", not.to_string()),
            Why::Paused { reason } => (reason, self.of_memory()),
            _ => ("ready", not.to_string()),
        };
        Some(WhyNot { reason, detail, until: not.until })
    }

    fn before(&self, head: ItemId) -> String {
        match self.table.lock().by_item.get(&head) {
            Some(request) => format!("request {request} of its session goes first"),
            None => "another request of its session goes first".to_owned(),
        }
    }

    fn of_memory(&self) -> String {
        let (used, limit) = (self.memory() / (1024 * 1024), self.settings().max_total_memory_mb);
        format!("the workers use {used} MiB of {limit} MiB")
    }

    fn workers(&self) -> Vec<WorkerView> {
        let (mut views, trees) = {
            let staff = self.staff.lock();
            let trees: HashMap<Arc<str>, _> = staff
                .handles
                .iter()
                .filter_map(|(number, handle)| {
                    Some((staff.workers.id(*number), handle.tree.clone()?))
                })
                .collect();
            (staff.workers.views(), trees)
        };
        for view in &mut views {
            view.memory_bytes = trees.get(&view.id).map_or(0, |tree| tree.memory());
        }
        views
    }

    fn tenants(&self) -> Vec<TenantLine> {
        let waiting = self.sluice.waiting(usize::MAX);
        let mut oldest: HashMap<Arc<str>, Duration> = HashMap::new();
        for item in waiting {
            let known = oldest.entry(item.tenant).or_default();
            *known = (*known).max(item.waited);
        }
        let mut tallies: HashMap<Arc<str>, TenantTally> = self
            .table
            .lock()
            .tallies()
            .map(|(tenant, tally)| (Arc::clone(tenant), *tally))
            .collect();
        let mut lines: Vec<TenantLine> = self
            .sluice
            .tenants()
            .into_iter()
            .map(|view| {
                let tally = tallies.remove(&view.tenant).unwrap_or_default();
                let oldest = oldest.get(&view.tenant).copied().unwrap_or_default();
                (view, tally, oldest)
            })
            .collect();
        // The schedule forgets who has nothing here, and does not know who was only refused.
        let settings = self.settings();
        lines.extend(tallies.into_iter().map(|(tenant, tally)| {
            let weight = settings.limits_of(&tenant).weight;
            (TenantView::idle(tenant, weight), tally, Duration::ZERO)
        }));
        lines.sort_by(|(one, ..), (other, ..)| one.tenant.cmp(&other.tenant));
        lines
    }

    fn metrics(&self) -> Metrics {
        let states: Vec<WorkerState> =
            self.staff.lock().workers.views().iter().map(|view| view.state).collect();
        let count = |state| states.iter().filter(|known| **known == state).count();
        let tenants = self.sluice.tenants();
        let active = |tenant: &&TenantView<Arc<str>>| tenant.queued + tenant.running > 0;
        let depths = tenants.iter().filter(|tenant| tenant.queued > 0);
        let by_class = Priority::ALL.map(Priority::name).into_iter();
        let mut metrics = Metrics {
            workers_total: states.len(),
            workers_idle: count(WorkerState::Idle),
            workers_busy: count(WorkerState::Busy),
            workers_starting: count(WorkerState::Starting),
            workers_draining: count(WorkerState::Draining),
            workers_stuck: count(WorkerState::Stuck),
            queue_depth: self.sluice.stats().gauges.queued,
            queue_depth_by_priority: by_class.zip(self.sluice.queued_by_class()).collect(),
            active_tenants: tenants.iter().filter(active).count(),
            tenant_queue_depths: depths
                .map(|tenant| (tenant.tenant.to_string(), tenant.queued))
                .collect::<BTreeMap<_, _>>(),
            estimated_memory_mb: self.memory() / (1024 * 1024),
            ..Metrics::default()
        };
        self.minute.lock().fill(Instant::now(), &mut metrics);
        if let Some(recent) = self.sluice.recent_times() {
            let quantile = |part| ms(recent.wait_time.quantile(part));
            metrics.queue_wait_p50_ms = quantile(0.5);
            metrics.queue_wait_p95_ms = quantile(0.95);
            metrics.queue_wait_p99_ms = quantile(0.99);
        }
        metrics
    }
}
