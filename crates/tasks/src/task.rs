//! A task: from its start to the value it leaves.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::context::within;
use crate::place::{NameTaken, Shared};
use crate::panic::catch;
use crate::permits::OwnedPermit;
use crate::roster::{Label, Seat};
use crate::{Context, Interrupt, Panic, Refusal};

/// A submitted task: await it for what became of it.
///
/// Dropping it does not end the task, which belongs to its group; the result is then nobody's.
#[derive(Debug)]
#[must_use = "await the task for its result; the group runs it either way"]
pub struct Task<T> {
    pub(crate) handle: JoinHandle<Result<T, TaskError>>,
}

/// Why a task left no value.
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
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        // Panics are caught inside, so what is left is a runtime that went away.
        Poll::Ready(ready!(Pin::new(&mut self.handle).poll(poller)).unwrap_or(Err(TaskError::Aborted)))
    }
}

/// What a task holds while it runs. All of it comes back by drop, on every path, and the seat last:
/// whoever waits for the group to be empty finds everything else given back.
pub(crate) struct Hold {
    pub(crate) _name: Option<NameTaken>,
    pub(crate) _permit: OwnedPermit,
    pub(crate) seat: Seat<Shared>,
}

/// How a task is to be known, and what is to be told of its end.
pub(crate) struct Manner<T> {
    pub(crate) label: Label,
    pub(crate) is_failure: fn(&T) -> bool,
}

/// Runs the work from its start to its end, with every edge guarded.
pub(crate) async fn run<F, Fut, T>(
    mut hold: Hold,
    cx: Context,
    manner: Manner<T>,
    work: F,
) -> Result<T, TaskError>
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = T>,
{
    let started = begin(&mut hold, &cx, manner.label)?;
    let mut lineage = cx.lineage.clone();
    let made = within(&mut lineage, || catch(|| work(cx)));
    let ended = match made {
        Err(panic) => Err(TaskError::Panicked(panic)),
        Ok(future) => {
            let mut future = pin!(Some(future));
            let mut abort: Option<Pin<Box<WaitForCancellationFutureOwned>>> = None;
            let shared = &hold.seat.of;
            std::future::poll_fn(|poller| {
                let polled = within(&mut lineage, || catch(|| poll_some(future.as_mut(), poller)));
                match polled {
                    Err(panic) => Poll::Ready(Err(TaskError::Panicked(panic))),
                    Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
                    // Watched only once the work waits: short work never pays for it.
                    Ok(Poll::Pending) => abort
                        .get_or_insert_with(|| Box::pin(shared.abort.clone().cancelled_owned()))
                        .as_mut()
                        .poll(poller)
                        .map(|()| Err(TaskError::Aborted)),
                }
            })
            .await
            // The future goes here, not with this frame, since its own drop may panic.
            .and_then(|value| settle(&mut lineage, || future.set(None)).map(|()| value))
            .map_err(|error| match settle(&mut lineage, || future.set(None)) {
                Ok(()) => error,
                Err(panicked) => panicked,
            })
        }
    };
    finish(&hold.seat.of, started, ended, manner.is_failure)
}

/// [`run`] for work that blocks its thread. The hold moves to that thread: a permit is in use for as
/// long as the work really runs.
pub(crate) async fn run_blocking<F, T>(
    mut hold: Hold,
    cx: Context,
    manner: Manner<T>,
    work: F,
) -> Result<T, TaskError>
where
    F: FnOnce(Context) -> T + Send + 'static,
    T: Send + 'static,
{
    let started = begin(&mut hold, &cx, manner.label)?;
    let blocking = tokio::task::spawn_blocking(move || {
        let mut lineage = cx.lineage.clone();
        let ended = within(&mut lineage, || catch(|| work(cx))).map_err(TaskError::Panicked);
        finish(&hold.seat.of, started, ended, manner.is_failure)
    });
    blocking.await.unwrap_or(Err(TaskError::Aborted))
}

fn begin(hold: &mut Hold, cx: &Context, label: Label) -> Result<Instant, TaskError> {
    let counters = &hold.seat.of.counters;
    if let Err(why) = cx.check() {
        counters.interrupted(why);
        return Err(TaskError::Interrupted(why));
    }
    counters.started.count();
    let started = Instant::now();
    hold.seat.sit(label, started);
    Ok(started)
}

fn finish<T>(
    shared: &Shared,
    started: Instant,
    ended: Result<T, TaskError>,
    is_failure: fn(&T) -> bool,
) -> Result<T, TaskError> {
    let counters = &shared.counters;
    counters.run_time.record(started.elapsed());
    match &ended {
        Ok(value) => {
            counters.completed.count();
            if is_failure(value) {
                counters.failed.count();
            }
        }
        Err(TaskError::Panicked(_)) => counters.panicked.count(),
        Err(_) => counters.cancelled.count(),
    }
    ended
}

fn poll_some<Fut: Future>(
    future: Pin<&mut Option<Fut>>,
    poller: &mut Poller<'_>,
) -> Poll<Fut::Output> {
    match future.as_pin_mut() {
        Some(future) => future.poll(poller),
        None => Poll::Pending,
    }
}

fn settle(
    lineage: &mut Option<Arc<crate::context::Lineage>>,
    drop_future: impl FnOnce(),
) -> Result<(), TaskError> {
    within(lineage, || catch(drop_future)).map_err(TaskError::Panicked)
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
