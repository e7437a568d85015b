//! Holding back what is new while deliveries of an earlier life are on their way back.
//!
//! After a crash the consumer hands out later messages at once, and what the crash left unsettled
//! only when its windows have ended, each at its own time. That would turn the order around, between
//! what is new and what is not, and among what is not. So all of it waits here until nothing older can
//! come, and goes on in the order of the stream. Redeliveries that are due go
//! before what is new, and all of an earlier life are due one window after this one began: so a new
//! message that was asked for after that proves that nothing older is left. A server that is busy, or was
//! restarted, may be late with what is due. So before anything new is asked for then, it is asked how much
//! is still unsettled, and what is missing here is asked for and waited for, for a quarter of a window at
//! most: it may be delayed, or somebody else may have it.
//!
//! The same when deliveries went elsewhere: to an earlier life whose question was still open when it ended,
//! or into a connection that was lost. The server counts all deliveries, so a gap in that count shows it.

use std::collections::{BTreeSet, HashSet};
use std::num::NonZero;
use std::time::Duration;

use tokio::time::Instant;

/// How much later than its time the server may get to a redelivery.
pub(super) const LATE: Duration = Duration::from_millis(250);

/// What an earlier life has left behind, and what waits for it.
#[derive(Debug)]
pub(super) struct Hold {
    /// The last message that was delivered before.
    floor: u64,
    /// How many were unsettled.
    unsettled: usize,
    seen: HashSet<u64>,
    /// When all of them are due.
    due: Instant,
    /// Until when only what is missing is asked for.
    until: Instant,
    held: BTreeSet<u64>,
    /// How many were missing when it was put off; none if something was asked for since.
    missing: usize,
    /// Whether the server has nothing more that is older, or is not waited for any longer.
    is_let_be: bool,
}

/// What becomes of a message that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Passes,
    /// It waits for older ones.
    Waits,
}

impl Hold {
    /// `None` where there is nothing to wait for.
    pub(super) fn new(floor: u64, unsettled: usize, until: Instant) -> Option<Self> {
        let hold = Self {
            floor,
            unsettled,
            seen: HashSet::new(),
            due: until,
            until,
            held: BTreeSet::new(),
            missing: 0,
            is_let_be: false,
        };
        (unsettled > 0).then_some(hold)
    }

    /// Takes note of deliveries that went elsewhere, before that of the message behind the floor.
    pub(super) fn miss(&mut self, missed: usize, floor: u64, until: Instant) {
        self.unsettled += missed;
        self.floor = self.floor.max(floor);
        self.due = self.due.max(until);
        self.until = self.until.max(until);
        self.is_let_be = false;
    }

    /// A message that has arrived waits with the others.
    pub(super) fn wait(&mut self, seq: u64) {
        self.held.insert(seq);
    }

    /// Takes note of a message that was asked for at some time.
    pub(super) fn look(&mut self, seq: u64, asked: Instant) -> Verdict {
        self.missing = 0;
        if seq <= self.floor {
            self.seen.insert(seq);
        } else if asked >= self.until {
            self.unsettled = 0;
            return Verdict::Passes;
        }
        self.held.insert(seq);
        Verdict::Waits
    }

    /// Takes note that nothing came when it was asked for.
    pub(super) fn look_at_nothing(&mut self, asked: Instant) {
        self.missing = 0;
        if asked >= self.until {
            self.unsettled = 0;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.seen.len() >= self.unsettled
    }

    /// Whether the server is to be asked what is left, before anything new is.
    pub(super) fn is_in_question(&self, now: Instant) -> bool {
        now >= self.until && !self.is_over() && !self.is_let_be
    }

    /// The server has so many that are not here: waits for them, though not for ever.
    pub(super) fn hear_of_missing(&mut self, missing: usize, window: Duration, now: Instant) {
        if missing == 0 || now >= self.due + window / 4 {
            self.is_let_be = true;
        } else {
            self.until = now + window / 40;
            // What is late comes only if it is asked for, once each time.
            self.missing = missing;
        }
    }

    /// How many are to be asked for though they are not due yet, or are late.
    pub(super) const fn missing(&self) -> Option<NonZero<usize>> {
        NonZero::new(self.missing)
    }

    /// When to ask again: what is held shows that only new messages would come before.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        let any_new = self.held.last().is_some_and(|last| *last > self.floor);
        (any_new && self.missing == 0 && now < self.until).then_some(self.until)
    }

    /// A message that was looked at needs no order.
    pub(super) fn let_pass(&mut self, seq: u64) {
        self.held.remove(&seq);
    }

    /// Only these wait from now on.
    pub(super) fn only(&mut self, held: Vec<u64>) {
        self.held = held.into_iter().collect();
    }

    pub(super) fn held(&self) -> impl Iterator<Item = u64> {
        self.held.iter().copied()
    }

    /// What waited, in the order of the stream.
    pub(super) fn into_held(self) -> Vec<u64> {
        self.held.into_iter().collect()
    }
}
