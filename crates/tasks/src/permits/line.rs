//! Those who wait for permits, in order, and what is set aside for the first of them.
//!
//! Who wants many is given them as they come back, and keeps its place at the front meanwhile: so
//! it is not starved by those who want few, and while anybody waits no permit is free.

use std::mem;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::panic::wake_all;
use crate::waitlist::WaitList;

#[derive(Debug)]
pub(super) struct Line {
    waiters: WaitList<Waiter>,
    /// How many permits all who wait still need.
    owed: u64,
}

#[derive(Debug)]
struct Waiter {
    waker: Option<Waker>,
    since: Instant,
    wanted: u32,
    /// Set aside for it so far.
    got: u32,
    /// The limit that was lowered below what it wants.
    too_many_for: Option<u32>,
}

/// Wakers to be called once the lock is left. Most often there is one, which takes no memory.
#[derive(Default)]
pub(super) struct Wakers {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakers {
    fn extend(&mut self, waker: Option<Waker>) {
        match &self.first {
            None => self.first = waker,
            Some(_) => self.more.extend(waker),
        }
    }

    pub(super) fn wake(self) {
        wake_all(self.first.into_iter().chain(self.more));
    }
}

/// What became of asking for permits.
pub(super) enum Outcome {
    Granted,
    /// In line, at that place.
    Waits(u32),
    TooMany {
        limit: u32,
    },
}

impl Line {
    pub(super) const fn new() -> Self {
        Self { waiters: WaitList::new(), owed: 0 }
    }

    pub(super) const fn len(&self) -> u32 {
        self.waiters.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many permits all who wait still need.
    pub(super) const fn owed(&self) -> u64 {
        self.owed
    }

    pub(super) fn oldest_wait(&self) -> Duration {
        self.waiters.front().map_or(Duration::ZERO, |first| first.since.elapsed())
    }

    /// Joins the end of the line, with `got` set aside if it is the first.
    pub(super) fn join(&mut self, wanted: u32, got: u32, waker: Option<Waker>) -> u32 {
        self.owed += u64::from(wanted - got);
        let since = Instant::now();
        self.waiters.push_back(Waiter { waker, since, wanted, got, too_many_for: None })
    }

    /// Sets permits aside for the first, then the next, and so on; those that have all they want
    /// are let in, and their wakers are to be called.
    pub(super) fn grant(&mut self, mut permits: u32, wakers: &mut Wakers) {
        self.owed -= u64::from(permits);
        while let Some(first) = self.waiters.front_mut() {
            let more = permits.min(first.wanted - first.got);
            first.got += more;
            permits -= more;
            if first.got < first.wanted {
                break;
            }
            wakers.extend(first.waker.take());
            self.waiters.pop_front();
        }
    }

    /// Turns away all that want more than `limit`; returns what was set aside for them.
    pub(super) fn turn_away(&mut self, limit: u32, wakers: &mut Wakers) -> u32 {
        let mut returned = 0;
        let mut next = self.waiters.first();
        while let Some(at) = next {
            next = self.waiters.behind(at);
            if let Some(waiter) = self.waiters.get_mut(at)
                && waiter.wanted > limit
            {
                returned += waiter.got;
                self.owed -= u64::from(waiter.wanted - waiter.got);
                waiter.too_many_for = Some(limit);
                wakers.extend(waiter.waker.take());
                self.waiters.take_out(at);
            }
        }
        returned
    }

    /// What became of a waiter. One that still waits leaves its latest waker and gets the one before
    /// for it, to be dropped outside of the lock.
    pub(super) fn look(&mut self, at: u32, waker: &mut Option<Waker>) -> Outcome {
        let outcome = match self.waiters.get_mut(at) {
            None => Outcome::Granted,
            Some(Waiter { too_many_for: Some(limit), .. }) => Outcome::TooMany { limit: *limit },
            Some(waiter) if waiter.got == waiter.wanted => Outcome::Granted,
            Some(waiter) => {
                mem::swap(&mut waiter.waker, waker);
                return Outcome::Waits(at);
            }
        };
        self.waiters.free(at);
        outcome
    }

    /// Leaves the line; returns what was set aside, and the waker, to be dropped outside of the lock.
    pub(super) fn leave(&mut self, at: u32) -> (u32, Option<Waker>) {
        let Some(waiter) = self.waiters.free(at) else { return (0, None) };
        if waiter.too_many_for.is_some() {
            return (0, waiter.waker);
        }
        self.owed -= u64::from(waiter.wanted - waiter.got);
        (waiter.got, waiter.waker)
    }
}
