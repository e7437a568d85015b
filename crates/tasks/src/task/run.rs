//! A task from its start to its end, with every edge guarded.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use super::{Task, TaskError};
use crate::Context;
use crate::context::Flag;
use crate::context::blocking::block_on;
use crate::current::{Frame, within};
use crate::flag::Raised;
use crate::group::nested::Handover;
use crate::group::shared::Shared;
use crate::lineage::PermitId;
use crate::panic::catch;
use crate::permits::OwnedPermit;
use crate::roster::{End, RosterEntry};

/// What a task holds while it runs. All of it comes back by drop, on every path, and the entry last:
/// whoever waits for the group to be empty finds everything else given back.
pub(crate) struct TaskGuard {
    pub(crate) permit: TaskPermit,
    pub(crate) entry: RosterEntry<Shared>,
}

/// Whose permit a task holds.
pub(crate) enum TaskPermit {
    /// Its group's. The entry already keeps the group alive, so a count less to keep.
    Own,
    /// One that was borrowed.
    Lent { _permit: OwnedPermit },
}

impl Drop for TaskGuard {
    #[inline]
    fn drop(&mut self) {
        if let TaskPermit::Own = self.permit {
            self.entry.of.permits.give_back();
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
    /// Written by hand because an `async fn` keeps its arguments twice, and copying that larger
    /// future about was a fifth of what a task costs.
    struct Run<F, Fut, T, D> {
        // First, so that it is dropped first: nothing is given back while the work is there.
        #[pin]
        stage: Stage<F, Fut, T>,
        frame: Frame,
        abort: Option<Box<Raised<Arc<Flag>>>>,
        guard: Option<TaskGuard>,
        verdict: PhantomData<fn() -> D>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<F, Fut, T> {
        Fresh { work: Option<(F, Context)> },
        Running { #[pin] future: Fut },
        // Its work is over, and groups that it made are not: seldom, so boxed.
        Ending { ending: Option<Box<Ending<T>>> },
        Gone,
    }
}

/// What a task that is over waits for before it gives anything back.
struct Ending<T> {
    children: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: Result<T, TaskError>,
}

impl<F, Fut, T, D> Run<F, Fut, T, D> {
    #[inline]
    fn new(guard: TaskGuard, cx: Context, work: F, handover: Option<&Arc<Handover>>) -> Self {
        let cx = cx.holding(guard.entry.permit());
        let frame = Frame::of(&cx, handover);
        let stage = Stage::Fresh { work: Some((work, cx)) };
        Self { guard: Some(guard), frame, abort: None, stage, verdict: PhantomData }
    }
}

impl<F, Fut, T, D> Future for Run<F, Fut, T, D>
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = T>,
    D: Verdict<T>,
{
    type Output = Result<T, TaskError>;

    fn poll(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(guard) = this.guard else {
            return Poll::Ready(Err(TaskError::Aborted));
        };
        let (mut stage, permit) = (this.stage, guard.entry.permit());
        match stage.as_mut().project() {
            StageProjected::Fresh { work: Some((_, cx)) } => {
                if let Err(never_ran) = guard.begin(cx) {
                    // It says why it never ran, even if giving the work up panics.
                    drop(stage.as_mut().give_up(this.frame, permit));
                    *this.guard = None;
                    return Poll::Ready(Err(never_ran));
                }
            }
            StageProjected::Ending { ending } => return poll_ending(ending, this.guard, poller),
            _ => {}
        }
        // A permit that is on a thread is not here to be run on.
        let has_permit = match this.frame.children() {
            None => true,
            Some(children) => children.poll_permit(poller).is_ready(),
        };
        let step = || if has_permit { stage.as_mut().step(poller) } else { Poll::Pending };
        let ended = match within(this.frame, permit, || catch(step)) {
            Ok(Poll::Ready(value)) => Ok(value),
            Ok(Poll::Pending) => {
                // What waits does nothing itself: its children have its permit meanwhile.
                if has_permit && let Some(children) = this.frame.children() {
                    children.drive(poller);
                }
                // Watched only once the work waits: short work never pays for it. And not while
                // it is the one that drains the group.
                if this.frame.drains() {
                    return Poll::Pending;
                }
                let abort = || Box::new(Raised::new(Arc::clone(&guard.entry.of.abort)));
                ready!(Pin::new(this.abort.get_or_insert_with(abort)).poll(poller));
                let given_up = stage.as_mut().give_up(this.frame, permit);
                given_up.map_or_else(Err, |()| Err(TaskError::Aborted))
            }
            Err(panic) => {
                // What the unfinished work leaves may panic once more: the first one counts.
                drop(stage.as_mut().give_up(this.frame, permit));
                Err(TaskError::Panicked(panic))
            }
        };
        guard.end::<T, D>(&ended);
        let Some(children) = this.frame.take_children() else {
            // Everything is given back before anybody hears of the end.
            *this.guard = None;
            return Poll::Ready(ended);
        };
        let ending = Some(Box::new(Ending { children: Box::pin(children.ended()), ended }));
        stage.set(Stage::Ending { ending });
        match stage.project() {
            StageProjected::Ending { ending } => poll_ending(ending, this.guard, poller),
            _ => Poll::Pending,
        }
    }
}

/// Waits until nothing is left of the groups that the task made.
#[cold]
fn poll_ending<T>(
    ending: &mut Option<Box<Ending<T>>>,
    guard: &mut Option<TaskGuard>,
    poller: &mut Poller<'_>,
) -> Poll<Result<T, TaskError>> {
    if let Some(ending) = ending {
        ready!(ending.children.as_mut().poll(poller));
    }
    *guard = None;
    ending.take().map_or(Poll::Pending, |ending| Poll::Ready(ending.ended))
}

impl<F, Fut, T> Stage<F, Fut, T>
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
    fn give_up(
        mut self: Pin<&mut Self>,
        frame: &mut Frame,
        permit: PermitId,
    ) -> Result<(), TaskError> {
        within(frame, permit, || catch(|| self.set(Self::Gone))).map_err(TaskError::Panicked)
    }
}

/// [`Run`] for work that blocks its thread. The guard moves to that thread: a permit is in use for as
/// long as the work really runs. `over` has what it left before anything is given back.
pub(crate) fn on_thread<F, T, R>(
    mut guard: TaskGuard,
    cx: Context,
    work: F,
    over: impl FnOnce(Result<T, TaskError>) -> R,
) -> R
where
    F: FnOnce(Context) -> T,
{
    let permit = guard.entry.permit();
    let cx = cx.holding(permit);
    // Looked at here: it may have waited long for a thread.
    let ended = match guard.begin(&cx) {
        Err(never_ran) => {
            drop(catch(|| drop(work)));
            Err(never_ran)
        }
        Ok(()) => {
            let mut frame = Frame::of_blocking(&cx, guard.handover());
            let ended =
                within(&mut frame, permit, || catch(|| work(cx))).map_err(TaskError::Panicked);
            guard.end::<T, AnyValue>(&ended);
            if let Some(children) = frame.take_children() {
                block_on(children.ended());
            }
            ended
        }
    };
    let left = over(ended);
    drop(guard);
    left
}

impl TaskGuard {
    /// Starts the work.
    pub(crate) fn spawn<F, Fut, T, D>(self, cx: Context, work: F) -> Task<T>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
        D: Verdict<T> + 'static,
    {
        if let Some(handover) = self.handover() {
            let handover = Arc::clone(handover);
            let run = Run::<F, Fut, T, D>::new(self, cx, work, Some(&handover));
            return handed_over(handover, run);
        }
        Task::spawned(tokio::spawn(Box::pin(Run::<F, Fut, T, D>::new(self, cx, work, None))))
    }

    /// Starts work that blocks its thread.
    pub(crate) fn spawn_blocking<F, T>(self, cx: Context, work: F) -> Task<T>
    where
        F: FnOnce(Context) -> T + Send + 'static,
        T: Send + 'static,
    {
        let handover = self.handover().cloned();
        let run = async move {
            // From here on, not only once there is a thread: the maker does not go on before.
            let permit = self.handover().map(Handover::to_thread);
            let blocking = tokio::task::spawn_blocking(move || {
                let ended = on_thread(self, cx, work, |ended| ended);
                drop(permit);
                ended
            });
            blocking.await.unwrap_or(Err(TaskError::Aborted))
        };
        match handover {
            None => Task::spawned(tokio::spawn(run)),
            Some(handover) => handed_over(handover, run),
        }
    }

    /// Where the work is driven, if it has the permit of its group's maker.
    #[inline]
    fn handover(&self) -> Option<&Arc<Handover>> {
        match self.permit {
            TaskPermit::Own => self.entry.of.handover.as_ref(),
            TaskPermit::Lent { .. } => None,
        }
    }

    /// The last look before the work runs.
    #[inline]
    fn begin(&self, cx: &Context) -> Result<(), TaskError> {
        let counters = &self.entry.of.counters;
        if let Err(why) = cx.check() {
            counters.interrupted(why);
            return Err(TaskError::Interrupted(why));
        }
        counters.started.count();
        Ok(())
    }

    fn end<T, D: Verdict<T>>(&mut self, ended: &Result<T, TaskError>) {
        let counters = &self.entry.of.counters;
        match ended {
            Ok(value) => {
                self.entry.end = End::Completed;
                if D::is_failure(value) {
                    counters.failed.count();
                }
            }
            Err(why) => {
                self.entry.end = End::Other;
                match why {
                    TaskError::Panicked(_) => counters.panicked.count(),
                    _ => counters.cancelled.count(),
                }
            }
        }
    }
}

/// Leaves work to the maker of its group.
fn handed_over<T: Send + 'static>(
    handover: Arc<Handover>,
    run: impl Future<Output = Result<T, TaskError>> + Send + 'static,
) -> Task<T> {
    let (tell, told) = oneshot::channel();
    handover.put(Box::pin(async move {
        let ended = run.await;
        // Whoever asked may be gone, and dropping what nobody wants may panic.
        drop(catch(|| drop(tell.send(ended))));
    }));
    Task::told(told, Some(handover))
}
