//! What happens to work that cannot start at once: a policy, chosen by name.
//!
//! `docs/rules.md#overload-1`, `docs/rules.md#overload-2`.

use std::fmt;
use std::time::Duration;

use sluicegate_schedule::Invalid;

use crate::{AtLimit, Interrupt};

/// What a turnstile does with work that cannot start at once.
///
/// | policy | work waits | refused when |
/// |---|---|---|
/// | `Wait` | with the submitter, who is held up (backpressure) | never for want of room |
/// | `HandBack` | in a bounded queue | the queue is full: back to its source, for later |
/// | `Queue` | in a bounded queue | the queue is full: with a typed reason |
/// | `FailFast` | not at all | it cannot start at once |
///
/// Whatever the policy, refused work comes back by value in [`Refused`]: nothing is lost.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Overload, Turnstile};
/// use std::time::Duration;
///
/// let back = Overload::HandBack { capacity: 160, retry_after: Duration::from_secs(30) };
/// let turnstile = Turnstile::builder("orders", 8).overload(back).build()?;
/// let refused = Turnstile::builder("orders", 8).overload(Overload::Queue { capacity: 0 }).build();
/// assert_eq!(refused.unwrap_err().field, "capacity");
/// # Ok::<(), sluicegate_tasks::Invalid>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overload {
    /// The submitter waits, first come first served, for as long as its context lets it.
    #[default]
    Wait,
    /// Up to `capacity` wait; the next is handed back, to be offered again after `retry_after`.
    HandBack {
        /// How many may wait.
        capacity: u32,
        /// When the source should offer it again.
        retry_after: Duration,
    },
    /// Up to `capacity` wait; the next is refused.
    Queue {
        /// How many may wait.
        capacity: u32,
    },
    /// Nothing waits.
    FailFast,
}

impl Overload {
    pub(crate) fn check(self) -> Result<(), Invalid> {
        match self {
            Self::Wait | Self::FailFast => Ok(()),
            Self::HandBack { capacity, .. } | Self::Queue { capacity } => {
                Invalid::check_count("capacity", capacity, u32::MAX)
            }
        }
    }

    /// How many may wait in a queue of ours. Those who wait with their caller bound themselves.
    pub(crate) const fn capacity(self) -> u32 {
        match self {
            Self::HandBack { capacity, .. } | Self::Queue { capacity } => capacity,
            Self::Wait | Self::FailFast => u32::MAX,
        }
    }

    /// When refused work should be offered again, if the policy says.
    pub(crate) const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::HandBack { retry_after, .. } => Some(retry_after),
            Self::Wait | Self::Queue { .. } | Self::FailFast => None,
        }
    }
}

/// Work that was not let in, with the reason. The work itself comes back: nothing is lost.
///
/// Where the work holds guards (a message to be settled, a permit), dropping this hands them back.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// let (closed, open) = (TaskGroup::new("closed", 1)?, TaskGroup::new("open", 1)?);
/// assert!(closed.drain(Instant::now() + Duration::from_secs(1)).await.is_clean());
/// let letter = String::from("dear all");
/// let send = |cx: Context| async move { cx.check().map(|()| letter) };
/// let refused = closed.submit(Context::new(), send).await.unwrap_err();
/// let sent = open.run(Context::new(), refused.work).await?; // the work, and the letter in it
/// assert_eq!(sent?, "dear all");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "the refused work is inside"]
pub struct Refused<W> {
    /// The reason.
    pub why: Refusal,
    /// When to offer it again, where the policy says ([`Overload::HandBack`]).
    pub retry_after: Option<Duration>,
    /// What was offered.
    pub work: W,
}

/// Why work was not let in.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Interrupt, Refusal, TaskError, TaskGroup};
///
/// let group = TaskGroup::new("orders", 8)?;
/// let gone = Context::new();
/// gone.cancel();
/// let why = Refusal::Interrupted(Interrupt::Cancelled);
/// let refused = group.run(&gone, |cx| async move { cx.check() }).await;
/// assert_eq!(refused, Err(TaskError::Refused(why)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Every permit is in use.
    AtLimit(AtLimit),
    /// The queue holds as many as it may.
    QueueFull {
        /// How many wait.
        queued: u32,
        /// How many may.
        capacity: u32,
    },
    /// The tenant has as many waiting as it may.
    TenantQueueFull {
        /// How many wait.
        queued: u32,
        /// How many may.
        max: u32,
    },
    /// The tenant has as many running as it may.
    TenantAtLimit(AtLimit),
    /// Another item of the key runs or goes first.
    KeyBusy,
    /// There is no token for so long.
    RateLimited {
        /// How long.
        retry_in: Duration,
    },
    /// The submitter's context ended first: the work never ran.
    Interrupted(Interrupt),
    /// Submitted from inside one of the group's own tasks. Waiting for a permit while holding one
    /// could wait for ever, so it is an error at once; use [`TaskGroup::child`](crate::TaskGroup::child).
    Nested {
        /// The group.
        group: String,
    },
    /// A detached task of that name is still there.
    NameTaken {
        /// The name.
        name: String,
    },
    /// Nothing more is let in.
    Draining,
}

impl Refusal {
    /// The reason in one word, for a metric's label.
    ///
    /// ```
    /// use sluicegate_tasks::Refusal;
    ///
    /// assert_eq!(Refusal::QueueFull { queued: 8, capacity: 8 }.label(), "queue_full");
    /// ```
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::AtLimit(_) => "at_limit",
            Self::QueueFull { .. } => "queue_full",
            Self::TenantQueueFull { .. } => "tenant_queue_full",
            Self::TenantAtLimit(_) => "tenant_at_limit",
            Self::KeyBusy => "key_busy",
            Self::RateLimited { .. } => "rate_limited",
            Self::Interrupted(Interrupt::Cancelled) => "cancelled",
            Self::Interrupted(Interrupt::TimedOut) => "timed_out",
            Self::Nested { .. } => "nested",
            Self::NameTaken { .. } => "name_taken",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLimit(at_limit) => at_limit.fmt(f),
            Self::QueueFull { queued, capacity } => write!(f, "queue full: {queued} of {capacity}"),
            Self::TenantQueueFull { queued, max } => {
                write!(f, "the tenant's queue is full: {queued} of {max}")
            }
            Self::TenantAtLimit(at_limit) => write!(f, "the tenant is {at_limit}"),
            Self::KeyBusy => f.write_str("another item of the key goes first"),
            Self::RateLimited { retry_in } => write!(f, "rate limited for {retry_in:?}"),
            Self::Interrupted(why) => write!(f, "{why} before it could start"),
            Self::Nested { group } => write!(
                f,
                "submitted to {group:?} from inside one of its own tasks: use a child group"
            ),
            Self::NameTaken { name } => write!(f, "a detached task named {name:?} is still there"),
            Self::Draining => f.write_str("draining: nothing more is let in"),
        }
    }
}

impl std::error::Error for Refusal {}

impl<W> fmt::Debug for Refused<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("why", &self.why)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

impl<W> fmt::Display for Refused<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl<W> std::error::Error for Refused<W> {}

/// Drops the work and keeps the reason, so that `?` works where only the reason matters.
impl<W> From<Refused<W>> for Refusal {
    fn from(refused: Refused<W>) -> Self {
        refused.why
    }
}
