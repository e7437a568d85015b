//! One worker, as it is known to the others.

use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;

use super::WorkerNumber;

/// The paper's states of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WorkerState {
    /// It waits for a turn.
    Idle,
    /// Its process is being started.
    Starting,
    /// It has a turn.
    Busy,
    /// It was asked to end.
    Draining,
    /// Nothing of it is left.
    Terminated,
    /// It was asked to end and did not.
    Stuck,
}

/// A worker as it can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerView {
    /// Its id.
    pub id: Arc<str>,
    /// Its process, once it is there.
    pub pid: Option<u32>,
    /// Its state.
    pub state: WorkerState,
    /// Whose request it has.
    pub tenant: Option<Arc<str>>,
    /// The request it has.
    pub request: Option<Arc<str>>,
    /// The session it serves.
    pub session: Option<Arc<str>>,
    /// Since when it is there.
    pub started_at: Instant,
    /// When it last began, said or ended something.
    pub last_active_at: Instant,
    /// How many requests it had.
    pub requests_processed: u32,
    /// How many of them failed.
    pub errors_encountered: u32,
    /// How much memory its processes use.
    pub memory_bytes: u64,
}

/// Which session a worker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// Whichever comes first.
    Any,
    /// This one, which nobody has yet.
    Spare(Arc<str>),
    /// This one.
    Session(Arc<str>),
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) number: WorkerNumber,
    pub(super) id: Arc<str>,
    pub(super) state: WorkerState,
    /// Somebody kills it: it takes no more turns, whatever it still does.
    pub(super) is_killed: bool,
    pub(super) binding: Binding,
    /// The command line it was started with.
    pub(super) command: u64,
    pub(super) pid: Option<u32>,
    /// The request it has, and whose.
    pub(super) request: Option<(Arc<str>, Arc<str>)>,
    pub(super) started: Instant,
    pub(super) last_active: Instant,
    pub(super) requests: u32,
    pub(super) errors: u32,
    pub(super) errors_in_a_row: u32,
}

impl WorkerState {
    /// Whether it takes no more turns.
    #[must_use]
    pub const fn is_leaving(self) -> bool {
        matches!(self, Self::Draining | Self::Stuck | Self::Terminated)
    }
}

impl Worker {
    pub(super) fn new(number: WorkerNumber, now: Instant, binding: Binding, command: u64) -> Self {
        Self {
            number,
            id: format!("worker-{number}").into(),
            state: WorkerState::Starting,
            is_killed: false,
            binding,
            command,
            pid: None,
            request: None,
            started: now,
            last_active: now,
            requests: 0,
            errors: 0,
            errors_in_a_row: 0,
        }
    }

    pub(super) fn serves(&self, session: &str) -> bool {
        matches!(&self.binding, Binding::Session(own) | Binding::Spare(own) if **own == *session)
    }

    /// It has no turn.
    pub(super) fn rest(&mut self) {
        self.request = None;
        self.state = if self.is_killed { WorkerState::Draining } else { WorkerState::Idle };
    }

    /// A turn of it is over.
    pub(super) fn served(&mut self, now: Instant, ok: bool) {
        self.requests += 1;
        self.last_active = now;
        self.errors_in_a_row = if ok { 0 } else { self.errors_in_a_row + 1 };
        self.errors += u32::from(!ok);
    }

    pub(super) fn view(&self) -> WorkerView {
        let (request, tenant) = self.request.clone().unzip();
        let session = match &self.binding {
            Binding::Any => None,
            Binding::Spare(session) | Binding::Session(session) => Some(Arc::clone(session)),
        };
        WorkerView {
            id: Arc::clone(&self.id),
            pid: self.pid,
            state: self.state,
            tenant,
            request,
            session,
            started_at: self.started,
            last_active_at: self.last_active,
            requests_processed: self.requests,
            errors_encountered: self.errors,
            memory_bytes: 0,
        }
    }
}
