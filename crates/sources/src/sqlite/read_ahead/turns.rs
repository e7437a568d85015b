//! Turns between the lanes of a pool, by virtual time: how often each was served.
//!
//! The lane that was served least goes next. One that comes, or comes back, begins where the pool is, so it has
//! no credit for having slept; it keeps what it was served beyond that, so it gains nothing by leaving. Of
//! lanes at the same time it goes first: it waits for one turn, not for a round. So that lanes that come anew all
//! the time starve none that stays, of those that came after its last turn at most 16 go before it.

use std::cmp::Ordering;
use std::collections::BTreeSet;

/// How many lanes that just came may go before one that was there before.
const NEWCOMERS_IN_A_ROW: u32 = 16;

/// The place of a lane among those that wait for their turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) time: u64,
    /// It was served since it came.
    was_served: bool,
    /// When it took this place.
    stamp: u64,
    pub(super) lane: i64,
}

impl Turn {
    /// What it is compared by: the time, then who comes anew, then when it took this place, which is unique.
    fn rank(&self) -> u128 {
        u128::from(self.time) << 64 | u128::from(self.was_served) << 63 | u128::from(self.stamp)
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Turn {}

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The time of the lane that was served last.
    now: u64,
    stamp: u64,
    newcomers: u32,
    order: BTreeSet<Turn>,
    /// Those of `order` that have something to read.
    unread: BTreeSet<Turn>,
}

impl Turns {
    /// A lane comes that was served until `time`.
    pub(super) fn join(&mut self, lane: i64, time: u64) -> Turn {
        let is_new = time <= self.now;
        self.stand(Turn { time: time.max(self.now), was_served: !is_new, stamp: 0, lane })
    }

    fn stand(&mut self, turn: Turn) -> Turn {
        self.stamp += 1;
        let turn = Turn { stamp: self.stamp, ..turn };
        self.order.insert(turn);
        turn
    }

    pub(super) fn leave(&mut self, turn: &Turn) {
        self.order.remove(turn);
        self.unread.remove(turn);
    }

    /// Says whether a lane has something to read.
    pub(super) fn set_unread(&mut self, turn: &Turn, is_unread: bool) {
        if is_unread {
            self.unread.insert(*turn);
        } else {
            self.unread.remove(turn);
        }
    }

    /// The lane whose turn it is.
    pub(super) fn first(&self) -> Option<Turn> {
        let first = *self.order.first()?;
        if self.newcomers < NEWCOMERS_IN_A_ROW || first.was_served {
            return Some(first);
        }
        Some(self.earlier_than(&first).unwrap_or(first))
    }

    /// The first of those that were served before this one came.
    fn earlier_than(&self, newcomer: &Turn) -> Option<Turn> {
        // Whoever was served is at the pool's time or later.
        let from = Turn { time: self.now, was_served: true, stamp: 0, lane: i64::MIN };
        self.order.range(from..).next().copied().filter(|other| other.stamp < newcomer.stamp)
    }

    /// A lane was served: it goes behind the others.
    pub(super) fn served(&mut self, turn: &Turn) -> Turn {
        let passed = !turn.was_served && self.earlier_than(turn).is_some();
        self.newcomers = if passed { self.newcomers + 1 } else { 0 };
        self.order.remove(turn);
        let is_unread = self.unread.remove(turn);
        self.now = self.now.max(turn.time);
        let turn = Turn { time: self.now + 1, was_served: true, stamp: 0, lane: turn.lane };
        let turn = self.stand(turn);
        if is_unread {
            self.unread.insert(turn);
        }
        turn
    }

    /// Whether a lane that was served until then has its share behind it.
    pub(super) const fn is_past(&self, time: u64) -> bool {
        time <= self.now
    }

    /// The lanes that have something to read, in the order of their turns.
    pub(super) fn unread(&self) -> impl Iterator<Item = i64> {
        self.unread.iter().map(|turn| turn.lane)
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    fn serve(turns: &mut Turns) -> i64 {
        let first = turns.first().unwrap();
        turns.served(&first).lane
    }

    #[test]
    fn lanes_take_turns() {
        let mut turns = Turns::default();
        for lane in 0..40 {
            turns.join(lane, 0);
        }
        for _ in 0..3 {
            let round: Vec<i64> = (0..40).map(|_| serve(&mut turns)).collect();
            assert_eq!(round, (0..40).collect::<Vec<_>>());
        }
    }

    #[test]
    fn who_comes_waits_for_one_turn_and_has_no_credit() {
        let mut turns = Turns::default();
        for lane in 0..10 {
            turns.join(lane, 0);
        }
        for _ in 0..55 {
            serve(&mut turns);
        }
        turns.join(99, 0);
        assert_eq!(serve(&mut turns), 99);
        let next: Vec<i64> = (0..11).map(|_| serve(&mut turns)).collect();
        assert_eq!(next.iter().filter(|lane| **lane == 99).count(), 1, "{next:?}");
    }

    #[test]
    fn who_leaves_and_comes_back_gains_nothing() {
        let mut turns = Turns::default();
        turns.join(1, 0);
        let mut time = 0;
        let mut served = 0;
        for _ in 0..100 {
            let turn = turns.join(2, time);
            served += usize::from(serve(&mut turns) == 1);
            let two = turns.order.iter().find(|turn| turn.lane == 2).copied().unwrap();
            time = if two.was_served { two.time } else { turn.time };
            turns.leave(&two);
        }
        assert!((49..=51).contains(&served), "{served}");
    }

    #[test]
    fn new_lanes_all_the_time_starve_nobody() {
        let mut turns = Turns::default();
        turns.join(1, 0);
        serve(&mut turns);
        let mut served = 0;
        for lane in 2..1702 {
            turns.join(lane, 0);
            let first = turns.first().unwrap();
            let turn = turns.served(&first);
            if first.lane == 1 { served += 1 } else { turns.leave(&turn) }
        }
        // Those that come wait longer and longer, for they are more than there are turns.
        assert!(served >= 40, "{served}");
    }
}
