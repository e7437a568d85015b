//! Fairness between tenants: weighted deficit round robin, without walking the ring.
//!
//! A deficit round robin goes round and round, adds a quantum to each tenant's deficit and serves
//! it once its deficit covers the cost. With measured costs a tenant may be many rounds in debt, and
//! walking those rounds costs time per tenant. So each tenant instead remembers the round (`round`,
//! in fine fractions) at which it may be served next: being charged moves that round forward by
//! `cost / weight`, and the tenant with the lowest round is next. That is a heap's first element,
//! whatever the number of tenants.
//!
//! A tenant is charged when its item *starts*, by estimate, so work in flight counts and a burst
//! cannot take every slot before its first item ends; when the item ends the charge is corrected to
//! what was measured.
//!
//! Invariants:
//! 1. A lane is in its class's `ready` heap exactly when it has a ready key and its tenant runs
//!    fewer items than it may.
//! 2. A lane enters `ready` no lower than the class's `round`, the highest that was served: time
//!    spent away earns no credit. A lane of a tenant that comes new, or comes back, enters no lower
//!    than the class's `entry`.
//! 3. `entry` is never below `round`, and each dispatch moves it by its cost shared out among those
//!    in `ready` and one more. So who comes new goes before one who just had a turn, yet an endless
//!    row of newcomers cannot keep out one who waits, and debts are paid even where everybody comes
//!    only once.
//! 4. A tenant with nothing queued and nothing running is kept only while it is in debt (one of its
//!    lanes is ahead of the class's `entry`), asleep; `entry` passing it frees it.
//!
//! `docs/rules.md#schedule-2`.

use std::collections::HashMap;
use std::hash::Hash;

use crate::arena::{Arena, NIL};
use crate::class::ClassPicker;
use crate::heap::Heap;
use crate::item::Charge;
use crate::{Class, TenantLimits};

/// One unit of cost at weight 1, in rounds. Fine enough that a weight of 10,000 is charged within
/// one per cent, and coarse enough for 1.7e13 units of cost in one busy period: years of
/// milliseconds. Past that, rounds saturate and tenants take plain turns.
const ROUND: u64 = 1 << 20;

/// How many sleepers one dispatch may free: more than it can add, so they never pile up.
const SLEEPERS_PER_DISPATCH: usize = 4;

/// Up to so many sleepers are freed one by one at the end of a busy period, and keep their memory
/// for the next; more are dropped all at once.
const SLEEPERS_FREED_SINGLY: usize = 64;

/// Empty heaps kept for the next lane, so that tenants that come and go do not allocate.
const SPARE_HEAPS: usize = 64;

#[derive(Debug)]
pub(crate) struct TenantRing<T> {
    tenants: Arena<Tenant<T>>,
    by_name: HashMap<T, u32>,
    lanes: Arena<Lane>,
    spare_heaps: Vec<Heap<u64>>,
    classes: [ClassRing; Class::COUNT],
    picker: ClassPicker,
    /// What items cost lately, over all tenants; 0 while nothing was measured.
    average: u32,
    turns: u64,
}

#[derive(Debug)]
pub(crate) struct Tenant<T> {
    pub(crate) name: T,
    pub(crate) limits: TenantLimits,
    pub(crate) queued: u32,
    pub(crate) running: u32,
    pub(crate) served: u64,
    average: u32,
    lanes: [u32; Class::COUNT],
}

/// The ready keys of one tenant in one class, longest waiting first.
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
    round: u64,
    entry: u64,
    queued: u32,
    /// The weights of those in `ready`, summed.
    weight: u64,
}

/// What may start now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) lane: u32,
    pub(crate) key: u32,
}

impl<T: Hash + Eq + Clone> TenantRing<T> {
    pub(crate) fn new(class_period: u32) -> Self {
        Self {
            tenants: Arena::new(),
            by_name: HashMap::new(),
            lanes: Arena::new(),
            spare_heaps: Vec::new(),
            classes: [(); Class::COUNT].map(|()| ClassRing::new()),
            picker: ClassPicker::new(class_period),
            average: 0,
            turns: 0,
        }
    }

    pub(crate) fn tenant(&self, tenant: u32) -> &Tenant<T> {
        &self.tenants[tenant]
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Tenant<T>> {
        self.tenants.iter().map(|(_, tenant)| tenant)
    }

    pub(crate) fn find(&self, name: &T) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// One more item of the tenant waits. `limits` is asked when the tenant was not there before.
    pub(crate) fn enqueue(&mut self, name: T, limits: TenantLimits, class: Class) -> u32 {
        let tenant = match self.by_name.get(&name) {
            Some(&tenant) => tenant,
            None => {
                let average = self.average;
                let lanes = [NIL; Class::COUNT];
                let tenant = self.tenants.insert(Tenant {
                    name: name.clone(),
                    limits,
                    queued: 0,
                    running: 0,
                    served: 0,
                    average,
                    lanes,
                });
                self.by_name.insert(name, tenant);
                tenant
            }
        };
        self.wake(tenant);
        self.tenants[tenant].queued += 1;
        self.classes[class.index()].queued += 1;
        tenant
    }

    /// One item of the tenant no longer waits and does not run either.
    pub(crate) fn dequeue(&mut self, tenant: u32, class: Class) {
        self.leave_queue(tenant, class);
        self.rest(tenant);
    }

    /// The key's head may start: it waits with its tenant's other ready keys. Returns the lane.
    pub(crate) fn ready(
        &mut self,
        (tenant, class): (u32, Class),
        (key, head): (u32, u64),
        at_key: impl FnMut(u32, u32),
    ) -> u32 {
        let lane = self.lane(tenant, class);
        self.lanes[lane].keys.push(head, key, at_key);
        self.place(lane);
        lane
    }

    /// The key left, from its place in the lane.
    pub(crate) fn unready(&mut self, lane: u32, place: u32, at_key: impl FnMut(u32, u32)) {
        self.lanes[lane].keys.remove(place, at_key);
        self.place(lane);
    }

    /// Who would start now, and of which class.
    pub(crate) fn pick(&self) -> Option<Pick> {
        let class = self.picker.pick(self.waiting())?;
        let (_, lane) = self.classes[class.index()].ready.first()?;
        let (_, key) = self.lanes[lane].keys.first()?;
        Some(Pick { lane, key })
    }

    /// The picked key's head starts: the key leaves, the tenant is charged. Returns the charge.
    pub(crate) fn start(
        &mut self,
        pick: Pick,
        cost: Option<u32>,
        at_key: impl FnMut(u32, u32),
    ) -> Charge {
        let waiting = self.waiting();
        let Lane { tenant, class, round, .. } = self.lanes[pick.lane];
        self.picker.served(class, waiting);
        let cost = cost.unwrap_or(self.tenants[tenant].average).max(1);
        let charge = Charge { cost, weight: self.tenants[tenant].limits.weight };
        let share = u64::from(cost) * ROUND / (self.classes[class.index()].weight + 1);
        self.tenants[tenant].running += 1;
        self.leave_queue(tenant, class);
        self.turns += 1;
        let lane = &mut self.lanes[pick.lane];
        lane.keys.remove(0, at_key);
        lane.turn = self.turns;
        self.charge(pick.lane, charge);
        self.place(pick.lane);
        if self.tenants[tenant].running == self.tenants[tenant].limits.max_running {
            self.place_all(tenant);
        }
        let ring = &mut self.classes[class.index()];
        ring.round = ring.round.max(round);
        ring.entry = ring.round.max(ring.entry.saturating_add(share));
        self.free_sleepers(class);
        charge
    }

    /// An item ended for good. With a measured cost the charge is corrected to it.
    pub(crate) fn finish(&mut self, tenant: u32, class: Class, charge: Charge, cost: Option<u32>) {
        self.tenants[tenant].served += 1;
        self.measure(tenant, class, charge, cost);
        self.stop(tenant);
    }

    fn measure(&mut self, tenant: u32, class: Class, charge: Charge, cost: Option<u32>) {
        if let Some(cost) = cost.map(|cost| cost.max(1)) {
            self.correct(tenant, class, charge, cost);
            let of_tenant = &mut self.tenants[tenant].average;
            *of_tenant = averaged(*of_tenant, cost);
            self.average = averaged(self.average, cost);
        }
    }

    /// An item that was started did not run after all: the charge is taken back.
    pub(crate) fn revoke(&mut self, tenant: u32, class: Class, charge: Charge) {
        self.correct(tenant, class, charge, 0);
        self.stop(tenant);
    }

    /// A running item goes back to waiting.
    pub(crate) fn requeue(&mut self, tenant: u32, class: Class, charge: Charge, cost: Option<u32>) {
        // Counted as waiting first, so that the tenant is not taken for idle in between.
        self.tenants[tenant].queued += 1;
        self.classes[class.index()].queued += 1;
        self.measure(tenant, class, charge, cost);
        self.stop(tenant);
    }

    /// Other limits for a tenant that is here.
    pub(crate) fn set_limits(&mut self, tenant: u32, limits: TenantLimits) {
        let weight = std::mem::replace(&mut self.tenants[tenant].limits, limits).weight;
        for lane in self.tenants[tenant].lanes {
            if lane != NIL && matches!(self.lanes[lane].place, Place::Ready(_)) {
                let ring = &mut self.classes[self.lanes[lane].class.index()];
                ring.weight = ring.weight - u64::from(weight) + u64::from(limits.weight);
            }
        }
        self.place_all(tenant);
    }

    /// Other limits for each tenant, as `limits` says.
    pub(crate) fn set_all_limits(&mut self, limits: impl Fn(&T) -> TenantLimits) {
        let tenants: Vec<u32> = self.tenants.iter().map(|(index, _)| index).collect();
        for tenant in tenants {
            let limits = limits(&self.tenants[tenant].name);
            self.set_limits(tenant, limits);
        }
    }

    /// Nothing waits and nothing runs: debts are void, and everybody is forgotten.
    pub(crate) fn clear(&mut self) {
        if self.tenants.len() > SLEEPERS_FREED_SINGLY {
            self.tenants = Arena::new();
            self.by_name = HashMap::new();
            self.lanes = Arena::new();
            self.classes.iter_mut().for_each(|ring| ring.asleep = Heap::new());
        }
        for class in Class::ALL {
            while let Some((_, lane)) = self.classes[class.index()].asleep.first() {
                self.free_sleeper(class, lane);
            }
            let ring = &mut self.classes[class.index()];
            (ring.round, ring.entry) = (0, 0);
        }
    }

    fn waiting(&self) -> [bool; Class::COUNT] {
        Class::ALL.map(|class| !self.classes[class.index()].ready.is_empty())
    }

    fn leave_queue(&mut self, tenant: u32, class: Class) {
        self.tenants[tenant].queued -= 1;
        let ring = &mut self.classes[class.index()];
        ring.queued -= 1;
        if ring.queued == 0 {
            self.picker.forget(class);
        }
    }

    /// One item fewer runs: the tenant may be below its limit again, or idle.
    fn stop(&mut self, tenant: u32) {
        let was_at_limit = self.tenants[tenant].running == self.tenants[tenant].limits.max_running;
        self.tenants[tenant].running -= 1;
        if was_at_limit {
            self.place_all(tenant);
        }
        self.rest(tenant);
    }

    fn lane(&mut self, tenant: u32, class: Class) -> u32 {
        let lane = self.tenants[tenant].lanes[class.index()];
        if lane != NIL {
            return lane;
        }
        let keys = self.spare_heaps.pop().unwrap_or_else(Heap::new);
        let place = Place::Nowhere;
        let lane =
            self.lanes.insert(Lane { tenant, class, keys, round: 0, turn: 0, fresh: true, place });
        self.tenants[tenant].lanes[class.index()] = lane;
        lane
    }

    fn place_all(&mut self, tenant: u32) {
        for lane in self.tenants[tenant].lanes {
            if lane != NIL {
                self.place(lane);
            }
        }
    }

    /// Brings a lane to where invariant 1 wants it.
    fn place(&mut self, index: u32) {
        let lane = &self.lanes[index];
        let tenant = &self.tenants[lane.tenant];
        let may_run = !lane.keys.is_empty() && tenant.running < tenant.limits.max_running;
        let weight = u64::from(tenant.limits.weight);
        match (lane.place, may_run) {
            (Place::Ready(place), false) => {
                let ring = &mut self.classes[lane.class.index()];
                ring.weight -= weight;
                ring.ready.remove(place, |lane, at| self.lanes[lane].place = Place::Ready(at));
                self.lanes[index].place = Place::Nowhere;
            }
            (Place::Nowhere, true) => {
                let lane = &mut self.lanes[index];
                let ring = &mut self.classes[lane.class.index()];
                ring.weight += weight;
                self.turns += 1;
                lane.round = lane.round.max(if lane.fresh { ring.entry } else { ring.round });
                lane.fresh = false;
                lane.turn = self.turns;
                let priority = (lane.round, lane.turn);
                ring.ready.push(priority, index, |lane, at| {
                    self.lanes[lane].place = Place::Ready(at);
                });
            }
            _ => {}
        }
    }

    fn charge(&mut self, lane: u32, charge: Charge) {
        let by = rounds(charge.cost, charge.weight);
        self.move_round(lane, |round| round.saturating_add(by));
    }

    fn correct(&mut self, tenant: u32, class: Class, charged: Charge, cost: u32) {
        let lane = self.tenants[tenant].lanes[class.index()];
        if lane == NIL || charged.cost == cost {
            return;
        }
        let by = rounds(charged.cost.abs_diff(cost), charged.weight);
        if cost > charged.cost {
            self.move_round(lane, |round| round.saturating_add(by));
        } else {
            self.move_round(lane, |round| round.saturating_sub(by));
        }
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

    /// A tenant with nothing queued or running leaves; one in debt sleeps until it has paid.
    fn rest(&mut self, index: u32) {
        let tenant = &self.tenants[index];
        if tenant.queued > 0 || tenant.running > 0 {
            return;
        }
        for lane in tenant.lanes {
            if lane == NIL {
                continue;
            }
            let Lane { class, round, .. } = self.lanes[lane];
            let ring = &mut self.classes[class.index()];
            if round > ring.entry {
                ring.asleep.push(round, lane, |lane, at| {
                    self.lanes[lane].place = Place::Asleep(at);
                });
            } else {
                self.free_lane(lane);
            }
        }
        self.free_if_gone(index);
    }

    fn wake(&mut self, tenant: u32) {
        for lane in self.tenants[tenant].lanes {
            if lane == NIL {
                continue;
            }
            if let Place::Asleep(place) = self.lanes[lane].place {
                let ring = &mut self.classes[self.lanes[lane].class.index()];
                ring.asleep.remove(place, |lane, at| self.lanes[lane].place = Place::Asleep(at));
                self.lanes[lane].place = Place::Nowhere;
                self.lanes[lane].fresh = true;
            }
        }
    }

    /// Frees tenants whose debt `entry` has passed.
    fn free_sleepers(&mut self, class: Class) {
        for _ in 0..SLEEPERS_PER_DISPATCH {
            let ring = &self.classes[class.index()];
            match ring.asleep.first() {
                Some((round, lane)) if round <= ring.entry => self.free_sleeper(class, lane),
                _ => break,
            }
        }
    }

    /// Frees the first of the sleepers.
    fn free_sleeper(&mut self, class: Class, lane: u32) {
        let ring = &mut self.classes[class.index()];
        ring.asleep.remove(0, |lane, at| self.lanes[lane].place = Place::Asleep(at));
        let tenant = self.lanes[lane].tenant;
        self.free_lane(lane);
        self.free_if_gone(tenant);
    }

    fn free_lane(&mut self, lane: u32) {
        let Lane { tenant, class, keys, .. } = self.lanes.remove(lane);
        self.tenants[tenant].lanes[class.index()] = NIL;
        if self.spare_heaps.len() < SPARE_HEAPS && keys.is_small() {
            self.spare_heaps.push(keys);
        }
    }

    fn free_if_gone(&mut self, tenant: u32) {
        if self.tenants[tenant].lanes == [NIL; Class::COUNT] {
            let Tenant { name, .. } = self.tenants.remove(tenant);
            self.by_name.remove(&name);
            crate::shrink(&mut self.by_name);
        }
    }
}

impl ClassRing {
    const fn new() -> Self {
        Self { ready: Heap::new(), asleep: Heap::new(), round: 0, entry: 0, queued: 0, weight: 0 }
    }
}

const fn rounds(cost: u32, weight: u32) -> u64 {
    cost as u64 * ROUND / weight as u64
}

/// An eighth of the way towards the new cost; the first one counts whole.
fn averaged(average: u32, cost: u32) -> u32 {
    if average == 0 {
        return cost;
    }
    let mixed = (u64::from(average) * 7 + u64::from(cost) + 4) / 8;
    u32::try_from(mixed).unwrap_or(u32::MAX).max(1)
}
