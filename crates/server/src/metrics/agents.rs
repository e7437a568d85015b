//! What is counted of agents, and what of them is shown.

use std::time::Duration;

use sluicegate_agents::{Agents, Event, Phase, TenantLine, WorkerState};

use super::page::{Histogram, Page, Sheet, Written};
use super::series::{Count, Times};

/// How many tenants are shown, those with the most requests that wait: the page does not grow with the users.
const TOP_TENANTS: usize = 20;

/// How requests end: with a reply, or with one of these codes.
const RESULTS: [&str; 18] = [
    "completed",
    "tenant_queue_full",
    "global_queue_full",
    "rate_limited",
    "queue_timeout",
    "execution_timeout",
    "worker_crash",
    "agent_error",
    "bad_output",
    "output_limit",
    "cancelled",
    "interrupted",
    "shutting_down",
    "session_forbidden",
    "too_large",
    "storage_failed",
    "internal",
    "other",
];

/// What is counted where it happens.
#[derive(Debug, Default)]
pub(crate) struct AgentSeries {
    results: [Count; RESULTS.len()],
    queue_wait: Times,
    execution: Times,
    /// How many have started.
    started: Count,
}

/// Agents at one moment.
#[derive(Clone, Debug, Default)]
pub struct AgentSnapshot {
    /// How many workers there are in each state.
    pub workers: Vec<(&'static str, u64)>,
    /// Tenants whose requests wait, and how many.
    pub tenants: Vec<(String, u32)>,
    /// How many workers there may be.
    pub workers_limit: u32,
    /// How much memory the workers use, in bytes.
    pub memory: u64,
    /// Above how much of it nothing starts.
    pub memory_limit: u64,
    /// How many requests wait.
    pub queued: u32,
    /// How many of them may.
    pub queue_limit: u32,
    /// How many requests have their turn.
    pub running: u32,
    /// How long the one has waited that waits for longest.
    pub oldest_wait: Duration,
}

const STATES: [(WorkerState, &str); 5] = [
    (WorkerState::Idle, "IDLE"),
    (WorkerState::Starting, "STARTING"),
    (WorkerState::Busy, "BUSY"),
    (WorkerState::Draining, "DRAINING"),
    (WorkerState::Stuck, "STUCK"),
];

impl AgentSnapshot {
    /// A pool as it is now.
    #[must_use]
    pub fn of(agents: &Agents) -> Self {
        let (workers, settings) = (agents.workers(), agents.settings());
        let count = |state| workers.iter().filter(|worker| worker.state == state).count() as u64;
        let lines = agents.tenants();
        let sum = |of: fn(&TenantLine) -> u32| lines.iter().map(of).sum();
        let waiting = lines.iter().map(|(view, ..)| view).filter(|view| view.queued > 0);
        let mut tenants: Vec<(String, u32)> =
            waiting.map(|view| (view.tenant.to_string(), view.queued)).collect();
        tenants.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
        tenants.truncate(TOP_TENANTS);
        Self {
            workers: STATES.iter().map(|(state, name)| (*name, count(*state))).collect(),
            workers_limit: settings.concurrency(),
            memory: workers.iter().map(|worker| worker.memory_bytes).sum(),
            memory_limit: u64::from(settings.max_total_memory_mb) * 1024 * 1024,
            queued: sum(|(view, ..)| view.queued),
            queue_limit: settings.max_queue_depth_global,
            running: sum(|(view, ..)| view.running),
            oldest_wait: lines.iter().map(|(.., oldest)| *oldest).max().unwrap_or_default(),
            tenants,
        }
    }
}

impl AgentSeries {
    /// Counts something that happened.
    pub(crate) fn count(&self, event: &Event<'_>) {
        let result = match event {
            Event::RequestDequeued { waited, .. } => {
                self.started.add(1);
                return self.queue_wait.record(*waited);
            }
            Event::RequestCompleted { execution, .. } => {
                self.execution.record(*execution);
                "completed"
            }
            Event::RequestFailed { error, .. } | Event::RequestRejected { error, .. } => {
                error.code()
            }
            Event::RequestTimeout { phase: Phase::Queue, .. } => "queue_timeout",
            Event::RequestTimeout { phase: Phase::Execution, .. } => "execution_timeout",
            _ => return,
        };
        let at = RESULTS.iter().position(|known| *known == result);
        self.results[at.unwrap_or(RESULTS.len() - 1)].add(1);
    }
}

impl AgentSeries {
    /// How many requests have started or ended: it grows while anything moves.
    pub(crate) fn moved(&self) -> u64 {
        self.started.get() + self.results.iter().map(Count::get).sum::<u64>()
    }
}

impl Page {
    pub(super) fn agents(&self, sheet: &mut Sheet<'_>) -> Written {
        let Some(now) = &self.snapshot.agents else { return Ok(()) };
        let workers = now.workers.iter().map(|(state, count)| ([("state", *state)], *count));
        sheet.gauges("workers", "Workers of agents in each state", workers)?;
        let help = "Memory that the workers of agents use";
        sheet.gauge("worker_memory_bytes", help, now.memory)?;
        let help = "Memory of workers above which nothing starts";
        sheet.gauge("worker_memory_limit_bytes", help, now.memory_limit)?;
        let help = "Workers that there may be";
        sheet.gauge("workers_limit", help, u64::from(now.workers_limit))?;
        sheet.gauge("requests_queued", "Requests that wait", u64::from(now.queued))?;
        let help = "Requests that may wait";
        sheet.gauge("requests_queue_limit", help, u64::from(now.queue_limit))?;
        sheet.gauge("requests_running", "Requests that run", u64::from(now.running))?;
        let help = "How long the request has waited that waits for longest";
        sheet.second("request_oldest_wait", help, now.oldest_wait)?;
        let tenants = now.tenants.iter().map(|(id, queued)| ([("tenant", id.as_str())], *queued));
        let help = "Requests that wait, of the tenants with the most of them";
        sheet.gauges("tenant_queued", help, tenants)?;
        let series = &self.series.agents;
        let results = RESULTS.iter().zip(&series.results);
        let results = results.map(|(result, count)| ([("result", *result)], count.get()));
        let results = results.filter(|(_, count)| *count > 0);
        sheet.counters("requests", "Requests to agents, by how they ended", results)?;
        let waits = Histogram::so_far(&series.queue_wait);
        sheet.histogram("request_queue_wait", "How long requests waited for their turn", waits)?;
        let runs = Histogram::so_far(&series.execution);
        sheet.histogram("request_execution", "How long requests ran that were answered", runs)
    }
}
