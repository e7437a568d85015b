//! Being let in: a place in a group, with a permit or in line for one.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::context::{Flag, GroupId, Lineage};
use crate::drain::Drained;
use crate::permits::Turn;
use crate::roster::{HasRoster, Label, Names, Roster, Seat};
use crate::stats::Counters;
use crate::task::{HeldPermit, Hold, Run, Verdict, run_blocking};
use crate::{Context, GroupOverload, Permits, Refusal, Refused, Running, Task, TaskError};

/// What the handles and the tasks of a group share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) permits: Arc<Permits>,
    /// A parent's permits, taken where they are free and never waited for.
    pub(crate) lent: Option<Arc<Permits>>,
    /// The group whose permits it shares, and which therefore answers for its tasks too.
    pub(crate) parent: Option<Arc<Self>>,
    pub(crate) overload: GroupOverload,
    pub(crate) unwind: Duration,
    /// The service's own context, for detached tasks.
    pub(crate) service: Context,
    pub(crate) group: GroupId,
    pub(crate) lineage: Arc<Lineage>,
    pub(crate) closing: Arc<Flag>,
    pub(crate) abort: Flag,
    pub(crate) roster: Roster,
    pub(crate) names: Arc<Names>,
    pub(crate) counters: Counters,
}

/// A place in the group: counted from here on, whether it starts at once or waits.
pub(crate) enum Place {
    Start(Hold),
    InLine(InLine),
}

/// A place in line for a permit, joined when the task was let in.
pub(crate) struct InLine {
    turn: Turn<Arc<Permits>>,
    since: Instant,
    seat: Seat<Shared>,
}

/// Left the line without a permit. The seat is kept until the work is given up: a drain that is over
/// has handed everything back.
struct NeverRan {
    why: TaskError,
    seat: Seat<Shared>,
}

impl Shared {
    /// A place without waiting for it.
    pub(crate) fn admit(self: &Arc<Self>, cx: &Context, label: &Label) -> Result<Place, Refusal> {
        // First, since at the deadline of a drain `cx` ends too, and that is not its owner's doing.
        if self.closing.is_raised() {
            return Err(Refusal::Draining);
        }
        cx.check().map_err(Refusal::Interrupted)?;
        if cx.reenters(self.group) {
            return Err(Refusal::Nested { group: self.name.clone() });
        }
        let now = Instant::now();
        match (self.try_permit(), self.overload) {
            (Ok(permit), _) => self.start(permit, label, now),
            (Err(at_limit), GroupOverload::Wait | GroupOverload::FailFast) => {
                Err(Refusal::AtLimit(at_limit))
            }
            (
                Err(_),
                GroupOverload::HandBack { capacity, .. } | GroupOverload::Queue { capacity },
            ) => {
                let turn = Turn::queued(Arc::clone(&self.permits), capacity)
                    .map_err(|queued| Refusal::QueueFull { queued, capacity })?;
                let seat = self.seat(label, None).ok_or(Refusal::Draining)?;
                Ok(Place::InLine(InLine { turn, since: now, seat }))
            }
        }
    }

    /// A place for a task that holds its permit.
    fn start(
        self: &Arc<Self>,
        permit: HeldPermit,
        label: &Label,
        since: Instant,
    ) -> Result<Place, Refusal> {
        match (self.seat(label, Some(since)), permit) {
            (Some(seat), permit) => Ok(Place::Start(Hold { permit, seat })),
            (None, HeldPermit::Own) => {
                self.permits.give_back();
                Err(Refusal::Draining)
            }
            (None, HeldPermit::Lent { .. }) => Err(Refusal::Draining),
        }
    }

    /// A seat, unless admission is closed: see the group's first invariant.
    fn seat(self: &Arc<Self>, label: &Label, since: Option<Instant>) -> Option<Seat<Self>> {
        let outer = match &self.parent {
            None => None,
            Some(parent) => Some(Box::new(parent.sit(label, since, false)?)),
        };
        let mut seat = self.sit(label, since, true)?;
        seat.outer = outer;
        Some(seat)
    }

    fn sit(
        self: &Arc<Self>,
        label: &Label,
        since: Option<Instant>,
        counted: bool,
    ) -> Option<Seat<Self>> {
        let closed = |shared: &Self| shared.closing.is_raised();
        Seat::enter(Arc::clone(self), label.clone(), since, counted, closed)
    }

    /// The submitter waits for a permit: this is the backpressure.
    pub(crate) async fn wait(self: Arc<Self>, cx: Context, label: Label) -> Result<Place, Refusal> {
        let since = Instant::now();
        let turn = Turn::new(Arc::clone(&self.permits));
        tokio::select! {
            biased;
            () = self.closing.raised() => return Err(Refusal::Draining),
            turned = cx.until_interrupted(turn) => turned.map_err(Refusal::Interrupted)?,
        }
        let now = Instant::now();
        self.counters.waited(now - since);
        self.start(HeldPermit::Own, &label, now)
    }

    /// Whether the permits that its tasks hold are not, or not only, its own.
    pub(crate) const fn is_child(&self) -> bool {
        self.lent.is_some() || self.parent.is_some()
    }

    pub(crate) fn refuse<W>(&self, why: Refusal, work: W) -> Refused<W> {
        self.counters.rejected(&why, 1);
        Refused { why, retry_after: self.overload.retry_after(), work }
    }

    fn try_permit(&self) -> Result<HeldPermit, crate::AtLimit> {
        match (self.permits.take(), &self.lent) {
            (Ok(()), _) => Ok(HeldPermit::Own),
            (Err(at_limit), None) => Err(at_limit),
            (Err(at_limit), Some(lent)) => {
                let permit = lent.try_acquire_owned().map_err(|_| at_limit)?;
                Ok(HeldPermit::Lent { _permit: permit })
            }
        }
    }
}

impl Place {
    pub(crate) fn spawn<F, Fut, T, D>(self, cx: Context, work: F) -> Task<T>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
        D: Verdict<T> + 'static,
    {
        let handle = match self {
            Self::Start(hold) => tokio::spawn(Box::pin(Run::<F, Fut, D>::new(hold, cx, work))),
            Self::InLine(line) => tokio::spawn(async move {
                match line.turn(&cx).await {
                    Ok(hold) => Run::<F, Fut, D>::new(hold, cx, work).await,
                    Err(never_ran) => never_ran.give_up(work),
                }
            }),
        };
        Task { handle }
    }

    pub(crate) fn spawn_blocking<F, T>(self, cx: Context, work: F) -> Task<T>
    where
        F: FnOnce(Context) -> T + Send + 'static,
        T: Send + 'static,
    {
        let handle = tokio::spawn(async move {
            let hold = match self {
                Self::Start(hold) => hold,
                Self::InLine(line) => match line.turn(&cx).await {
                    Ok(hold) => hold,
                    Err(never_ran) => return never_ran.give_up(work),
                },
            };
            run_blocking(hold, cx, work).await
        });
        Task { handle }
    }
}

impl InLine {
    /// Waits for the permit. Once a drain has begun, nothing starts any more.
    async fn turn(self, cx: &Context) -> Result<Hold, NeverRan> {
        let Self { turn, since, seat } = self;
        let shared = &seat.of;
        let why = tokio::select! {
            biased;
            () = shared.closing.raised() => {
                shared.counters.handed_back.count();
                Some(TaskError::HandedBack)
            }
            why = cx.cancelled() => {
                shared.counters.interrupted(why);
                Some(TaskError::Interrupted(why))
            }
            () = turn => None,
        };
        if let Some(why) = why {
            return Err(NeverRan { why, seat });
        }
        let now = Instant::now();
        shared.counters.waited(now - since);
        seat.begin(now);
        Ok(Hold { permit: HeldPermit::Own, seat })
    }
}

impl NeverRan {
    fn give_up<W, T>(self, work: W) -> Result<T, TaskError> {
        let Self { why, seat } = self;
        drop(work);
        drop(seat);
        Err(why)
    }
}

impl HasRoster for Shared {
    fn roster(&self) -> &Roster {
        &self.roster
    }
}

impl Drained for Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn unwind(&self) -> Duration {
        self.unwind
    }

    fn ended(&self) -> u64 {
        self.counters.ended(&self.roster.ledger())
    }

    fn handed_back(&self) -> u64 {
        self.counters.handed_back.get()
    }

    fn close(&self) {
        self.closing.raise();
    }

    fn list(&self) -> Vec<Running> {
        self.roster.list()
    }

    async fn emptied(&self) {
        self.roster.emptied().await;
    }

    fn kill(&self) {
        self.lineage.kill.raise();
    }

    fn abort(&self) {
        self.abort.raise();
    }
}
