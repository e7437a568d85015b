//! What an executor says of an attempt, and what follows from it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a message waits before it is delivered again, unless its endpoint says otherwise.
pub const DEFAULT_DELAY: Duration = Duration::from_secs(30);
/// How long the rest of a batch's group waits after a failure.
pub const FAST_FAIL_DELAY: Duration = Duration::from_secs(10);
/// The shortest delay an endpoint can ask for.
pub const MIN_DELAY: Duration = Duration::from_secs(1);
/// The longest delay an endpoint can ask for.
pub const MAX_DELAY: Duration = Duration::from_secs(43_200);

/// What an executor says of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done.
    Done,
    /// It did not work this time.
    RetryLater {
        /// When the endpoint wants to see it again; `None` for no wish.
        after: Option<Duration>,
        /// What happened.
        why: String,
        /// The HTTP status, if there was one.
        status: Option<u16>,
        /// The first 1 KiB of the reply, if there was one.
        body: Option<Arc<str>>,
    },
    /// The endpoint has had enough for now: nobody of this pool should call its host before.
    Throttled {
        /// How long.
        after: Duration,
        /// The first 1 KiB of the reply, if there was one.
        body: Option<Arc<str>>,
    },
    /// It will never work like this.
    Rejected(Rejection),
    /// The endpoint could not be reached.
    Unreachable {
        /// What happened.
        cause: String,
    },
    /// The breaker of the target is open; no call was made.
    BreakerOpen {
        /// The breaker.
        name: Arc<str>,
        /// The rest of the time it stays open.
        rest: Duration,
    },
    /// The context ended first.
    Interrupted,
}

/// Why a message will never work as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// What happened.
    pub why: String,
    /// How bad it is.
    pub severity: Severity,
    /// The first 1 KiB of the reply, if there was one.
    pub body: Option<Arc<str>>,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Someone should look at it.
    Warning,
    /// Something does not work.
    Error,
    /// Something important does not work.
    Critical,
}

/// Why a message waits to be delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Its first delivery was to be late.
    Scheduled,
    /// An attempt failed.
    Failed,
    /// Its host asked for a pause.
    Throttled,
    /// The breaker of its target was open.
    BreakerOpen,
    /// A message before it, of its batch and group, failed.
    Cascade,
    /// Its pool was full.
    PoolFull,
    /// Its pool or the router was draining.
    Draining,
}

/// What becomes of a message, for its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is done with.
    Ack,
    /// It is to be delivered again.
    Retry {
        /// Not before this has passed.
        after: Duration,
        /// How many attempts were made by now: docs/rules.md#settle-2.
        attempts: u32,
        /// Why it comes back, for those who ask.
        reason: Reason,
    },
    /// It will never work: it is put aside for a person to look at.
    Park,
}

/// The paper's table, as a table, for a message that had so many attempts before.
#[must_use]
pub fn settlement_for(outcome: &Outcome, attempts: u32) -> Settlement {
    let counted = attempts.saturating_add(1);
    let retry = |after, attempts, reason| Settlement::Retry { after, attempts, reason };
    match outcome {
        Outcome::Done => Settlement::Ack,
        Outcome::RetryLater { after, .. } => {
            retry(after.map_or(DEFAULT_DELAY, clamped), counted, Reason::Failed)
        }
        Outcome::Throttled { after, .. } => retry(clamped(*after), attempts, Reason::Throttled),
        Outcome::Rejected(_) => Settlement::Park,
        Outcome::Unreachable { .. } => retry(DEFAULT_DELAY, counted, Reason::Failed),
        Outcome::BreakerOpen { rest, .. } => {
            retry((*rest).max(MIN_DELAY), attempts, Reason::BreakerOpen)
        }
        Outcome::Interrupted => retry(Duration::ZERO, attempts, Reason::Draining),
    }
}

pub(crate) fn clamped(delay: Duration) -> Duration {
    delay.clamp(MIN_DELAY, MAX_DELAY)
}

impl Outcome {
    /// What is said of an attempt that failed, and its status.
    pub(crate) fn words(&self) -> (String, Option<u16>) {
        match self {
            Self::RetryLater { why, status, .. } => (why.clone(), *status),
            Self::Unreachable { cause } => (cause.clone(), None),
            other => (other.label().to_owned(), None),
        }
    }

    /// Its name in metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Done => "success",
            Self::RetryLater { .. } => "retry",
            Self::Throttled { .. } => "throttled",
            Self::Rejected(_) => "rejected",
            Self::Unreachable { .. } => "unreachable",
            Self::BreakerOpen { .. } => "breaker_open",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Scheduled,
        Self::Failed,
        Self::Throttled,
        Self::BreakerOpen,
        Self::Cascade,
        Self::PoolFull,
        Self::Draining,
    ];

    /// Its name where it is stored or shown.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Failed => "failed",
            Self::Throttled => "throttled",
            Self::BreakerOpen => "breaker_open",
            Self::Cascade => "cascade",
            Self::PoolFull => "pool_full",
            Self::Draining => "draining",
        }
    }

    /// The reason of that name.
    #[must_use]
    pub fn of_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.label() == label)
    }
}

impl Severity {
    /// Its one spelling.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Critical => "CRITICAL",
        }
    }

    /// The severity of that spelling.
    #[must_use]
    pub fn of_label(label: &str) -> Option<Self> {
        [Self::Info, Self::Warning, Self::Error, Self::Critical]
            .into_iter()
            .find(|severity| severity.label() == label)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
