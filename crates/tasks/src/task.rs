//! A task: from its start to the value it leaves.
//!
//! `docs/rules.md#task-1`, `docs/rules.md#task-2`.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as Poller, Poll, ready};

use pin_project_lite::pin_project;
use tokio::task::JoinHandle;

use crate::context::{Path, Watch, within};
use crate::panic::catch;
use crate::permits::OwnedPermit;
use crate::place::Shared;
use crate::roster::Seat;
use crate::{Context, Interrupt, Panic, Refusal};

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
    pub(crate) handle: JoinHandle<Result<T, TaskError>>,
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
    /// It was not let in ([`TaskGroup::run`](crate::TaskGroup::run) only).
    Refused(Refusal),
    /// Its context ended before its start: it never ran.
    Interrupted(Interrupt),
    /// Its group was drained before its start: it never ran.
    HandedBack,
    /// It panicked.
    Panicked(Panic),
    /// It still ran when its group's drain deadline passed, or the runtime was shut down.
    Aborted,
}

impl<T> Task<T> {
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
        self.handle.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        // Panics are caught inside, so what is left is a runtime that went away.
        Poll::Ready(
            ready!(Pin::new(&mut self.handle).poll(poller)).unwrap_or(Err(TaskError::Aborted)),
        )
    }
}

/// What a task holds while it runs. All of it comes back by drop, on every path, and the seat last:
/// whoever waits for the group to be empty finds everything else given back.
pub(crate) struct Hold {
    pub(crate) permit: HeldPermit,
    pub(crate) seat: Seat<Shared>,
}

/// Whose permit a task holds.
pub(crate) enum HeldPermit {
    /// Its group's. The seat already keeps the group alive, so a count less to keep.
    Own,
    /// One of the parent's.
    Lent { _permit: OwnedPermit },
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let HeldPermit::Own = self.permit {
            self.seat.of.permits.give_back();
        }
    }
}

/// What a value that a task returned means for the count of failures.
pub(crate) trait Verdict<T> {
    fn is_failure(value: &T) -> bool;
}

/// Whatever came back is fine.
pub(crate) struct AnyValue;

/// An error is a failure.
pub(crate) struct ByResult;

impl<T> Verdict<T> for AnyValue {
    fn is_failure(_: &T) -> bool {
        false
    }
}

impl<T, E> Verdict<Result<T, E>> for ByResult {
    fn is_failure(value: &Result<T, E>) -> bool {
        value.is_err()
    }
}

pin_project! {
    /// Work from its start to its end, with every edge guarded.
    ///
    /// Written by hand because an `async fn` keeps its arguments twice, and copying that larger
    /// future about was a fifth of what a task costs.
    pub(crate) struct Run<F, Fut, D> {
        hold: Option<Hold>,
        // The groups around it, where they are more than its own group's: seldom, so boxed.
        path: Option<Box<Path>>,
        abort: Option<Box<Watch>>,
        #[pin]
        stage: Stage<F, Fut>,
        verdict: PhantomData<fn() -> D>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<F, Fut> {
        Fresh { work: Option<(F, Context)> },
        Running { #[pin] future: Fut },
        Gone,
    }
}

impl<F, Fut, D> Run<F, Fut, D> {
    pub(crate) fn new(hold: Hold, cx: Context, work: F) -> Self {
        let path = cx.path_beyond(&hold.seat.of.lineage);
        let stage = Stage::Fresh { work: Some((work, cx)) };
        Self { hold: Some(hold), path, abort: None, stage, verdict: PhantomData }
    }
}

impl<F, Fut, T, D> Future for Run<F, Fut, D>
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = T>,
    D: Verdict<T>,
{
    type Output = Result<T, TaskError>;

    fn poll(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(hold) = this.hold else {
            return Poll::Ready(Err(TaskError::Aborted));
        };
        let path = this.path.as_deref().copied().unwrap_or(hold.seat.of.lineage.path);
        if let StageProjected::Fresh { work: Some((_, cx)) } = this.stage.as_mut().project()
            && let Err(never_ran) = hold.begin(cx)
        {
            // It says why it never ran, even if giving the work up panics.
            drop(this.stage.give_up(path));
            *this.hold = None;
            return Poll::Ready(Err(never_ran));
        }
        let ended = match within(path, || catch(|| this.stage.as_mut().step(poller))) {
            Ok(Poll::Ready(value)) => Ok(value),
            Ok(Poll::Pending) => {
                // Watched only once the work waits: short work never pays for it.
                let abort = &hold.seat.of.abort;
                let watch = this.abort.get_or_insert_with(|| Box::new(abort.watch()));
                ready!(watch.poll(abort, poller));
                this.stage.give_up(path).and(Err(TaskError::Aborted))
            }
            Err(panic) => {
                // What the unfinished work leaves may panic once more: the first one counts.
                drop(this.stage.give_up(path));
                Err(TaskError::Panicked(panic))
            }
        };
        hold.end::<T, D>(&ended);
        // Everything is given back before anybody hears of the end.
        *this.hold = None;
        Poll::Ready(ended)
    }
}

impl<F, Fut, T> Stage<F, Fut>
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = T>,
{
    /// Makes the future if need be, polls it, and drops it when it is done. Any of it may panic.
    fn step(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<T> {
        if let StageProjected::Fresh { work } = self.as_mut().project()
            && let Some((work, cx)) = work.take()
        {
            let future = work(cx);
            self.as_mut().set(Self::Running { future });
        }
        match self.as_mut().project() {
            StageProjected::Running { future } => {
                let value = ready!(future.poll(poller));
                self.set(Self::Gone);
                Poll::Ready(value)
            }
            _ => Poll::Pending,
        }
    }

    /// Drops the future where it stands.
    fn give_up(mut self: Pin<&mut Self>, path: Path) -> Result<(), TaskError> {
        within(path, || catch(|| self.set(Self::Gone))).map_err(TaskError::Panicked)
    }
}

/// [`Run`] for work that blocks its thread. The hold moves to that thread: a permit is in use for as
/// long as the work really runs.
pub(crate) async fn run_blocking<F, T>(hold: Hold, cx: Context, work: F) -> Result<T, TaskError>
where
    F: FnOnce(Context) -> T + Send + 'static,
    T: Send + 'static,
{
    let blocking = tokio::task::spawn_blocking(move || {
        let mut hold = hold;
        // Looked at here: it may have waited long for a thread.
        if let Err(never_ran) = hold.begin(&cx) {
            drop(work);
            return Err(never_ran);
        }
        let path = cx.path();
        let ended = within(path, || catch(|| work(cx))).map_err(TaskError::Panicked);
        hold.end::<T, AnyValue>(&ended);
        ended
    });
    blocking.await.unwrap_or(Err(TaskError::Aborted))
}

impl Hold {
    /// The last look before the work runs.
    fn begin(&self, cx: &Context) -> Result<(), TaskError> {
        let counters = &self.seat.of.counters;
        if let Err(why) = cx.check() {
            counters.interrupted(why);
            return Err(TaskError::Interrupted(why));
        }
        counters.started.count();
        Ok(())
    }

    fn end<T, D: Verdict<T>>(&mut self, ended: &Result<T, TaskError>) {
        let counters = &self.seat.of.counters;
        match ended {
            Ok(value) => {
                self.seat.completed = true;
                if D::is_failure(value) {
                    counters.failed.count();
                }
            }
            Err(TaskError::Panicked(_)) => counters.panicked.count(),
            Err(_) => {
                counters.cancelled.count();
                counters.aborted.count();
            }
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => why.fmt(f),
            Self::Interrupted(why) => write!(f, "{why} before it could start"),
            Self::HandedBack => f.write_str("handed back unrun: its group was drained"),
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
            Self::HandedBack | Self::Aborted => None,
        }
    }
}
