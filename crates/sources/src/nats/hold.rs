//! Holding back what is new while deliveries of an earlier life are on their way back.
//!
//! After a crash the consumer hands out later messages at once, and what the crash left unsettled
//! only when its windows have ended. That would turn the order around. Redeliveries that are due go
//! before what is new, and all of an earlier life are due one window after this one began: so a new
//! message that was asked for after that proves that nothing older is left. A server that is busy may be
//! late with what is due, so before anything new is asked for then, it is asked how much is still
//! unsettled, and waited for if that is more than what is here.
//!
//! The same when deliveries went elsewhere: to an earlier life whose question was still open when it ended,
//! or into a connection that was lost. The server counts all deliveries, so a gap in that count shows it.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

/// How much later than its time the server may get to a redelivery.
pub(super) const LATE: Duration = Duration::from_millis(250);
/// How often it is put off at most.
const MOST_PUT_OFF: u32 = 4;

/// What an earlier life has left behind, and what waits for it.
#[derive(Debug)]
pub(super) struct Hold {
    /// The last message that was delivered before.
    floor: u64,
    /// How many were unsettled.
    unsettled: usize,
    seen: HashSet<u64>,
    /// When all of them are due.
    until: Instant,
    held: Vec<u64>,
    /// How often it was put off because more was unsettled than there is here.
    put_off: u32,
    /// Whether it was put off and nothing was asked for since.
    is_curious: bool,
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
            until,
            held: Vec::new(),
            put_off: 0,
            is_curious: false,
        };
        (unsettled > 0).then_some(hold)
    }

    /// Takes note of deliveries that went elsewhere, before that of the message behind the floor.
    pub(super) fn miss(&mut self, missed: usize, floor: u64, until: Instant) {
        self.unsettled += missed;
        self.floor = self.floor.max(floor);
        self.until = self.until.max(until);
    }

    /// Takes note of a message that was asked for at some time.
    pub(super) fn look(&mut self, seq: u64, asked: Instant) -> Verdict {
        self.is_curious = false;
        if seq <= self.floor {
            self.seen.insert(seq);
            return Verdict::Passes;
        }
        if asked >= self.until {
            self.unsettled = 0;
            return Verdict::Passes;
        }
        if !self.held.contains(&seq) {
            self.held.push(seq);
        }
        Verdict::Waits
    }

    /// Takes note that nothing came when it was asked for.
    pub(super) fn look_at_nothing(&mut self, asked: Instant) {
        self.is_curious = false;
        if asked >= self.until {
            self.unsettled = 0;
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.seen.len() >= self.unsettled
    }

    /// Whether the server is to be asked what is left, before anything new is.
    pub(super) fn is_in_question(&self, now: Instant) -> bool {
        now >= self.until && !self.is_over() && self.put_off < MOST_PUT_OFF
    }

    /// Waits longer for what the server still has.
    pub(super) fn put_off(&mut self, until: Instant) {
        self.put_off += 1;
        self.until = until;
        // What is late comes only if it is asked for, once each time.
        self.is_curious = true;
    }

    pub(super) const fn is_curious(&self) -> bool {
        self.is_curious
    }

    /// Waits no longer than until what is due now has come.
    pub(super) const fn let_be(&mut self) {
        self.put_off = MOST_PUT_OFF;
    }

    /// When to ask again: what is held shows that only new messages would come before.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        let is_known = !self.held.is_empty() && !self.is_curious;
        (is_known && now < self.until).then_some(self.until)
    }

    pub(super) fn held(&self) -> &[u64] {
        &self.held
    }

    pub(super) fn into_held(mut self) -> Vec<u64> {
        self.held.sort_unstable();
        self.held
    }
}
