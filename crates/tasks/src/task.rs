//! A task as its submitter sees it: the value it leaves, or why there is none.
//!
//! `docs/rules.md#task-1`, `docs/rules.md#task-2`.

mod run;

pub(crate) use run::{AnyValue, ByResult, TaskGuard, TaskPermit, on_thread};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::group::nested::Handover;
use crate::{Interrupt, Panic, Refusal, Refused};

/// A submitted task: await it for what became of it.
///
/// Dropping it does not end the task, which belongs to its group; the result is then nobody's.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// let group = TaskGroup::new("mails", 1)?;
/// drop(group.submit(Context::new(), |cx| async move { cx.check() }).await?);
/// assert!(group.drain(Instant::now() + Duration::from_secs(5)).await.is_clean());
/// assert_eq!(group.stats().completed, 1); // it ran to its end even so
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "await the task for its result; the group runs it either way"]
pub struct Task<T> {
    end: End<T>,
}

/// How the end of a task is told.
#[derive(Debug)]
enum End<T> {
    /// By the runtime that runs it.
    Spawned(JoinHandle<Result<T, TaskError>>),
    /// By a thread, or by whoever drives it.
    Told {
        told: oneshot::Receiver<Result<T, TaskError>>,
        /// Where it runs on its maker's permit, and the maker may have to drive it.
        driven: Option<Arc<Handover>>,
    },
    /// It never began.
    Failed(TaskError),
}

/// Why a task left no value.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Interrupt, TaskError, TaskGroup};
///
/// let group = TaskGroup::new("mails", 1)?;
/// let request = Context::new();
/// let task = group.submit(&request, |cx| async move { cx.check() }).await?;
/// request.cancel(); // after it was let in, before its start
/// assert_eq!(task.await, Err(TaskError::Interrupted(Interrupt::Cancelled)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskError {
    /// It was not let in ([`TaskGroup::run`](crate::TaskGroup::run), or `submit(…).await?`).
    Refused(Refusal),
    /// Its context ended before its start: it never ran.
    Interrupted(Interrupt),
    /// The system had no thread for it: it never ran.
    NoThread {
        /// What the system said. (No text: a result is moved about far more often than looked at.)
        cause: std::io::ErrorKind,
    },
    /// It panicked.
    Panicked(Panic),
    /// It still ran when its group's drain deadline passed, or the runtime was shut down.
    Aborted,
}

impl<T> Task<T> {
    pub(crate) const fn spawned(handle: JoinHandle<Result<T, TaskError>>) -> Self {
        Self { end: End::Spawned(handle) }
    }

    pub(crate) const fn told(
        told: oneshot::Receiver<Result<T, TaskError>>,
        driven: Option<Arc<Handover>>,
    ) -> Self {
        Self { end: End::Told { told, driven } }
    }

    pub(crate) const fn failed(why: TaskError) -> Self {
        Self { end: End::Failed(why) }
    }

    /// Whether it has ended.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let group = TaskGroup::new("mails", 1)?;
    /// let task = group.submit(Context::new(), |cx| async move { cx.check() }).await?;
    /// assert!(group.drain(Instant::now() + Duration::from_secs(5)).await.is_clean());
    /// assert!(task.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.end {
            End::Spawned(handle) => handle.is_finished(),
            // Told, or never to be told: both are the end.
            End::Told { told, driven } => {
                let is_over = driven.as_ref().is_some_and(|handover| handover.is_over());
                is_over || told.is_terminated() || !told.is_empty()
            }
            End::Failed(_) => true,
        }
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        // Panics are caught inside, so what is left is a runtime that went away.
        match &mut self.end {
            End::Spawned(handle) => match Pin::new(handle).poll(poller) {
                Poll::Ready(Ok(ended)) => Poll::Ready(ended),
                Poll::Ready(Err(_)) => Poll::Ready(Err(TaskError::Aborted)),
                Poll::Pending => Poll::Pending,
            },
            End::Told { told, driven } => poll_told(told, driven.as_ref(), poller),
            End::Failed(why) => Poll::Ready(Err(why.clone())),
        }
    }
}

/// Apart from the rest, which is small enough to become part of whoever awaits it.
#[inline(never)]
fn poll_told<T>(
    told: &mut oneshot::Receiver<Result<T, TaskError>>,
    driven: Option<&Arc<Handover>>,
    poller: &mut Poller<'_>,
) -> Poll<Result<T, TaskError>> {
    let mut ended = Pin::new(&mut *told).poll(poller);
    if let (Poll::Pending, Some(handover)) = (&ended, driven) {
        handover.drive_if_awaited(poller);
        ended = Pin::new(told).poll(poller);
    }
    ended.map(|ended| ended.unwrap_or(Err(TaskError::Aborted)))
}

/// A task is moved about, not pinned: what it waits for is on the heap.
impl<T> Unpin for Task<T> {}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::Interrupted(why) => write!(f, "{why} before it could start"),
            Self::NoThread { cause } => write!(f, "no thread to run on: {cause}"),
            Self::Panicked(panic) => panic.fmt(f),
            Self::Aborted => f.write_str("aborted: it ran past its group's drain deadline"),
        }
    }
}

impl std::error::Error for TaskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(why) => Some(why),
            Self::Interrupted(why) => Some(why),
            Self::Panicked(panic) => Some(panic),
            Self::NoThread { .. } | Self::Aborted => None,
        }
    }
}

/// Drops the work and keeps the reason, so that `group.submit(…).await?.await?` works.
impl<W> From<Refused<W>> for TaskError {
    fn from(refused: Refused<W>) -> Self {
        Self::Refused(refused.why)
    }
}
