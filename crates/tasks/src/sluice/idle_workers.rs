//! Workers that wait, and which of them were called.
//!
//! Invariants:
//! 1. One that was woken has no waker here, until it looks or goes.
//! 2. A call stands for something that a worker could start. What somebody took, or what is there no more,
//!    nobody was called for: so one that is late to look keeps no other from what comes next.

use std::task::Waker;

use crate::waitlist::WaitList;

#[derive(Debug)]
pub(super) struct IdleWorkers {
    waiting: WaitList<Option<Waker>>,
    /// How many were woken and have not looked yet.
    woken: u32,
    /// How many of those were called for something that is still there, as far as is known.
    called: u32,
}

impl IdleWorkers {
    pub(super) const fn new() -> Self {
        Self { waiting: WaitList::new(), woken: 0, called: 0 }
    }

    /// How many there are, woken or not.
    pub(super) const fn count(&self) -> u32 {
        self.waiting.len() + self.woken
    }

    /// Whether there is one that was not woken.
    pub(super) const fn has_sleeper(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) const fn called(&self) -> u32 {
        self.called
    }

    /// There is no more for workers than this.
    pub(super) fn call_at_most(&mut self, count: u32) {
        self.called = self.called.min(count);
    }

    /// Somebody took something.
    pub(super) const fn taken(&mut self) {
        self.called = self.called.saturating_sub(1);
    }

    /// Waits from now on, behind those who do already.
    pub(super) fn wait(&mut self, waker: Option<Waker>) -> u32 {
        self.waiting.push_back(waker)
    }

    /// The waker of one that was not woken.
    pub(super) fn sleeper(&mut self, at: u32) -> Option<&mut Option<Waker>> {
        self.waiting.get_mut(at).filter(|waker| waker.is_some())
    }

    /// Wakes the one that waits for longest.
    pub(super) fn call(&mut self) -> Option<Waker> {
        let waker = self.waiting.pop_front()?.take();
        self.woken += 1;
        self.called += 1;
        waker
    }

    /// One looks, or goes; it gives up its waker if it was not woken.
    pub(super) fn leave(&mut self, place: Option<u32>) -> Option<Waker> {
        let waiter = self.waiting.free(place?)?;
        self.woken -= u32::from(waiter.is_none());
        self.called = self.called.min(self.woken);
        waiter
    }

    /// One that was woken went without looking: another looks for it.
    pub(super) fn pass_on(&mut self) -> Option<Waker> {
        self.taken();
        self.call()
    }
}
