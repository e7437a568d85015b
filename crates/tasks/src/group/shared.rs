//! What the handles and the tasks of a group share, and how a task is let in.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::nested::Handover;
use super::threads::Threads;
use crate::context::{Flag, GroupId, Lineage};
use crate::drain::Drained;
use crate::lineage::{HoldsPermits, PermitId};
use crate::permits::Acquire;
use crate::roster::{HasRoster, Label, Names, Roster, RosterEntry};
use crate::stats::Counters;
use crate::task::{TaskGuard, TaskPermit};
use crate::{AtLimit, Context, Permits, Refusal, Refused, Running, current};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) permits: Arc<Permits>,
    /// For a group made inside a task: the permits to borrow from where they are free.
    pub(crate) lent: Option<Arc<Permits>>,
    /// For a group made inside a task: what runs on the permit of that task.
    pub(crate) handover: Option<Arc<Handover>>,
    /// The group that answers for its tasks too.
    pub(crate) parent: Option<Arc<Self>>,
    pub(crate) unwind: Duration,
    /// The service's own context, for detached tasks.
    pub(crate) service: Context,
    pub(crate) group: GroupId,
    pub(crate) lineage: Arc<Lineage>,
    pub(crate) closing: Arc<Flag>,
    pub(crate) abort: Arc<Flag>,
    pub(crate) roster: Roster,
    pub(crate) names: Arc<Names>,
    pub(crate) threads: Arc<Threads>,
    pub(crate) counters: Counters,
}

/// Where work runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// In a runtime's task.
    Polled,
    /// On a runtime's thread for such work.
    Blocking,
    /// On a thread of its own.
    Thread,
}

impl Shared {
    /// Lets a task in without waiting for it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        cx: &Context,
        label: &Label,
        place: Place,
    ) -> Result<TaskGuard, Refusal> {
        // First, since at the deadline of a drain `cx` ends too, and that is not its owner's doing.
        if self.closing.is_raised() {
            return Err(Refusal::Draining);
        }
        cx.check()?;
        if cx.reenters(self.group) {
            return Err(Refusal::Nested { group: self.name.clone() });
        }
        let permit = self.try_permit(place).map_err(Refusal::AtLimit)?;
        self.enter(permit, label, Instant::now())
    }

    /// The submitter waits for a permit: this is the backpressure.
    ///
    /// Cancel safe: dropped while it waits, it leaves the line, and a permit that was just handed to
    /// it goes to the next.
    pub(crate) async fn wait(
        self: Arc<Self>,
        cx: Context,
        label: Label,
    ) -> Result<TaskGuard, Refusal> {
        let since = Instant::now();
        let permit = self.driving(cx.until_interrupted(Acquire::one(Arc::clone(&self.permits))));
        tokio::select! {
            biased;
            () = self.closing.raised() => return Err(Refusal::Draining),
            permit = permit => permit?,
        };
        let now = Instant::now();
        self.counters.waited(now - since);
        self.enter(TaskPermit::Own, &label, now)
    }

    /// On the roster with its permit; unless admission is closed: see the group's first invariant.
    #[inline]
    fn enter(
        self: &Arc<Self>,
        permit: TaskPermit,
        label: &Label,
        since: Instant,
    ) -> Result<TaskGuard, Refusal> {
        let entry = if self.parent.is_none() {
            let closed = || self.closing.is_raised();
            RosterEntry::enter(Arc::clone(self), label.clone(), since, None, true, closed)
        } else {
            self.list_in(self, label, since)
        };
        match (entry, permit) {
            (Some(entry), permit) => Ok(TaskGuard { permit, entry }),
            (None, TaskPermit::Own) => {
                self.permits.give_back();
                Err(Refusal::Draining)
            }
            (None, TaskPermit::Lent { .. }) => Err(Refusal::Draining),
        }
    }

    /// On the roster of `group`, which is this one or answers for it, and of all above. Those above
    /// come first, so that a drain of any of them either sees the entry or has closed this group.
    fn list_in(
        &self,
        group: &Arc<Self>,
        label: &Label,
        since: Instant,
    ) -> Option<RosterEntry<Self>> {
        let closed = || self.closing.is_raised();
        let (of, own) = (Arc::clone(group), label.clone());
        let Some(parent) = &group.parent else {
            let is_own = std::ptr::eq(self, &**group);
            return RosterEntry::enter(of, own, since, None, is_own, closed);
        };
        let outer = Box::new(self.list_in(parent, label, since)?);
        let (number, is_own) = (Some(outer.permit().number), std::ptr::eq(self, &**group));
        let mut entry = RosterEntry::enter(of, own, since, number, is_own, closed)?;
        entry.outer = Some(outer);
        Some(entry)
    }

    /// A permit of its own last: what borrows one runs beside the maker, not in its place.
    fn try_permit(&self, place: Place) -> Result<TaskPermit, AtLimit> {
        // What borrows is spawned, and there must be somewhere to.
        let may_borrow = !matches!(place, Place::Polled) || Handle::try_current().is_ok();
        if let (Some(lent), true) = (&self.lent, may_borrow) {
            match Permits::try_acquire_owned(lent) {
                Ok(permit) => return Ok(TaskPermit::Lent { _permit: permit }),
                Err(full) if !self.hands_over_to(place) => return Err(full),
                Err(_) => {}
            }
        }
        self.permits.take()?;
        Ok(TaskPermit::Own)
    }

    /// Whether what runs there may have a permit of the group's own, or wait for one. One that the
    /// maker hands over is not for all.
    pub(crate) fn hands_over_to(&self, place: Place) -> bool {
        match (&self.handover, place) {
            (None, _) | (_, Place::Polled) => true,
            (Some(handover), Place::Blocking) => handover.may_block(),
            (Some(_), Place::Thread) => false,
        }
    }

    /// Awaits `wanted`, and meanwhile runs what has the permit of the maker, who waits.
    pub(crate) async fn driving<F: Future>(&self, wanted: F) -> F::Output {
        match &self.handover {
            None => wanted.await,
            Some(handover) => handover.driving(wanted).await,
        }
    }

    pub(crate) fn refuse<W>(&self, why: Refusal, work: W) -> Refused<W> {
        self.counters.rejected(&why, 1);
        Refused { why, retry_after: None, work }
    }

    /// Ends it at once: nothing more is let in, contexts are cancelled, futures dropped.
    pub(crate) fn end(&self) {
        self.closing.raise();
        self.lineage.kill.raise();
        self.abort.raise();
    }

    /// Whether it has ended, and nothing of it is left.
    pub(crate) fn is_over(&self) -> bool {
        self.closing.is_raised() && self.roster.is_empty(&[])
    }
}

impl HasRoster for Shared {
    fn roster(&self) -> &Roster {
        &self.roster
    }
}

impl HoldsPermits for Shared {
    fn holds(&self, permit: PermitId) -> bool {
        self.roster.holds(permit)
    }
}

/// A drain from inside one of its tasks is for all the others: that task, and those that wait for
/// it, would be waited for in vain.
impl Drained for Shared {
    fn name(&self) -> &str {
        &self.name
    }

    fn unwind(&self) -> Duration {
        self.unwind
    }

    fn ended(&self) -> u64 {
        self.roster.ledger().ended()
    }

    fn handed_back(&self) -> u64 {
        self.counters.handed_back.get()
    }

    fn close(&self) {
        self.closing.raise();
    }

    fn list(&self) -> Vec<Running> {
        self.look().1
    }

    /// A thread that is not joined is there too.
    fn look(&self) -> (u64, Vec<Running>) {
        let (mut running, ended) = self.roster.look(&current::numbers());
        // After the roster: it is listed here before it leaves there.
        for (number, thread) in self.threads.list(&self.lineage.kill) {
            running.entry(number).or_insert(thread);
        }
        let mut running: Vec<_> = running.into_values().collect();
        running.sort_by(Running::longest_first);
        (ended, running)
    }

    async fn emptied(&self) {
        let gone = async {
            self.roster.emptied(&current::numbers()).await;
            self.threads.gone(&self.lineage.kill).await;
        };
        self.driving(gone).await;
    }

    fn kill(&self) {
        self.lineage.kill.raise();
    }

    fn abort(&self) -> bool {
        self.abort.raise();
        true
    }
}
