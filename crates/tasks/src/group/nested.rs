//! Groups that are made inside a task: they run on what that task holds.
//!
//! The task that makes such a group, its maker, holds one permit. While the maker waits for the
//! group it does nothing itself, so its permit is good for one piece of the group's work. That work
//! is not spawned: it is polled by whoever awaits the group, which is the maker's own task. So the
//! two never run at once, though nobody counts, and nobody waits for a permit that the one who waits
//! for it holds.
//!
//! Invariants:
//! 1. What runs on the maker's permit is polled only from within a wait for the group: a task's
//!    result, a submit that is held up, a drain. Nothing else drives it: whoever waits for it by
//!    another way, such as a channel, waits for ever.
//! 2. At most one piece of work has the maker's permit. All others hold permits of the group that
//!    it was made of, which they took where they were free and never waited for.
//! 3. Blocking work cannot be polled: it takes the permit to a thread, and until it is back the maker
//!    is not polled. (The poll of the maker that started the thread may still be on its way out.)
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

use super::shared::Shared;
use crate::drain::Drained;
use crate::sync::{AtomicBool, Mutex, Ordering};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What runs on the permit of a maker, and who drives it.
pub(crate) struct Handover {
    state: Mutex<State>,
    /// Whether the permit is on a thread.
    on_thread: AtomicBool,
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
#[derive(Debug, Default)]
pub(crate) struct Children(Vec<Arc<Shared>>);

impl Handover {
    pub(crate) fn new(above: Option<Arc<Self>>) -> Arc<Self> {
        let (state, on_thread) = (Mutex::new(State::default()), AtomicBool::new(false));
        Arc::new(Self { state, on_thread, above })
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
            self.drive(poller);
            // The work may just have brought what is wanted.
            wanted.as_mut().poll(poller)
        })
        .await
    }

    /// Polls the work, if it has a reason to be polled and nobody else does it.
    pub(crate) fn drive(self: &Arc<Self>, poller: &Poller<'_>) {
        self.call_back(poller.waker().clone());
        let mut state = self.state.lock();
        if state.is_polled || !state.is_woken {
            return;
        }
        state.is_polled = true;
        state.is_woken = false;
        let mut work = mem::take(&mut state.work);
        drop(state);
        let waker = Waker::from(Arc::clone(self));
        // Panics are caught at the task's edge, inside.
        work.retain_mut(|one| one.as_mut().poll(&mut Poller::from_waker(&waker)).is_pending());
        let mut state = self.state.lock();
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
        drop(over);
        if again {
            self.wake_by_ref();
        }
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
        self.set_on_thread(true);
        OnThread(Arc::clone(self))
    }

    fn set_on_thread(self: &Arc<Self>, on_thread: bool) {
        let mut at = Some(self);
        while let Some(handover) = at {
            handover.on_thread.store(on_thread, Ordering::SeqCst);
            if !on_thread {
                handover.wake_by_ref();
            }
            at = handover.above.as_ref();
        }
    }

    /// Whether the permit is with its maker; else the poller is woken once it is.
    fn poll_back(&self, poller: &Poller<'_>) -> Poll<()> {
        if !self.on_thread.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        self.call_back(poller.waker().clone());
        if self.on_thread.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Drops what is there, and what is still to come.
    fn clear(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let work = mem::take(&mut state.work);
        drop(state);
        drop(work);
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
        drivers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        self.0.set_on_thread(false);
    }
}

impl Children {
    pub(crate) fn push(&mut self, child: Arc<Shared>) {
        // A task that goes on for long may make many: those that are over are forgotten.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|child| !child.is_over());
        }
        self.0.push(child);
    }

    /// Whether the maker has its permit; else the poller is woken once it has.
    pub(crate) fn poll_permit(&self, poller: &Poller<'_>) -> Poll<()> {
        let mut away = self.0.iter().filter_map(|child| child.handover.as_ref());
        if away.any(|handover| handover.poll_back(poller).is_pending()) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }

    /// Ends them all, and waits until nothing of them is left.
    pub(crate) async fn ended(self: Box<Self>) {
        self.0.iter().for_each(|child| child.end());
        for child in &self.0 {
            child.emptied().await;
        }
    }
}

impl Drop for Children {
    /// Also where nobody could wait for them: the runtime went away.
    fn drop(&mut self) {
        for child in &self.0 {
            child.end();
            if let Some(handover) = &child.handover {
                handover.clear();
            }
        }
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("on_thread", &self.on_thread).finish_non_exhaustive()
    }
}
