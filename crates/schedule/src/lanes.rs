//! Lanes: the ready keys of one tenant in one class, and the rounds at which lanes are served.
//!
//! Each class has a ring of its own: a heap of the lanes that may run, lowest round first, and one of
//! the lanes of idle tenants in debt. Which lane belongs where is the ring's business ([`crate::ring`],
//! whose invariants 2 and 3 are kept here).

use crate::Class;
use crate::arena::Arena;
use crate::heap::Heap;
use crate::item::Charge;

/// One unit of cost at weight 1, in rounds. Fine enough that a weight of 10,000 is charged within
/// one per cent, and coarse enough for 1.7e13 units of cost in one busy period: years of
/// milliseconds. Past that, rounds saturate and tenants take plain turns.
const ROUND: u64 = 1 << 20;

/// Empty heaps kept for the next lane, so that tenants that come and go do not allocate.
const SPARE_HEAPS: usize = 64;

#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Arena<Lane>,
    spare_heaps: Vec<Heap<u64>>,
    classes: [ClassRing; Class::COUNT],
    turns: u64,
}

#[derive(Debug)]
struct Lane {
    tenant: u32,
    class: Class,
    keys: Heap<u64>,
    round: u64,
    /// Breaks ties: who was served, or came, longer ago.
    turn: u64,
    /// Its tenant came new, or came back, and this lane was not in `ready` since.
    fresh: bool,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Ready(u32),
    Asleep(u32),
}

#[derive(Debug)]
struct ClassRing {
    ready: Heap<(u64, u64)>,
    asleep: Heap<u64>,
    /// The highest round that was served.
    round: u64,
    /// Where lanes of tenants that come new, or come back, enter at the lowest.
    entry: u64,
    /// The weights of those in `ready`, summed.
    weight: u64,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Arena::new(),
            spare_heaps: Vec::new(),
            classes: [(); Class::COUNT].map(|()| ClassRing::new()),
            turns: 0,
        }
    }

    pub(crate) fn add(&mut self, tenant: u32, class: Class) -> u32 {
        let keys = self.spare_heaps.pop().unwrap_or_else(Heap::new);
        let place = Place::Nowhere;
        self.lanes.insert(Lane { tenant, class, keys, round: 0, turn: 0, fresh: true, place })
    }

    /// Takes out a lane that is in no heap. Returns whose it was.
    pub(crate) fn free(&mut self, lane: u32) -> (u32, Class) {
        let Lane { tenant, class, keys, .. } = self.lanes.remove(lane);
        if self.spare_heaps.len() < SPARE_HEAPS && keys.is_small() {
            self.spare_heaps.push(keys);
        }
        (tenant, class)
    }

    /// Forgets all lanes at once. Only when none is in `ready`.
    pub(crate) fn free_all(&mut self) {
        self.lanes = Arena::new();
        self.classes.iter_mut().for_each(|ring| ring.asleep = Heap::new());
    }

    /// Rounds start from nothing again. Only when there are no lanes.
    pub(crate) fn rewind(&mut self) {
        self.classes.iter_mut().for_each(|ring| (ring.round, ring.entry) = (0, 0));
    }

    pub(crate) fn owner(&self, lane: u32) -> (u32, Class) {
        (self.lanes[lane].tenant, self.lanes[lane].class)
    }

    pub(crate) fn has_keys(&self, lane: u32) -> bool {
        !self.lanes[lane].keys.is_empty()
    }

    pub(crate) fn push_key(&mut self, lane: u32, key: u32, head: u64, at: impl FnMut(u32, u32)) {
        self.lanes[lane].keys.push(head, key, at);
    }

    pub(crate) fn remove_key(&mut self, lane: u32, place: u32, at: impl FnMut(u32, u32)) {
        self.lanes[lane].keys.remove(place, at);
    }

    pub(crate) fn is_ready(&self, lane: u32) -> bool {
        matches!(self.lanes[lane].place, Place::Ready(_))
    }

    /// The classes that have lanes that may run.
    pub(crate) fn ready(&self) -> [bool; Class::COUNT] {
        Class::ALL.map(|class| !self.classes[class.index()].ready.is_empty())
    }

    /// The lane of the class that is next, and its key that is.
    pub(crate) fn first_ready(&self, class: Class) -> Option<(u32, u32)> {
        let (_, lane) = self.classes[class.index()].ready.first()?;
        let (_, key) = self.lanes[lane].keys.first()?;
        Some((lane, key))
    }

    /// The lane may run from now on.
    pub(crate) fn enter(&mut self, index: u32, weight: u32) {
        let lane = &mut self.lanes[index];
        if lane.place != Place::Nowhere {
            return;
        }
        let ring = &mut self.classes[lane.class.index()];
        ring.weight += u64::from(weight);
        self.turns += 1;
        lane.round = lane.round.max(if lane.fresh { ring.entry } else { ring.round });
        lane.fresh = false;
        lane.turn = self.turns;
        let priority = (lane.round, lane.turn);
        ring.ready.push(priority, index, |lane, at| self.lanes[lane].place = Place::Ready(at));
    }

    /// The lane may not run any more.
    pub(crate) fn leave(&mut self, index: u32, weight: u32) {
        let lane = &self.lanes[index];
        if let Place::Ready(place) = lane.place {
            let ring = &mut self.classes[lane.class.index()];
            ring.weight -= u64::from(weight);
            ring.ready.remove(place, |lane, at| self.lanes[lane].place = Place::Ready(at));
            self.lanes[index].place = Place::Nowhere;
        }
    }

    /// Its tenant's weight is another from now on.
    pub(crate) fn reweigh(&mut self, lane: u32, from: u32, to: u32) {
        if self.is_ready(lane) {
            let ring = &mut self.classes[self.lanes[lane].class.index()];
            ring.weight = ring.weight - u64::from(from) + u64::from(to);
        }
    }

    /// A key of the lane, which is ready, starts: the lane is charged, and the class's rounds move.
    pub(crate) fn serve(&mut self, index: u32, charge: Charge) {
        self.turns += 1;
        let lane = &mut self.lanes[index];
        lane.turn = self.turns;
        let ring = &mut self.classes[lane.class.index()];
        let share = u64::from(charge.cost) * ROUND / (ring.weight + 1);
        ring.round = ring.round.max(lane.round);
        ring.entry = ring.round.max(ring.entry.saturating_add(share));
        self.move_round(index, |round| round.saturating_add(rounds(charge.cost, charge.weight)));
    }

    /// What was charged turns out to cost something else.
    pub(crate) fn correct(&mut self, lane: u32, charged: Charge, cost: u32) {
        let by = rounds(charged.cost.abs_diff(cost), charged.weight);
        if cost > charged.cost {
            self.move_round(lane, |round| round.saturating_add(by));
        } else if cost < charged.cost {
            self.move_round(lane, |round| round.saturating_sub(by));
        }
    }

    /// Its tenant is idle. `false` if it is not in debt, and need not be kept.
    pub(crate) fn sleep(&mut self, index: u32) -> bool {
        let lane = &self.lanes[index];
        let ring = &mut self.classes[lane.class.index()];
        let in_debt = lane.round > ring.entry;
        if in_debt {
            ring.asleep.push(lane.round, index, |lane, at| {
                self.lanes[lane].place = Place::Asleep(at);
            });
        }
        in_debt
    }

    /// Its tenant is back, or the lane is about to go.
    pub(crate) fn wake(&mut self, index: u32) {
        if let Place::Asleep(place) = self.lanes[index].place {
            let ring = &mut self.classes[self.lanes[index].class.index()];
            ring.asleep.remove(place, |lane, at| self.lanes[lane].place = Place::Asleep(at));
            self.lanes[index].place = Place::Nowhere;
            self.lanes[index].fresh = true;
        }
    }

    /// The sleeper of the class with the least debt.
    pub(crate) fn first_asleep(&self, class: Class) -> Option<u32> {
        self.classes[class.index()].asleep.first().map(|(_, lane)| lane)
    }

    /// A sleeper of the class that has paid.
    pub(crate) fn first_free_of_debt(&self, class: Class) -> Option<u32> {
        let ring = &self.classes[class.index()];
        ring.asleep.first().filter(|(round, _)| *round <= ring.entry).map(|(_, lane)| lane)
    }

    fn move_round(&mut self, index: u32, moved: impl Fn(u64) -> u64) {
        let lane = &mut self.lanes[index];
        lane.round = moved(lane.round);
        let (round, turn) = (lane.round, lane.turn);
        let ring = &mut self.classes[lane.class.index()];
        match lane.place {
            Place::Nowhere => {}
            Place::Ready(place) => ring.ready.update(place, (round, turn), |lane, at| {
                self.lanes[lane].place = Place::Ready(at);
            }),
            Place::Asleep(place) => ring.asleep.update(place, round, |lane, at| {
                self.lanes[lane].place = Place::Asleep(at);
            }),
        }
    }
}

impl ClassRing {
    const fn new() -> Self {
        Self { ready: Heap::new(), asleep: Heap::new(), round: 0, entry: 0, weight: 0 }
    }
}

const fn rounds(cost: u32, weight: u32) -> u64 {
    cost as u64 * ROUND / weight as u64
}
