//! A one-way switch: to look at, and to wait for.
//!
//! Invariants:
//! 1. `raised` is set before the wakers are taken, and a waker is left before `raised` is looked at
//!    again: a raise and somebody who begins to wait never miss each other.
//! 2. A flag is raised with every flag above it, and knows none of those below it: whoever waits
//!    leaves a waker with each flag of the chain. So a child costs its parent nothing, and leaves
//!    nothing behind there when it goes. Chains are short, and may be long.
//! 3. The lock is the innermost: no waker is cloned, called or dropped under it.

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

use std::future::Future;
use std::mem;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, Waker};

use crate::panic::{catch, wake_all};
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::waitlist::WaitList;

#[derive(Debug)]
pub(crate) struct Flag {
    raised: AtomicBool,
    waiting: Mutex<WaitList<Option<Waker>>>,
    above: Option<Arc<Self>>,
}

/// A wait for a flag, made to be polled often: after the first time a poll is a look at the flag,
/// for as long as the same task polls. Dropping it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Raised<F: Deref<Target = Flag>> {
    flag: F,
    registration: Registration,
}

/// The waker of one task, left with a chain of flags. Its owner gives the same flags, in the same
/// order, to every call, and calls [`Registration::leave`] in the end.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    waker: Option<Waker>,
    first: Option<u32>,
    more: Vec<u32>,
}

impl Flag {
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// A flag that is raised when this one is, and by itself.
    pub(crate) fn below(self: &Arc<Self>) -> Self {
        Self::with(Some(Arc::clone(self)))
    }

    fn with(above: Option<Arc<Self>>) -> Self {
        Self { raised: AtomicBool::new(false), waiting: Mutex::new(WaitList::new()), above }
    }

    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        let mut at = self;
        while !at.is_raised_itself() {
            let Some(above) = &at.above else { return false };
            at = above;
        }
        true
    }

    #[inline]
    pub(crate) fn is_raised_itself(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        let mut waiting = self.waiting.lock();
        let mut wakers = Vec::with_capacity(waiting.len() as usize);
        while let Some(waker) = waiting.pop_front() {
            wakers.extend(waker.take());
        }
        drop(waiting);
        wake_all(wakers);
    }

    pub(crate) const fn raised(&self) -> Raised<&Self> {
        Raised::new(self)
    }

    /// This flag, and those it is raised with.
    #[inline]
    pub(crate) fn chain(&self) -> impl Iterator<Item = &Self> + Clone {
        std::iter::successors(Some(self), |flag| flag.above.as_deref())
    }

    /// The one that all of the chain are raised with.
    pub(crate) fn topmost(&self) -> &Self {
        self.chain().last().unwrap_or(self)
    }

    fn register(&self, waker: Waker) -> u32 {
        self.waiting.lock().push_back(Some(waker))
    }

    fn replace(&self, at: u32, waker: Waker) {
        let mut waiting = self.waiting.lock();
        let earlier = waiting.get_mut(at).and_then(|place| place.replace(waker));
        drop(waiting);
        drop(earlier);
    }

    fn forget(&self, at: u32) -> Option<Waker> {
        self.waiting.lock().free(at).flatten()
    }
}

impl Drop for Flag {
    /// One after the other, not each within the one below: a chain may be longer than the stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(flag) = above {
            above = Arc::into_inner(flag).and_then(|mut last| last.above.take());
        }
    }
}

impl Default for Flag {
    fn default() -> Self {
        Self::new()
    }
}

impl Registration {
    pub(crate) const fn new() -> Self {
        Self { waker: None, first: None, more: Vec::new() }
    }

    /// Whether one of the flags is raised; else the poller is woken once one is.
    pub(crate) fn poll<'f>(
        &mut self,
        mut flags: impl Iterator<Item = &'f Flag> + Clone,
        poller: &Poller<'_>,
    ) -> Poll<()> {
        if flags.clone().any(Flag::is_raised_itself) {
            return Poll::Ready(());
        }
        let waker = poller.waker();
        if self.knows(waker) {
            return Poll::Pending;
        }
        // Unknown until it is with every flag: dropping an earlier one may panic.
        let earlier = self.waker.take();
        for (nth, flag) in flags.clone().enumerate() {
            match self.at(nth) {
                Some(at) => flag.replace(at, waker.clone()),
                None => self.push(flag.register(waker.clone())),
            }
        }
        self.waker = Some(waker.clone());
        drop(earlier);
        // Again, now that a raise from here on finds the waker.
        if flags.any(Flag::is_raised_itself) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether that waker is the one it has left.
    pub(crate) fn knows(&self, waker: &Waker) -> bool {
        self.waker.as_ref().is_some_and(|known| known.will_wake(waker))
    }

    /// Takes the waker back from everywhere.
    pub(crate) fn leave<'f>(&mut self, flags: impl Iterator<Item = &'f Flag>) {
        let left = mem::take(self);
        for (nth, flag) in flags.enumerate() {
            let Some(at) = left.at(nth) else { break };
            let waker = flag.forget(at);
            // One whose drop panics keeps the others in no list.
            drop(catch(|| drop(waker)));
        }
    }

    fn at(&self, nth: usize) -> Option<u32> {
        match nth {
            0 => self.first,
            _ => self.more.get(nth - 1).copied(),
        }
    }

    fn push(&mut self, at: u32) {
        match self.first {
            None => self.first = Some(at),
            Some(_) => self.more.push(at),
        }
    }
}

impl<F: Deref<Target = Flag>> Raised<F> {
    pub(crate) const fn new(flag: F) -> Self {
        Self { flag, registration: Registration::new() }
    }
}

impl<F: Deref<Target = Flag> + Unpin> Future for Raised<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<()> {
        let Self { flag, registration } = &mut *self;
        registration.poll(flag.chain(), poller)
    }
}

impl<F: Deref<Target = Flag>> Drop for Raised<F> {
    fn drop(&mut self) {
        self.registration.leave(self.flag.chain());
    }
}
