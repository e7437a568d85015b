//! Lanes: the ready keys of one tenant in one class, and the rounds at which lanes are served.
//!
//! Each class has rounds of its own: a heap of the lanes that may run, lowest round first, and one of
//! the lanes of idle tenants in debt. Which lane belongs where is decided by [`crate::tenants`], whose
//! invariants 2, 3 and 5 are kept here.

use std::num::NonZeroU32;

use crate::Class;
use crate::arena::Arena;
use crate::heap::Heap;
use crate::item::Charge;
use crate::key::ReadyKeys;

/// One unit of cost at weight 1, in rounds. Fine enough that a weight of 10,000 is charged within
/// one per cent, and coarse enough for 1.7e13 units of cost in one busy period: years of
/// milliseconds. Past that, rounds saturate and tenants take plain turns.
const ROUND: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Arena<Lane>,
    classes: [ClassLanes; Class::COUNT],
    turns: u64,
}

#[derive(Debug)]
struct Lane {
    tenant: u32,
    class: Class,
    first_attempts: ReadyKeys,
    come_again: ReadyKeys,
    /// Where both wait: whose turn it is.
    again_is_next: bool,
    /// The number of the item that started last, and whose turn it was before that.
    last_start: (u64, bool),
    /// Its tenant came new, or came back, and this lane was not in `ready` since.
    fresh: bool,
    /// Its tenant came new, or came back, and nothing of this lane started since.
    newcomer: bool,
    round: u64,
    /// Where it last entered `ready`: no correction brings it below.
    floor: u64,
    /// Breaks ties: who was served, or came, longer ago.
    turn: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Ready(u32),
    Asleep(u32),
}

#[derive(Debug)]
struct ClassLanes {
    ready: Heap<(u64, u64)>,
    asleep: Heap<u64>,
    rounds: Rounds,
    /// The weights of those in `ready`, summed.
    weight: u64,
}

/// How far the service of a class has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// The highest round that was served.
    served: u64,
    /// Where lanes of tenants that come new, or come back, enter at the lowest.
    entry: u64,
}

impl Rounds {
    /// A start that others may have followed is taken back: so is what it moved newcomers by.
    pub(crate) fn moved_back(self, charge: Charge) -> Self {
        let entry = self.entry.saturating_sub(share(charge)).max(self.served);
        Self { entry, ..self }
    }
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Arena::new(),
            classes: [(); Class::COUNT].map(|()| ClassLanes::new()),
            turns: 0,
        }
    }

    pub(crate) fn add(&mut self, tenant: u32, class: Class) -> u32 {
        self.lanes.insert(Lane::new(tenant, class))
    }

    /// Takes out a lane that is in no heap.
    pub(crate) fn free(&mut self, lane: u32) {
        self.lanes.remove(lane);
    }

    /// Makes a lane that is in no heap as it was when it was added.
    pub(crate) fn reset(&mut self, index: u32) {
        let Lane { tenant, class, .. } = self.lanes[index];
        self.lanes[index] = Lane::new(tenant, class);
    }

    pub(crate) fn is_asleep(&self, lane: u32) -> bool {
        matches!(self.lanes[lane].place, Place::Asleep(_))
    }

    /// Forgets all lanes at once. Only when none is in `ready`.
    pub(crate) fn free_all(&mut self) {
        self.lanes = Arena::new();
        self.classes.iter_mut().for_each(|class| class.asleep = Heap::new());
    }

    /// Rounds start from nothing again. Only when there are no lanes.
    pub(crate) fn rewind(&mut self) {
        self.classes.iter_mut().for_each(|class| class.rounds = Rounds::default());
    }

    pub(crate) fn owner(&self, lane: u32) -> (u32, Class) {
        (self.lanes[lane].tenant, self.lanes[lane].class)
    }

    /// The ready keys of a lane whose heads come again, or of those that do not.
    pub(crate) fn ready_keys(&mut self, lane: u32, again: bool) -> &mut ReadyKeys {
        let lane = &mut self.lanes[lane];
        if again { &mut lane.come_again } else { &mut lane.first_attempts }
    }

    pub(crate) fn has_keys(&self, lane: u32) -> bool {
        let Lane { first_attempts, come_again, .. } = &self.lanes[lane];
        first_attempts.first().or(come_again.first()).is_some()
    }

    pub(crate) fn is_ready(&self, lane: u32) -> bool {
        matches!(self.lanes[lane].place, Place::Ready(_))
    }

    /// The classes that have lanes that may run.
    pub(crate) fn ready(&self) -> [bool; Class::COUNT] {
        Class::ALL.map(|class| !self.classes[class.index()].ready.is_empty())
    }

    /// Of the lane of the class that is next, the key that is: first attempts and heads that come
    /// again take turns.
    pub(crate) fn first_ready(&self, class: Class) -> Option<u32> {
        let (_, index) = self.classes[class.index()].ready.first()?;
        let lane = &self.lanes[index];
        let (first, again) = (lane.first_attempts.first(), lane.come_again.first());
        if lane.again_is_next { again.or(first) } else { first.or(again) }
    }

    /// The lane may run from now on.
    pub(crate) fn enter(&mut self, index: u32, weight: u32) {
        let lane = &mut self.lanes[index];
        if lane.place != Place::Nowhere {
            return;
        }
        let class = &mut self.classes[lane.class.index()];
        class.weight += u64::from(weight);
        self.turns += 1;
        lane.floor = if lane.fresh { class.rounds.entry } else { class.rounds.served };
        lane.round = lane.round.max(lane.floor);
        lane.fresh = false;
        lane.turn = self.turns;
        let priority = (lane.round, lane.turn);
        class.ready.push(priority, index, |lane, at| self.lanes[lane].place = Place::Ready(at));
    }

    /// The lane may not run any more.
    pub(crate) fn leave(&mut self, index: u32, weight: u32) {
        let lane = &self.lanes[index];
        if let Place::Ready(place) = lane.place {
            let class = &mut self.classes[lane.class.index()];
            class.weight -= u64::from(weight);
            class.ready.remove(place, |lane, at| self.lanes[lane].place = Place::Ready(at));
            self.lanes[index].place = Place::Nowhere;
        }
    }

    /// Its tenant's weight is another from now on.
    pub(crate) fn reweigh(&mut self, lane: u32, from: u32, to: u32) {
        if self.is_ready(lane) {
            let class = &mut self.classes[self.lanes[lane].class.index()];
            class.weight = class.weight - u64::from(from) + u64::from(to);
        }
    }

    /// The weight of all lanes of its class that may run, if a start of this one moves newcomers.
    pub(crate) fn in_line(&self, lane: u32) -> Option<NonZeroU32> {
        let Lane { class, newcomer, .. } = self.lanes[lane];
        let weight = u32::try_from(self.classes[class.index()].weight).unwrap_or(u32::MAX);
        NonZeroU32::new(weight).filter(|_| newcomer)
    }

    pub(crate) fn rounds(&self, class: Class) -> Rounds {
        self.classes[class.index()].rounds
    }

    pub(crate) const fn set_rounds(&mut self, class: Class, rounds: Rounds) {
        self.classes[class.index()].rounds = rounds;
    }

    /// A key of the lane, which is ready, starts: the lane is charged, and the class's rounds move.
    pub(crate) fn serve(&mut self, index: u32, charge: Charge, (item, again): (u64, bool)) {
        self.turns += 1;
        let lane = &mut self.lanes[index];
        lane.turn = self.turns;
        lane.last_start = (item, lane.again_is_next);
        lane.again_is_next = !again;
        lane.newcomer = false;
        let Rounds { served, entry } = &mut self.classes[lane.class.index()].rounds;
        *served = lane.round.max(*served);
        *entry = entry.saturating_add(share(charge)).max(*served);
        self.move_round(index, |round| round.saturating_add(rounds(charge.cost, charge.weight)));
    }

    /// A lane that is in no heap enters, is served and leaves, while no other lane is in line.
    pub(crate) fn pass(&mut self, index: u32, item: u64, cost: u32, weight: u32) -> Charge {
        self.turns += 1;
        let lane = &mut self.lanes[index];
        let rounds = self.classes[lane.class.index()].rounds;
        lane.floor = if lane.fresh { rounds.entry } else { rounds.served };
        lane.round = lane.round.max(lane.floor);
        lane.fresh = false;
        let in_line = NonZeroU32::new(weight).filter(|_| lane.newcomer);
        let charge = Charge { cost, weight, in_line };
        self.serve(index, charge, (item, false));
        charge
    }

    /// A lane's start did not come to run: what it was charged is taken back. Whose turn it is is as it was
    /// before; where another started since, its kind of heads is next.
    pub(crate) fn unserve(&mut self, lane: u32, charge: Charge, (item, again): (u64, bool)) {
        self.correct(lane, charge, 0);
        let lane = &mut self.lanes[lane];
        let (last, before) = lane.last_start;
        lane.again_is_next = if last == item { before } else { again };
        lane.newcomer |= charge.in_line.is_some();
    }

    /// What was charged turns out to cost something else.
    pub(crate) fn correct(&mut self, lane: u32, charged: Charge, cost: u32) {
        let by = rounds(charged.cost.abs_diff(cost), charged.weight);
        let floor = self.lanes[lane].floor;
        if cost > charged.cost {
            self.move_round(lane, |round| round.saturating_add(by));
        } else if cost < charged.cost {
            self.move_round(lane, |round| round.saturating_sub(by).max(floor));
        }
    }

    /// Its tenant is idle. `false` if it is not in debt, and need not be kept.
    pub(crate) fn sleep(&mut self, index: u32) -> bool {
        let lane = &self.lanes[index];
        let class = &mut self.classes[lane.class.index()];
        let in_debt = lane.round > class.rounds.entry;
        if in_debt {
            class.asleep.push(lane.round, index, |lane, at| {
                self.lanes[lane].place = Place::Asleep(at);
            });
        }
        in_debt
    }

    /// Its tenant is back, or the lane is about to go.
    pub(crate) fn wake(&mut self, index: u32) {
        if let Place::Asleep(place) = self.lanes[index].place {
            let class = &mut self.classes[self.lanes[index].class.index()];
            class.asleep.remove(place, |lane, at| self.lanes[lane].place = Place::Asleep(at));
            self.lanes[index].place = Place::Nowhere;
            self.lanes[index].fresh = true;
            self.lanes[index].newcomer = true;
        }
    }

    /// The sleeper of the class with the least debt.
    pub(crate) fn first_asleep(&self, class: Class) -> Option<u32> {
        self.classes[class.index()].asleep.first().map(|(_, lane)| lane)
    }

    /// A sleeper of the class that has paid.
    pub(crate) fn first_free_of_debt(&self, class: Class) -> Option<u32> {
        let class = &self.classes[class.index()];
        let paid = class.asleep.first().filter(|(round, _)| *round <= class.rounds.entry);
        paid.map(|(_, lane)| lane)
    }

    fn move_round(&mut self, index: u32, moved: impl Fn(u64) -> u64) {
        let lane = &mut self.lanes[index];
        lane.round = moved(lane.round);
        let (round, turn) = (lane.round, lane.turn);
        let class = &mut self.classes[lane.class.index()];
        match lane.place {
            Place::Nowhere => {}
            Place::Ready(place) => class.ready.update(place, (round, turn), |lane, at| {
                self.lanes[lane].place = Place::Ready(at);
            }),
            Place::Asleep(place) => class.asleep.update(place, round, |lane, at| {
                self.lanes[lane].place = Place::Asleep(at);
            }),
        }
    }
}

impl Lane {
    const fn new(tenant: u32, class: Class) -> Self {
        Self {
            tenant,
            class,
            first_attempts: ReadyKeys::NONE,
            come_again: ReadyKeys::NONE,
            again_is_next: false,
            last_start: (0, false),
            fresh: true,
            newcomer: true,
            round: 0,
            floor: 0,
            turn: 0,
            place: Place::Nowhere,
        }
    }
}

impl ClassLanes {
    const fn new() -> Self {
        let rounds = Rounds { served: 0, entry: 0 };
        Self { ready: Heap::new(), asleep: Heap::new(), rounds, weight: 0 }
    }
}

const fn rounds(cost: u32, weight: u32) -> u64 {
    cost as u64 * ROUND / weight as u64
}

/// By how much a newcomer's start moves those who come new after it: its cost, shared out among those
/// in line and one more.
fn share(charge: Charge) -> u64 {
    let in_line = charge.in_line.map(|in_line| u64::from(in_line.get()));
    in_line.map_or(0, |in_line| u64::from(charge.cost) * ROUND / (in_line + 1))
}
