//! Turns between the lanes of a pool, by virtual time: how often each was served.
//!
//! The lane that was served least goes next. One that comes, or comes back, begins where the pool is, so it has
//! no credit for having slept; it keeps what it was served beyond that, so it gains nothing by leaving. Of
//! lanes at the same time it goes first: it waits for one turn, not for a round. So that lanes that come anew all
//! the time starve none that stays, of those that came after its last turn at most 16 go before it.
//!
//! Nobody is more than one turn ahead of the pool, so whoever comes anew stands behind those that came before,
//! and whoever was served behind those that were: two lines, and no step takes longer for more lanes.

use super::line::{Line, Lines};

/// How many lanes that just came may go before one that was there before.
const NEWCOMERS_IN_A_ROW: u32 = 16;

/// A lane's turn: its time, and its place in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) time: u64,
    pub(super) lane: i64,
    at: usize,
}

/// What is known of a lane that waits for its turn.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    turn: Turn,
    /// It was served since it came.
    was_served: bool,
    /// When it took this place.
    stamp: u64,
}

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The time of the lane that was served last.
    now: u64,
    stamp: u64,
    newcomers: u32,
    lines: Lines<Waiting, 2>,
    /// Those that came anew, and those that were served.
    order: [Line<ORDER>; 2],
    /// Those of each that have something to read, as they came to have it: whoever was just read for is last.
    unread: [Line<UNREAD>; 2],
}

const ORDER: usize = 0;
const UNREAD: usize = 1;

impl Turns {
    /// A lane comes that was served until `time`.
    pub(super) fn join(&mut self, lane: i64, time: u64) -> Turn {
        let was_served = time > self.now;
        let turn = Turn { time: self.now + u64::from(was_served), lane, at: 0 };
        let at = self.lines.add(Waiting { turn, was_served, stamp: 0 });
        self.stand(at, Turn { at, ..turn }, was_served)
    }

    fn stand(&mut self, at: usize, turn: Turn, was_served: bool) -> Turn {
        self.stamp += 1;
        *self.lines.get_mut(at) = Waiting { turn, was_served, stamp: self.stamp };
        self.order[usize::from(was_served)].push(&mut self.lines, at);
        turn
    }

    pub(super) fn leave(&mut self, turn: &Turn) {
        self.set_unread(turn, false);
        let line = usize::from(self.lines.get(turn.at).was_served);
        self.order[line].remove(&mut self.lines, turn.at);
        self.lines.forget(turn.at);
    }

    /// Says whether a lane has something to read.
    pub(super) fn set_unread(&mut self, turn: &Turn, is_unread: bool) {
        let line = &mut self.unread[usize::from(self.lines.get(turn.at).was_served)];
        if is_unread {
            line.push(&mut self.lines, turn.at);
        } else {
            line.remove(&mut self.lines, turn.at);
        }
    }

    /// The lane whose turn it is.
    pub(super) fn first(&self) -> Option<Turn> {
        let [newcomer, served] = self.firsts();
        let (Some(newcomer), Some(served)) = (newcomer, served) else {
            return newcomer.or(served).map(|first| first.turn);
        };
        let is_enough = self.newcomers >= NEWCOMERS_IN_A_ROW && served.stamp < newcomer.stamp;
        let goes_first = newcomer.turn.time <= served.turn.time && !is_enough;
        Some(if goes_first { newcomer.turn } else { served.turn })
    }

    /// The first that came anew, and the first that was served.
    fn firsts(&self) -> [Option<&Waiting>; 2] {
        self.order.each_ref().map(|line| line.first().map(|at| self.lines.get(at)))
    }

    /// A lane was served: it goes behind the others.
    pub(super) fn served(&mut self, turn: &Turn) -> Turn {
        let at = turn.at;
        let Waiting { was_served, stamp, .. } = *self.lines.get(at);
        let waits_longer = |other: &Waiting| other.stamp < stamp;
        let passed = !was_served && self.firsts()[1].is_some_and(waits_longer);
        self.newcomers = if passed { self.newcomers + 1 } else { 0 };
        let is_unread = self.lines.stands(UNREAD, at);
        if is_unread && !was_served {
            self.unread[0].remove(&mut self.lines, at);
        }
        self.order[usize::from(was_served)].remove(&mut self.lines, at);
        self.now = self.now.max(turn.time);
        let turn = self.stand(at, Turn { time: self.now + 1, ..*turn }, true);
        if is_unread && !was_served {
            self.unread[1].push(&mut self.lines, at);
        }
        turn
    }

    /// Whether a lane that was served until then has its share behind it.
    pub(super) const fn is_past(&self, time: u64) -> bool {
        time <= self.now
    }

    /// The lanes that have something to read: the one whose turn it is, then those that came anew.
    pub(super) fn unread(&self) -> impl Iterator<Item = i64> {
        let first = self.first().map(|turn| turn.at);
        let first = first.filter(|&at| self.lines.stands(UNREAD, at));
        let others = self.unread.iter().flat_map(|line| line.iter(&self.lines));
        let others = others.filter(move |&at| Some(at) != first);
        first.into_iter().chain(others).map(|at| self.lines.get(at).turn.lane)
    }

    pub(super) fn has_unread(&self) -> bool {
        self.unread.iter().any(|line| line.first().is_some())
    }

    pub(super) const fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Turn, Turns};

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
            let first = turns.first().unwrap();
            let after = turns.served(&first);
            served += usize::from(first.lane == 1);
            let two = if first.lane == 2 { after } else { turn };
            time = two.time;
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

    #[test]
    fn who_was_served_in_times_past_waits_for_a_round_at_most() {
        let mut turns = Turns::default();
        turns.join(1, 57);
        turns.join(2, 0);
        assert_eq!([serve(&mut turns), serve(&mut turns), serve(&mut turns)], [2, 1, 2]);
    }

    #[test]
    fn who_was_read_for_is_read_for_again_behind_the_others() {
        let mut turns = Turns::default();
        let all: Vec<Turn> = (0..5).map(|lane| turns.join(lane, 0)).collect();
        for turn in &all {
            turns.set_unread(turn, true);
        }
        for turn in &all[..2] {
            turns.set_unread(turn, false);
            turns.set_unread(turn, true);
        }
        // But first of all the one whose turn it is.
        assert_eq!(turns.unread().collect::<Vec<_>>(), [0, 2, 3, 4, 1]);
        turns.leave(&all[3]);
        assert_eq!(serve(&mut turns), 0);
        assert_eq!(turns.unread().collect::<Vec<_>>(), [1, 2, 4, 0]);
        let new = turns.join(9, 0);
        turns.set_unread(&new, true);
        assert_eq!(turns.unread().collect::<Vec<_>>(), [1, 2, 4, 9, 0]);
    }
}
