//! Where what the pool says becomes a log line, a number, a warning and an event.
//!
//! What is asked and answered is said nowhere: requests have ids.

use serde_json::Value;
use sluicegate_agents::{Event, Observer, RequestError};
use sluicegate_dispatch::Severity;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::NAME;
use super::streak::Said;
use crate::record::Record;
use crate::warnings::{Code, plain};

/// How much is said of what a program said.
const SAID: usize = 200;

impl Observer for Record {
    fn observe(&self, event: &Event<'_>) {
        self.metrics.agents().count(event);
        say(event);
        self.say_failure_of(event);
        self.warn_of(event);
        // Its time is the feed's.
        self.feed.tell(|| match event.json(0) {
            Value::Object(fields) => Some((event.name(), fields)),
            _ => None,
        });
    }
}

impl Record {
    fn warn_of(&self, event: &Event<'_>) {
        match event {
            Event::WorkerNotStarted { cause, .. } => {
                self.raise(Code::AgentNotStarted, Severity::Error, NAME, plain(cause).into_owned());
            }
            Event::WorkerSpawned { .. } => {
                self.resolve(Code::AgentNotStarted, NAME);
            }
            Event::WorkerStuck { worker, after } => {
                let words = format!(
                    "{worker} did not end within {} s of being asked to, and was killed",
                    after.as_secs()
                );
                self.raise(Code::WorkerStuck, Severity::Warning, NAME, words);
            }
            Event::WorkerAbandoned { worker, after } => {
                let words = format!(
                    "processes of {worker} are not gone {} s after they were killed; its place is given to others: \
                     see what holds them with `ps -eo pid,stat,wchan,args`",
                    after.as_secs()
                );
                self.raise(Code::WorkerStuck, Severity::Error, NAME, words);
            }
            _ => {}
        }
        match self.streak.hear(event) {
            Some(Said::Failing(count, error)) => {
                let Facts { exit_code, signal, said } = Facts::of(error);
                let exit_code = exit_code.map(|code| format!(", exit code {code}"));
                let signal = signal.map(|signal| format!(", {signal}"));
                let said = said.map(|said| format!(": {said}"));
                let more: String = [exit_code, signal, said].into_iter().flatten().collect();
                let words = format!(
                    "{count} requests to agents failed in a row, the last with {}{more}",
                    error.code()
                );
                self.raise(Code::AgentsFailing, Severity::Warning, NAME, words);
            }
            Some(Said::Over) => {
                self.resolve(Code::AgentsFailing, NAME);
            }
            None => {}
        }
    }

    /// That requests fail is said once in a while for each way of it.
    fn say_failure_of(&self, event: &Event<'_>) {
        let (request, tenant, worker, error) = match event {
            Event::RequestFailed { error: RequestError::Cancelled, .. } => return,
            Event::RequestFailed { request, tenant, worker, error }
            | Event::RequestTimeout { request, tenant, worker, error, .. } => {
                (*request, tenant.to_string(), *worker, *error)
            }
            Event::JournalFailed { doing, cause } => {
                if let Some(unsaid) = self.rarely(NAME, doing, Instant::now()) {
                    error!(target: "sluicegate", doing, cause, unsaid, "a request was not written down");
                }
                return;
            }
            _ => return,
        };
        let code = error.code();
        if let Some(unsaid) = self.rarely(NAME, code, Instant::now()) {
            let (tenant, Facts { exit_code, signal, said }) = (&*plain(&tenant), Facts::of(error));
            warn!(
                target: "sluicegate",
                request, tenant, worker, code, exit_code, signal, stderr = said, unsaid,
                "a request failed"
            );
        }
    }
}

/// What of an error helps to find its cause. What an agent answered is not among it.
struct Facts<'a> {
    exit_code: Option<i32>,
    signal: Option<&'a str>,
    /// The beginning of what it said on its standard error, or of what was not understood.
    said: Option<String>,
}

impl<'a> Facts<'a> {
    fn of(error: &'a RequestError) -> Self {
        let (exit_code, signal, said) = match error {
            RequestError::WorkerCrash { exit_code, signal, stderr, .. } => {
                (*exit_code, signal.as_deref(), stderr.as_str())
            }
            RequestError::ExecutionTimeout { message: Some(message), .. } => {
                (None, None, message.as_str())
            }
            _ => (None, None, ""),
        };
        let said: String = plain(said.trim()).chars().take(SAID).collect();
        Self { exit_code, signal, said: Some(said).filter(|said| !said.is_empty()) }
    }
}

fn say(event: &Event<'_>) {
    const T: &str = "sluicegate";
    match event {
        Event::WorkerSpawned { worker } => debug!(target: T, worker, "worker started"),
        Event::WorkerAssigned { worker, request, tenant } => {
            debug!(target: T, worker, request, tenant = &*plain(&tenant.to_string()), "assigned");
        }
        Event::WorkerReleased { worker, request, after } => {
            debug!(target: T, worker, request, ?after, "released");
        }
        Event::WorkerRecycled { worker, why } => {
            debug!(target: T, worker, why = why.name(), "worker replaced");
        }
        Event::WorkerStuck { worker, after } => warn!(target: T, worker, ?after, "worker stuck"),
        Event::WorkerKilled { worker, signal } => info!(target: T, worker, signal, "worker ended"),
        Event::WorkerAbandoned { worker, after } => {
            error!(target: T, worker, ?after, "processes are not gone though they were killed");
        }
        Event::WorkerNotStarted { worker, cause } => {
            debug!(target: T, worker, cause = &*plain(cause), "worker not started");
        }
        Event::RequestEnqueued { request, tenant, priority, depth } => {
            let (tenant, priority) = (tenant.to_string(), priority.name());
            debug!(target: T, request, tenant = &*plain(&tenant), priority, depth, "request let in");
        }
        Event::RequestDequeued { request, waited } => {
            debug!(target: T, request, ?waited, "request starts");
        }
        Event::RequestCompleted { request, total, execution } => {
            debug!(target: T, request, ?total, ?execution, "request answered");
        }
        Event::RequestFailed { request, error, .. } => {
            debug!(target: T, request, code = error.code(), "request failed");
        }
        Event::RequestRejected { tenant, error } => {
            let tenant = tenant.to_string();
            debug!(target: T, tenant = &*plain(&tenant), code = error.code(), "request refused");
        }
        Event::RequestTimeout { request, phase, .. } => {
            debug!(target: T, request, phase = phase.name(), "request timed out");
        }
        Event::Backpressure { depth, max } => debug!(target: T, depth, max, "the queue is full"),
        Event::Shutdown { pending } => info!(target: T, pending, "the pool of agents ends"),
        _ => {}
    }
}
