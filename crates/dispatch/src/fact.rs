//! What happened: said once, where it happens, for log, metrics, warnings and tests alike.

use std::sync::Arc;
use std::time::Duration;

use crate::{Message, Outcome, ParkedCode, Reason, Severity};

/// Hears of facts, at once and in the task where they happen: it must not wait.
pub trait Observer: Send + Sync + 'static {
    /// Hears of one.
    fn observe(&self, fact: &Fact<'_>);
}

/// How a call to an endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallStatus {
    /// With this HTTP status.
    Http(u16),
    /// Not in time.
    Timeout,
    /// No connection was made.
    Connect,
    /// The connection broke off.
    Reset,
    /// The target's address is not allowed.
    RefusedTarget,
}

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fact<'a> {
    /// A source handed over deliveries.
    Received {
        /// The queue.
        queue: &'a Arc<str>,
        /// How many.
        count: usize,
    },
    /// A source could not be used.
    SourceFailed {
        /// The queue.
        queue: &'a Arc<str>,
        /// What it was to do.
        doing: &'static str,
        /// What happened.
        cause: &'a str,
    },
    /// Deliveries were not extended in time: their source hands them out again.
    Expired {
        /// The queue.
        queue: &'a Arc<str>,
        /// How many.
        count: usize,
    },
    /// A body was no message.
    Malformed {
        /// The queue.
        queue: &'a Arc<str>,
        /// Why.
        why: &'a str,
    },
    /// The same delivery came again while the first one is still here.
    Redelivered {
        /// The queue.
        queue: &'a Arc<str>,
        /// The message.
        id: &'a Arc<str>,
    },
    /// A copy of a message came while the first one is still here; it is removed.
    Requeued {
        /// The queue.
        queue: &'a Arc<str>,
        /// The message.
        id: &'a Arc<str>,
    },
    /// A message asked for a pool that does not exist.
    UnknownPool {
        /// The code it asked for.
        code: &'a Arc<str>,
        /// The message.
        id: &'a Arc<str>,
    },
    /// A message came with a field that nobody knows.
    UnknownField {
        /// The queue.
        queue: &'a Arc<str>,
        /// The name of the field, or its beginning.
        field: &'a str,
        /// The message.
        id: &'a Arc<str>,
    },
    /// A pool had no room for its part of a batch.
    PoolFull {
        /// The pool.
        pool: &'a Arc<str>,
        /// How many went back.
        count: usize,
    },
    /// As many messages wait for full pools as may be read ahead: nothing more is received.
    WindowFull {
        /// The queue.
        queue: &'a Arc<str>,
        /// The pool that most of them wait for.
        pool: &'a Arc<str>,
        /// How many wait for it.
        waiting: usize,
    },
    /// Messages without a group wait for each other beside idle permits.
    UngroupedSerial {
        /// The pool.
        pool: &'a Arc<str>,
    },
    /// A message was let into a pool.
    Admitted {
        /// The pool.
        pool: &'a Arc<str>,
        /// The message.
        message: &'a Message,
    },
    /// A message was started.
    Started {
        /// The pool.
        pool: &'a Arc<str>,
        /// The message.
        message: &'a Message,
        /// Which attempt it is.
        attempt: u32,
        /// How long it waited in the pool.
        waited: Duration,
    },
    /// A call to an endpoint was made.
    Called {
        /// The pool.
        pool: &'a Arc<str>,
        /// The message.
        message: &'a Message,
        /// How it ended.
        status: CallStatus,
        /// How long it took.
        took: Duration,
    },
    /// An attempt ended.
    Finished {
        /// The queue.
        queue: &'a Arc<str>,
        /// The pool.
        pool: &'a Arc<str>,
        /// The message.
        message: &'a Message,
        /// Which attempt it was.
        attempt: u32,
        /// How.
        outcome: &'a Outcome,
        /// How long it took.
        took: Duration,
    },
    /// An executor panicked.
    Panicked {
        /// The pool.
        pool: &'a Arc<str>,
        /// The message.
        id: &'a Arc<str>,
        /// What it said.
        what: &'a str,
    },
    /// A message will never work as it is.
    Rejected {
        /// The pool.
        pool: &'a Arc<str>,
        /// The message.
        message: &'a Message,
        /// How bad it is.
        severity: Severity,
        /// Why.
        why: &'a str,
    },
    /// A host is not called by a pool for a while.
    Paused {
        /// The pool.
        pool: &'a Arc<str>,
        /// The host.
        host: &'a str,
        /// How long.
        after: Duration,
    },
    /// A message waits in its pool to be tried again.
    Retrying {
        /// The pool.
        pool: &'a Arc<str>,
        /// The message.
        id: &'a Arc<str>,
        /// How long; `None` until someone acts.
        after: Option<Duration>,
        /// Why.
        reason: Reason,
    },
    /// A message was put aside, durably.
    Parked {
        /// The queue.
        queue: &'a Arc<str>,
        /// The pool, if it came that far.
        pool: Option<&'a Arc<str>>,
        /// The message, if it is one.
        id: Option<&'a Arc<str>>,
        /// Why.
        code: ParkedCode,
        /// Why, in words.
        reason: &'a str,
    },
    /// A delivery was settled, durably.
    Settled {
        /// The queue.
        queue: &'a Arc<str>,
        /// The message, if it is one.
        id: Option<&'a Arc<str>>,
        /// `None` if it is done with, or why it comes again.
        again: Option<Reason>,
        /// Whether the receipt was still valid.
        stale: bool,
    },
    /// A breaker opened or closed.
    Breaker {
        /// Which.
        name: &'a Arc<str>,
        /// Whether it is open now.
        open: bool,
    },
}

impl CallStatus {
    /// Its name in metrics.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Http(status) => status.to_string(),
            Self::Timeout => "timeout".to_owned(),
            Self::Connect => "connect".to_owned(),
            Self::Reset => "reset".to_owned(),
            Self::RefusedTarget => "refused_target".to_owned(),
        }
    }
}
