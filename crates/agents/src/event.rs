//! What happened: said once, where it happens; the paper's `WorkerPoolEvent`s and a few more.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Outcome, Priority, Recycled, RequestError, Tenant};

/// Hears of events, at once and in the task where they happen: it must not wait.
pub trait Observer: Send + Sync + 'static {
    /// Hears of one.
    fn observe(&self, event: &Event<'_>);
}

/// When a request's time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// While it waited.
    Queue,
    /// While it ran.
    Execution,
}

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A process was started.
    WorkerSpawned {
        /// Which worker's.
        worker: &'a str,
    },
    /// A worker has a request.
    WorkerAssigned {
        /// Which worker.
        worker: &'a str,
        /// Which request.
        request: &'a str,
        /// Whose.
        tenant: &'a Tenant,
    },
    /// A worker has a request no more.
    WorkerReleased {
        /// Which worker.
        worker: &'a str,
        /// Which request.
        request: &'a str,
        /// How long it had it.
        after: Duration,
    },
    /// A worker is replaced.
    WorkerRecycled {
        /// Which.
        worker: &'a str,
        /// Why.
        why: Recycled,
    },
    /// A worker was asked to end and did not.
    WorkerStuck {
        /// Which.
        worker: &'a str,
        /// How long it had.
        after: Duration,
    },
    /// A worker was ended.
    WorkerKilled {
        /// Which.
        worker: &'a str,
        /// By which signal.
        signal: &'static str,
    },
    /// A worker's processes are not gone long after they were killed: its place is given to others.
    WorkerAbandoned {
        /// Which.
        worker: &'a str,
        /// How long they had.
        after: Duration,
    },
    /// A process could not be started.
    WorkerNotStarted {
        /// Which worker's.
        worker: &'a str,
        /// What happened.
        cause: &'a str,
    },
    /// A request was let in.
    RequestEnqueued {
        /// Which.
        request: &'a str,
        /// Whose.
        tenant: &'a Tenant,
        /// How urgent it is.
        priority: Priority,
        /// How many wait now.
        depth: u32,
    },
    /// A request starts.
    RequestDequeued {
        /// Which.
        request: &'a str,
        /// How long it waited.
        waited: Duration,
    },
    /// A request has its reply.
    RequestCompleted {
        /// Which.
        request: &'a str,
        /// From admission on.
        total: Duration,
        /// From its start on.
        execution: Duration,
    },
    /// A request failed, or was cancelled.
    RequestFailed {
        /// Which.
        request: &'a str,
        /// Whose.
        tenant: &'a Tenant,
        /// The last worker that had it.
        worker: Option<&'a str>,
        /// Why.
        error: &'a RequestError,
    },
    /// A request was not let in, or handed back unrun at the end.
    RequestRejected {
        /// Whose.
        tenant: &'a Tenant,
        /// Why.
        error: &'a RequestError,
    },
    /// A request's time was up.
    RequestTimeout {
        /// Which.
        request: &'a str,
        /// Whose.
        tenant: &'a Tenant,
        /// The last worker that had it.
        worker: Option<&'a str>,
        /// When.
        phase: Phase,
        /// All that is known of it.
        error: &'a RequestError,
    },
    /// As many wait as may.
    Backpressure {
        /// How many wait.
        depth: u32,
        /// How many may.
        max: u32,
    },
    /// The pool ends.
    Shutdown {
        /// How many waited and were handed back.
        pending: u64,
    },
    /// What happened could not be written down.
    JournalFailed {
        /// What was to be written.
        doing: &'static str,
        /// What happened.
        cause: &'a str,
    },
}

impl<'a> Event<'a> {
    /// What is told when a request is over.
    pub(crate) fn over(
        request: &'a str,
        tenant: &'a Tenant,
        worker: Option<&'a str>,
        outcome: &'a Outcome,
        total: Duration,
    ) -> Self {
        let timeout = |phase, error| Self::RequestTimeout { request, tenant, worker, phase, error };
        match outcome {
            Ok(reply) => Self::RequestCompleted {
                request,
                total,
                execution: Duration::from_millis(reply.execution_ms),
            },
            Err(error @ RequestError::QueueTimeout { .. }) => timeout(Phase::Queue, error),
            Err(error @ RequestError::ExecutionTimeout { .. }) => timeout(Phase::Execution, error),
            Err(error @ RequestError::ShuttingDown) => Self::RequestRejected { tenant, error },
            Err(error) => Self::RequestFailed { request, tenant, worker, error },
        }
    }

    /// Its type, as the paper spells it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WorkerSpawned { .. } => "worker.spawned",
            Self::WorkerAssigned { .. } => "worker.assigned",
            Self::WorkerReleased { .. } => "worker.released",
            Self::WorkerRecycled { .. } => "worker.recycled",
            Self::WorkerStuck { .. } => "worker.stuck",
            Self::WorkerKilled { .. } => "worker.killed",
            Self::WorkerAbandoned { .. } => "worker.abandoned",
            Self::WorkerNotStarted { .. } => "worker.not_started",
            Self::RequestEnqueued { .. } => "request.enqueued",
            Self::RequestDequeued { .. } => "request.dequeued",
            Self::RequestCompleted { .. } => "request.completed",
            Self::RequestFailed { .. } => "request.failed",
            Self::RequestRejected { .. } => "request.rejected",
            Self::RequestTimeout { .. } => "request.timeout",
            Self::Backpressure { .. } => "pool.backpressure",
            Self::Shutdown { .. } => "pool.shutdown",
            Self::JournalFailed { .. } => "pool.journal_failed",
        }
    }

    /// As the paper writes it, at a time in milliseconds since 1970.
    #[must_use]
    pub fn json(&self, timestamp: u64) -> Value {
        let mut json = match self {
            Self::WorkerSpawned { worker } => json!({"workerId": worker}),
            Self::WorkerAssigned { worker, request, tenant } => {
                json!({"workerId": worker, "requestId": request, "tenantId": tenant})
            }
            Self::WorkerReleased { worker, request, after } => {
                json!({"workerId": worker, "requestId": request, "durationMs": ms(*after)})
            }
            Self::WorkerRecycled { worker, why } => {
                json!({"workerId": worker, "reason": why.name()})
            }
            Self::WorkerStuck { worker, after } => {
                json!({"workerId": worker, "stuckDurationMs": ms(*after)})
            }
            Self::WorkerKilled { worker, signal } => json!({"workerId": worker, "signal": signal}),
            Self::WorkerAbandoned { worker, after } => {
                json!({"workerId": worker, "durationMs": ms(*after)})
            }
            Self::WorkerNotStarted { worker, cause } => {
                json!({"workerId": worker, "error": cause})
            }
            Self::RequestEnqueued { request, tenant, priority, depth } => json!({
                "requestId": request, "tenantId": tenant, "priority": priority, "queueDepth": depth,
            }),
            Self::RequestDequeued { request, waited } => {
                json!({"requestId": request, "queueWaitMs": ms(*waited)})
            }
            Self::RequestCompleted { request, total, execution } => json!({
                "requestId": request, "totalMs": ms(*total), "executionMs": ms(*execution),
            }),
            Self::RequestFailed { request, error, .. } => {
                json!({"requestId": request, "error": error.to_string(), "code": error.code()})
            }
            Self::RequestRejected { tenant, error } => {
                json!({"tenantId": tenant, "reason": error.code()})
            }
            Self::RequestTimeout { request, phase, .. } => {
                json!({"requestId": request, "phase": phase.name()})
            }
            Self::Backpressure { depth, max } => json!({"queueDepth": depth, "maxDepth": max}),
            Self::Shutdown { pending } => json!({"pendingDrained": pending}),
            Self::JournalFailed { doing, cause } => json!({"doing": doing, "error": cause}),
        };
        json["type"] = self.name().into();
        json["timestamp"] = timestamp.into();
        json
    }
}

impl Phase {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Execution => "execution",
        }
    }
}

pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
