//! Groups that are made inside a task: they run on what that task holds.
//!
//! The task that makes such groups, their maker, holds one permit. While the maker waits, for
//! whatever it is, it does nothing itself, so its permit is good for one piece of the groups' work.
//! That work is not spawned: it is polled with the maker, right after the maker's own poll had to
//! wait. So the two never run at once, though nobody counts, and nobody waits for a permit that the
//! one who waits for it holds.
//!
//! Invariants:
//! 1. What runs on the maker's permit is polled only by the maker's own task, and only once the maker
//!    waits. A maker that is blocking work is never polled: there, what it awaits itself drives it.
//! 2. At most one piece of work of all the groups of a maker has its permit. All others hold permits
//!    of the group that theirs was made of, which they took where they were free and never waited
//!    for.
//! 3. Blocking work cannot be polled: it takes the permit to a thread, and until it is back the maker
//!    is not polled. A maker that is on a thread itself cannot be held up so: its blocking work only
//!    borrows. So does a thread of a group's own, which may well wait for what its maker sends.
//! 4. A group that was made inside a task ends with it, before the task's own permit and its entry on
//!    the roster come back. The entry is what a drain waits for, so nothing of the group is let in
//!    or runs after its parent was drained.
//!
//! `docs/rules.md#task-5`.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Poller, Poll, Wake, Waker};

use sluicegate_schedule::Invalid;

use super::shared::Shared;
use crate::context::GroupId;
use crate::panic::{catch, wake_all};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::{Permits, current};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What runs on the permit of a maker, and who drives it.
pub(crate) struct Handover {
    state: Mutex<State>,
    /// The permit that is handed over, once at a time: it stands for the maker's own.
    pub(crate) permits: Arc<Permits>,
    /// The maker's groups share it, so to whoever holds it they are one.
    pub(crate) group: GroupId,
    /// How many threads have the permit; more than one only while one is about to tell.
    on_thread: AtomicU64,
    /// Whether the maker is on a thread, where nobody polls it.
    maker_blocks: bool,
    /// Where the maker's own permit was handed over to it.
    above: Option<Arc<Self>>,
}

#[derive(Default)]
struct State {
    /// One has the permit; others may be about to tell that they had it.
    work: Vec<Work>,
    /// Whether somebody polls the work right now.
    is_polled: bool,
    /// Whether there is a reason to poll.
    is_woken: bool,
    /// Whether the maker is gone for good.
    is_over: bool,
    drivers: Vec<Waker>,
}

/// A maker's permit while it is on a thread.
#[derive(Debug)]
pub(crate) struct OnThread(Arc<Handover>);

/// The groups that one task made.
#[derive(Debug)]
pub(crate) struct Children {
    groups: Vec<Arc<Shared>>,
    pub(crate) handover: Arc<Handover>,
}

impl Handover {
    pub(crate) fn new(above: Option<Arc<Self>>, maker_blocks: bool) -> Result<Arc<Self>, Invalid> {
        let (state, on_thread) = (Mutex::new(State::default()), AtomicU64::new(0));
        let (permits, group) = (Arc::new(Permits::new(1)?), GroupId::next());
        Ok(Arc::new(Self { state, permits, group, on_thread, maker_blocks, above }))
    }

    /// Whether blocking work may have the permit: not where the maker would go on meanwhile.
    pub(crate) fn may_block(&self) -> bool {
        !self.maker_blocks && self.above.as_ref().is_none_or(|above| above.may_block())
    }

    /// Takes in work that has the permit.
    pub(crate) fn put(self: &Arc<Self>, work: Work) {
        let mut state = self.state.lock();
        if state.is_over {
            drop(state);
            return drop(work);
        }
        state.work.push(work);
        drop(state);
        self.wake_by_ref();
    }

    /// Awaits `wanted`, and drives the work meanwhile.
    pub(crate) async fn driving<F: Future>(self: &Arc<Self>, wanted: F) -> F::Output {
        let mut wanted = pin!(wanted);
        poll_fn(|poller| {
            if let Poll::Ready(output) = wanted.as_mut().poll(poller) {
                return Poll::Ready(output);
            }
            self.drive_if_awaited(poller);
            // The work may just have brought what is wanted.
            wanted.as_mut().poll(poller)
        })
        .await
    }

    /// Polls the work from within an await of its maker, if that is where this is: the way of makers
    /// that nobody polls. All others drive it once they wait.
    pub(crate) fn drive_if_awaited(self: &Arc<Self>, poller: &Poller<'_>) {
        if self.maker_blocks && current::made_with(self) {
            self.drive(poller);
        }
    }

    /// Polls the work, if it has a reason to be polled and nobody else does it.
    fn drive(self: &Arc<Self>, poller: &Poller<'_>) {
        self.call_back(poller.waker().clone());
        let mut state = self.state.lock();
        if state.is_polled || !state.is_woken {
            return;
        }
        state.is_polled = true;
        state.is_woken = false;
        let work = mem::take(&mut state.work);
        drop(state);
        let mut polled = Polled { of: self, work };
        let waker = Waker::from(Arc::clone(self));
        let mut poller = Poller::from_waker(&waker);
        // Panics are caught at the task's edge, inside.
        polled.work.retain_mut(|one| one.as_mut().poll(&mut poller).is_pending());
    }

    /// Has the waker called when there is something to drive, or the permit is back from a thread.
    fn call_back(&self, waker: Waker) {
        let mut state = self.state.lock();
        let unknown = !state.drivers.iter().any(|known| known.will_wake(&waker));
        let surplus = if unknown {
            state.drivers.push(waker);
            None
        } else {
            Some(waker)
        };
        drop(state);
        drop(surplus);
    }

    /// Takes the permit to a thread.
    pub(crate) fn to_thread(self: &Arc<Self>) -> OnThread {
        self.each_above(|handover| {
            handover.on_thread.fetch_add(1, Ordering::SeqCst);
        });
        OnThread(Arc::clone(self))
    }

    /// It, and all whose permit that is too.
    fn each_above(self: &Arc<Self>, mut each: impl FnMut(&Arc<Self>)) {
        let mut at = Some(self);
        while let Some(handover) = at {
            each(handover);
            at = handover.above.as_ref();
        }
    }

    /// Whether the permit is with its maker; else the poller is woken once it is.
    fn poll_back(&self, poller: &Poller<'_>) -> Poll<()> {
        if self.on_thread.load(Ordering::SeqCst) == 0 {
            return Poll::Ready(());
        }
        self.call_back(poller.waker().clone());
        if self.on_thread.load(Ordering::SeqCst) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Drops what is there, and what is still to come.
    fn clear(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let work = mem::take(&mut state.work);
        drop(state);
        drop(catch(|| drop(work)));
    }
}

impl Wake for Handover {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.is_woken = true;
        let drivers = mem::take(&mut state.drivers);
        drop(state);
        wake_all(drivers);
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        self.0.each_above(|handover| {
            handover.on_thread.fetch_sub(1, Ordering::SeqCst);
            handover.wake_by_ref();
        });
    }
}

/// Work while it is polled: put back afterwards, however that ends.
struct Polled<'a> {
    of: &'a Arc<Handover>,
    work: Vec<Work>,
}

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        let mut work = mem::take(&mut self.work);
        let mut state = self.of.state.lock();
        state.is_polled = false;
        // What was put in meanwhile came later.
        work.append(&mut state.work);
        let over = if state.is_over {
            work
        } else {
            state.work = work;
            Vec::new()
        };
        let again = state.is_woken;
        drop(state);
        drop(catch(|| drop(over)));
        if again {
            self.of.wake_by_ref();
        }
    }
}

impl Children {
    pub(crate) const fn new(handover: Arc<Handover>) -> Self {
        Self { groups: Vec::new(), handover }
    }

    pub(crate) fn push(&mut self, child: Arc<Shared>) {
        // A task that goes on for long may make many: those that are over are forgotten.
        if self.groups.len() == self.groups.capacity() {
            self.groups.retain(|child| !child.is_over());
        }
        self.groups.push(child);
    }

    /// Whether the maker has its permit; else the poller is woken once it has.
    pub(crate) fn poll_permit(&self, poller: &Poller<'_>) -> Poll<()> {
        self.handover.poll_back(poller)
    }

    /// Polls what has the permit of the maker, who waits.
    pub(crate) fn drive(&self, poller: &Poller<'_>) {
        self.handover.drive(poller);
    }

    /// Ends them all, and waits until nothing of them is left.
    pub(crate) async fn ended(self: Box<Self>) {
        self.groups.iter().for_each(|child| child.end());
        let mut all = pin!(async {
            for child in &self.groups {
                // Its threads are on their way out, or gone: a drain joins them.
                child.roster.emptied(&[]).await;
            }
        });
        // Whichever of them it is that is waited for: another may have to go first.
        poll_fn(|poller| {
            self.drive(poller);
            all.as_mut().poll(poller)
        })
        .await;
    }
}

impl Drop for Children {
    /// Also where nobody could wait for them: the runtime went away.
    fn drop(&mut self) {
        self.groups.iter().for_each(|child| child.end());
        self.handover.clear();
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("on_thread", &self.on_thread).finish_non_exhaustive()
    }
}
