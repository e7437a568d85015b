//! Being refused: the reason, and what was offered back by value.
//!
//! `docs/rules.md#overload-2`.

use std::fmt;
use std::time::Duration;

use crate::{AtLimit, Interrupt};

/// Work that was not let in, with the reason. The work itself comes back: nothing is lost.
///
/// Where the work holds guards (a message to be settled, a permit), dropping this hands them back.
///
/// As an error it is as shareable as the work inside. Where `?` wants more, as for a
/// `Box<dyn Error + Send + Sync>` or `anyhow`, keep the reason alone: `map_err(Refusal::from)`.
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
///
/// ```
/// use sluicegate_tasks::{Context, Refusal, TaskGroup};
/// use std::error::Error;
/// use std::sync::mpsc::Receiver;
///
/// /// A `Receiver` is not `Sync`, so work that owns one is not either.
/// fn start(group: &TaskGroup, rows: Receiver<u32>) -> Result<(), Box<dyn Error + Send + Sync>> {
///     let work = move |_: Context| rows.iter().sum::<u32>();
///     let _writer = group.try_submit_thread("writer", work).map_err(Refusal::from)?;
///     Ok(())
/// }
/// # let group = TaskGroup::new("store", 1)?;
/// # assert!(start(&group, std::sync::mpsc::sync_channel(1).1).is_ok());
/// # Ok::<(), sluicegate_tasks::Invalid>(())
/// ```
#[must_use = "the refused work is inside"]
pub struct Refused<W> {
    /// The reason.
    pub why: Refusal,
    /// When to offer it again, where the policy ([`Overload::HandBack`](crate::Overload::HandBack)) or the
    /// reason says.
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
    /// The tenant comes too often, for so long.
    TenantRateLimited {
        /// How long.
        retry_in: Duration,
    },
    /// The tenant may never enter with so many at once: offer them in smaller batches.
    BatchTooLarge {
        /// How many of the tenant's were to enter.
        items: u32,
        /// How many may at once, at its admission rate.
        max: u32,
    },
    /// No worker waits for it, and waiting was not asked for.
    NoWorker,
    /// Starting is paused.
    Paused {
        /// For what.
        reason: &'static str,
    },
    /// It waited in the queue for as long as it may.
    QueueTimeout {
        /// How long that is.
        after: Duration,
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
            Self::TenantRateLimited { .. } => "tenant_rate_limited",
            Self::BatchTooLarge { .. } => "batch_too_large",
            Self::NoWorker => "no_worker",
            Self::Paused { .. } => "paused",
            Self::QueueTimeout { .. } => "queue_timeout",
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
            Self::TenantRateLimited { retry_in } => {
                write!(f, "the tenant is rate limited for {retry_in:?}")
            }
            Self::BatchTooLarge { items, max } => {
                write!(f, "{items} of the tenant at once, and it may enter with {max}")
            }
            Self::NoWorker => f.write_str("no worker waits for it"),
            Self::Paused { reason } => write!(f, "paused: {reason}"),
            Self::QueueTimeout { after } => write!(f, "waited in the queue for {after:?}"),
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

/// So that `cx.check()?` works where a [`Refusal`] is returned.
impl From<Interrupt> for Refusal {
    fn from(why: Interrupt) -> Self {
        Self::Interrupted(why)
    }
}
