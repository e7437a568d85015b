//! What is in memory of one lane: the messages of one tenant for one pool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::super::row::Content;
use super::turns::Turn;

/// High priority or not, as an index.
pub(crate) type Class = usize;
pub(super) const HIGH: Class = 0;
pub(crate) const REGULAR: Class = 1;

/// The order within a lane: high priority first, then by number.
pub(super) type Rank = (Class, i64);

pub(super) const fn rank(seq: i64, high: bool) -> Rank {
    (if high { HIGH } else { REGULAR }, seq)
}

/// A message that can be handed out.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) group: Arc<str>,
    /// `None` if it must be read first.
    pub(super) content: Option<Box<Content>>,
}

/// What comes next of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The first that is ready.
    Take,
    /// Something must be read first.
    Read,
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) ready: BTreeMap<Rank, Ready>,
    /// Those of `ready` whose body must be read.
    pub(super) bare: BTreeSet<Rank>,
    /// The last number of each class that was read.
    pub(super) cursors: [i64; 2],
    /// The numbers of the first regular messages beyond the cursor, as far as they are known.
    pub(super) numbers: VecDeque<i64>,
    /// Whether there may be messages of a class beyond its cursor.
    pub(super) unread: [bool; 2],
    /// Whether they are being read.
    pub(super) reading: [bool; 2],
    /// The last time and number that was read in order of times.
    pub(super) due_cursor: (i64, i64),
    /// The first time beyond `due_cursor`, as far as it is known.
    pub(super) next_due: Option<i64>,
    /// Whether a time beyond `due_cursor` has come.
    pub(super) has_due: bool,
    /// Whether someone reads for it.
    pub(super) is_fetched: bool,
    /// Whether it stands among those that have something to read.
    pub(super) is_unread: bool,
    /// How many rows were read last that brought nothing: then more are read at once.
    pub(super) passed: usize,
    /// How many of its messages are out.
    pub(super) outs: u32,
    /// Its place, while it has anything to hand out or to read.
    pub(super) turn: Option<Turn>,
    /// Until when it was served, while it has no place.
    pub(super) time: u64,
}

impl Lane {
    /// A lane of which nothing was read.
    pub(super) fn new(base: i64) -> Self {
        Self { cursors: [base; 2], due_cursor: (i64::MIN, 0), ..Self::default() }
    }

    /// Messages of a class were read up to this number.
    pub(super) fn pass(&mut self, class: Class, last: i64) {
        self.cursors[class] = self.cursors[class].max(last);
        while self.numbers.pop_front_if(|number| *number <= self.cursors[REGULAR]).is_some() {}
    }

    /// The last number of a class before which nothing of it is still to be read.
    pub(super) fn reach(&self, class: Class) -> i64 {
        let is_ahead = self.unread[class] || self.reading[class];
        if is_ahead { self.cursors[class] } else { i64::MAX }
    }

    /// Those whose bodies must be read, but for regular ones after messages that are still to be read: those are
    /// handed out first, and the bodies are read on the way.
    pub(super) fn bare_in_reach(&self) -> impl Iterator<Item = Rank> {
        self.bare.range(..=(REGULAR, self.reach(REGULAR))).copied()
    }

    /// A message was put back: whether it is found by number. One that the cursor has passed is not, unless it goes
    /// back for it because too many such are known.
    pub(super) fn finds(&mut self, (class, seq): Rank, too_many: bool) -> bool {
        let is_passed = seq <= self.cursors[class];
        // Whoever reads may pass it too, without having seen it.
        if self.is_fetched || (is_passed && !too_many) {
            return false;
        }
        self.cursors[class] = self.cursors[class].min(seq - 1);
        self.unread[class] = true;
        if self.numbers.back().is_some_and(|&last| seq < last) {
            self.numbers.clear();
        }
        true
    }

    /// As it is before anything was read: what is out stays out, and its share stays its share.
    pub(super) fn reset(&mut self, base: i64) {
        let time = self.turn.map_or(self.time, |turn| turn.time);
        *self = Self { outs: self.outs, time, ..Self::new(base) };
    }

    pub(super) fn next(&self) -> Next {
        let Some((&(class, seq), ready)) = self.ready.first_key_value() else {
            return if self.has_work() { Next::Read } else { Next::Nothing };
        };
        let comes_before = |of: Class| match self.reach(of) {
            i64::MAX => false,
            reach => class != of || seq > reach,
        };
        let waits = comes_before(HIGH) || (class == REGULAR && comes_before(REGULAR));
        if waits || ready.content.is_none() { Next::Read } else { Next::Take }
    }

    /// Whether there is anything to hand out or to read.
    pub(super) fn has_work(&self) -> bool {
        let has_more = self.unread.contains(&true) || self.has_due;
        !self.ready.is_empty() || has_more || self.is_fetched
    }

    /// Whether there is something to read, and nobody at it.
    pub(super) fn wants_reading(&self) -> bool {
        let has_more = self.unread.contains(&true) || self.has_due || !self.bare.is_empty();
        has_more && !self.is_fetched
    }

    /// Whether nothing of it is in the file, but behind messages of other lanes.
    pub(super) fn is_spent(&self) -> bool {
        !self.has_work() && self.outs == 0 && self.next_due.is_none()
    }

    /// Whether whoever reads by time has passed it.
    pub(super) fn is_due(&self, due: Option<i64>, seq: i64) -> bool {
        due.is_none_or(|due| (due, seq) <= self.due_cursor)
    }
}
