//! A turn as a worker has it, and what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_executors::process::Exit;
use sluicegate_tasks::{Context, Interrupt, Turn};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::converse::TurnEnd;
use super::{Shared, cancelled};
use crate::event::ms;
use crate::live::Live;
use crate::sessions::Left;
use crate::settings::CheckedSettings;
use crate::{Outcome, Reply, RequestError};

/// A turn that a worker has.
pub(super) struct Job {
    pub(super) live: Arc<Live>,
    pub(super) turn: Turn<Arc<Live>>,
    pub(super) settings: CheckedSettings,
    pub(super) started: Instant,
    /// How long it may run.
    pub(super) limit: Duration,
    /// Whether its session had a turn before.
    pub(super) begun: bool,
    pub(super) may_retry: bool,
    pub(super) reply: Option<oneshot::Sender<Report>>,
    /// Ends with the pool.
    stop: Context,
}

/// What a worker says of a turn.
pub(super) enum Report {
    Ended {
        outcome: Outcome,
        left: Left,
    },
    /// It crashed before it said anything, and is gone.
    Again {
        turn: Turn<Arc<Live>>,
        left: Left,
    },
    /// It was gone before.
    NotBegun(Turn<Arc<Live>>),
}

impl Job {
    pub(super) fn new(
        live: &Arc<Live>,
        turn: Turn<Arc<Live>>,
        started: Instant,
        begun: bool,
        may_retry: bool,
        reply: oneshot::Sender<Report>,
        shared: &Shared,
    ) -> Self {
        let (settings, stop) = (shared.settings(), shared.stop.clone());
        let limit = limit(&settings, live);
        let (live, reply) = (Arc::clone(live), Some(reply));
        Self { live, turn, settings, started, limit, begun, may_retry, reply, stop }
    }

    /// Waits until it may not go on, and says why: it was cancelled, or its time is up. Cancel safe.
    pub(super) async fn interrupted(&self, worker: &str) -> RequestError {
        let cx = self.turn.context();
        let timed_out = |limit| self.timed_out(worker, limit);
        tokio::select! {
            biased;
            why = cx.cancelled() => match why {
                Interrupt::TimedOut => timed_out(self.live.request.ask.timeout.unwrap_or_default()),
                Interrupt::Cancelled => cancelled(&self.live, &self.stop),
            },
            () = sleep_until(self.started + self.limit) => timed_out(self.limit),
        }
    }

    pub(super) fn timed_out(&self, worker: &str, limit: Duration) -> RequestError {
        RequestError::ExecutionTimeout {
            request_id: self.live.request.id.to_string(),
            worker_id: worker.to_owned(),
            elapsed_ms: ms(self.started.elapsed()),
            timeout_ms: ms(limit),
            message: None,
        }
    }

    pub(super) fn tell(&mut self, report: Report) {
        // A request that was given up hears of nothing; its turn comes back by drop.
        self.reply.take().map(|reply| reply.send(report).ok());
    }

    /// What came of the turn.
    pub(super) fn outcome(&self, end: TurnEnd, worker: &str) -> Outcome {
        let result = match end {
            TurnEnd::Result { result, .. } => result,
            TurnEnd::Crashed { error, .. } | TurnEnd::GivenUp { error, .. } => return Err(error),
        };
        // It is told to others than the caller, and kept.
        let environment = &self.settings.environment;
        let (text, mut reply) = (result.text.map(|text| environment.redact(&text)), result.reply);
        environment.redact_value(&mut reply);
        if result.is_error {
            return Err(RequestError::AgentError { message: text.unwrap_or_default(), reply });
        }
        match text {
            None => Err(RequestError::BadOutput { message: self.settings.dialect.no_text(&reply) }),
            Some(text) => Ok(Reply {
                reply,
                text,
                queue_wait_ms: ms(self.live.waited()),
                execution_ms: ms(self.started.elapsed()),
                worker_id: worker.to_owned(),
            }),
        }
    }
}

/// How long a turn of a request may take.
pub(super) fn limit(settings: &CheckedSettings, live: &Live) -> Duration {
    settings.execution_timeout.min(settings.limits_of(&live.tenant).max_response_time)
}

pub(super) fn crash(worker: &str, exit: Option<Exit>, stderr: String) -> RequestError {
    let (exit_code, signal) = match exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal_name(signal))),
        None => (None, None),
    };
    RequestError::WorkerCrash { worker_id: worker.to_owned(), exit_code, signal, stderr }
}

fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 14] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (31, "SIGSYS"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("SIG{signal}"), |(_, name)| (*name).to_owned())
}
