//! Fairness between tenants: weighted deficit round robin, without walking round.
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
//! 2. A lane enters `ready` no lower than the class's round `served`, the highest that was: time
//!    spent away earns no credit. A lane of a tenant that comes new, or comes back, enters no lower
//!    than the class's `entry`. No correction brings a lane below where it entered.
//! 3. `entry` is never below `served`, and the first start of each that came new moves it by its cost
//!    shared out among those in `ready` and one more. So who comes new goes before one who just had a
//!    turn, yet an endless row of newcomers cannot keep out one who waits, and debts are paid even
//!    where everybody comes only once. What those start who were here does not move it: tenants that
//!    stand in line one at a time, because each has one key, would move it further than themselves.
//! 4. A tenant with nothing queued and nothing running is kept only while it is in debt (one of its
//!    lanes is ahead of the class's `entry`), asleep; `entry` passing it frees it. The last few that
//!    were freed stay as if they had just been made: these are `idle`.
//! 5. A start that is taken back moves nobody: neither its lane nor its class's rounds nor, if all that
//!    started since is taken back too, the turns of the classes remember it.
//!
//! `docs/rules.md#schedule-2`, `docs/rules.md#schedule-8`.

use std::hash::Hash;

use crate::arena::{Arena, NIL};
use crate::class::ClassPicker;
use crate::item::Charge;
use crate::key::ReadyKeys;
use crate::lanes::Lanes;
use crate::map::Map;
use crate::recent::{Before, RecentStarts};
use crate::recently_idle::RecentlyIdle;
use crate::{Class, TenantLimits};

/// How many sleepers one dispatch may free: more than it can add, so they never pile up.
const SLEEPERS_PER_DISPATCH: usize = 4;

/// Up to so many sleepers are freed one by one at the end of a busy period, and keep their memory
/// for the next; more are dropped all at once.
const SLEEPERS_FREED_SINGLY: usize = 64;

#[derive(Debug)]
pub(crate) struct FairTenants<T> {
    tenants: Arena<Tenant<T>>,
    by_name: Map<T, u32>,
    recently_idle: RecentlyIdle,
    idle: usize,
    lanes: Lanes,
    picker: ClassPicker,
    /// How many wait in each class.
    queued: [u32; Class::COUNT],
    /// What items cost lately, over all tenants; 0 while nothing was measured.
    average: u32,
    recent: RecentStarts,
}

#[derive(Debug)]
pub(crate) struct Tenant<T> {
    pub(crate) name: T,
    pub(crate) limits: RunLimits,
    pub(crate) queued: [u32; Class::COUNT],
    pub(crate) running: u32,
    pub(crate) served: u64,
    average: u32,
    lanes: [u32; Class::COUNT],
    idle: bool,
}

/// What of a tenant's limits counts once an item is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLimits {
    pub(crate) weight: u32,
    pub(crate) max_running: u32,
}

impl From<&TenantLimits> for RunLimits {
    fn from(&TenantLimits { weight, max_running, .. }: &TenantLimits) -> Self {
        Self { weight, max_running }
    }
}

impl<T> Tenant<T> {
    pub(crate) fn all_queued(&self) -> u32 {
        self.queued.iter().sum()
    }

    /// Nothing of it runs or waits.
    fn rests(&self) -> bool {
        self.running == 0 && self.queued == [0; Class::COUNT]
    }
}

/// A head that starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartingHead {
    /// Its number.
    pub(crate) item: u64,
    /// It was tried before.
    pub(crate) again: bool,
    /// What was said of its cost.
    pub(crate) cost: Option<u32>,
}

/// A start that may be taken back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) tenant: u32,
    pub(crate) class: Class,
    pub(crate) again: bool,
    pub(crate) charge: Charge,
    /// The item's number.
    pub(crate) item: u64,
}

impl<T: Hash + Eq + Clone> FairTenants<T> {
    pub(crate) fn new(class_period: u32) -> Self {
        Self {
            tenants: Arena::new(),
            by_name: Map::default(),
            recently_idle: RecentlyIdle::new(),
            idle: 0,
            lanes: Lanes::new(),
            picker: ClassPicker::new(class_period),
            queued: [0; Class::COUNT],
            average: 0,
            recent: RecentStarts::new(),
        }
    }

    pub(crate) fn tenant(&self, tenant: u32) -> &Tenant<T> {
        &self.tenants[tenant]
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Tenant<T>> {
        self.tenants.iter().map(|(_, tenant)| tenant).filter(|tenant| !tenant.idle)
    }

    pub(crate) fn find(&self, name: &T) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The tenant of that name, made if need be; `limits` are those of one that was not there before.
    pub(crate) fn come(&mut self, name: T, limits: RunLimits) -> u32 {
        let Some(&index) = self.by_name.get(&name) else {
            return self.add(name, limits);
        };
        let tenant = &mut self.tenants[index];
        if tenant.rests() {
            if std::mem::take(&mut tenant.idle) {
                self.idle -= 1;
                (tenant.limits, tenant.average, tenant.served) = (limits, self.average, 0);
            }
            self.wake(index);
        }
        index
    }

    fn add(&mut self, name: T, limits: RunLimits) -> u32 {
        let index = self.tenants.insert(Tenant {
            name: name.clone(),
            limits,
            queued: [0; Class::COUNT],
            running: 0,
            served: 0,
            average: self.average,
            lanes: [NIL; Class::COUNT],
            idle: false,
        });
        self.by_name.insert(name, index);
        index
    }

    /// Whether the tenant runs fewer items than it may.
    pub(crate) fn may_run(&self, tenant: u32) -> bool {
        self.tenants[tenant].running < self.tenants[tenant].limits.max_running
    }

    /// An item starts as it comes in, while nothing waits: as if it had stood in line alone.
    pub(crate) fn start_at_once(
        &mut self,
        tenant: u32,
        class: Class,
        head: StartingHead,
    ) -> Charge {
        let lane = self.lane(tenant, class);
        self.free_sleepers(class);
        let rounds = self.lanes.rounds(class);
        self.recent.add(Before::new(head.item, class, self.picker.clone(), rounds));
        let Tenant { limits, average, running, .. } = &mut self.tenants[tenant];
        *running += 1;
        let (weight, cost) = (limits.weight, head.cost.unwrap_or(*average).max(1));
        self.lanes.pass(lane, head.item, cost, weight)
    }

    pub(crate) const fn queued(&self) -> [u32; Class::COUNT] {
        self.queued
    }

    /// One item of the tenant no longer waits and does not run either.
    pub(crate) fn dequeue(&mut self, tenant: u32, class: Class) {
        self.leave_queue(tenant, class);
        if self.queued[class.index()] == 0 {
            self.recent.empty(class);
        }
        self.rest(tenant);
    }

    /// The lane in which a tenant's heads of a class wait, and of it the ready keys that the head
    /// belongs to.
    pub(crate) fn line_of(
        &mut self,
        (tenant, class): (u32, Class),
        again: bool,
    ) -> (u32, &mut ReadyKeys) {
        let lane = self.lane(tenant, class);
        (lane, self.lanes.ready_keys(lane, again))
    }

    /// Of a lane, the ready keys whose heads come again, or those whose do not.
    pub(crate) fn ready_keys(&mut self, lane: u32, again: bool) -> &mut ReadyKeys {
        self.lanes.ready_keys(lane, again)
    }

    /// The key whose head would start now.
    pub(crate) fn pick(&self) -> Option<u32> {
        self.lanes.first_ready(self.picker.pick(self.lanes.ready())?)
    }

    /// A head of the lane starts, and its key has left the ready ones: the tenant is charged.
    pub(crate) fn start(&mut self, lane: u32, head: StartingHead) -> Charge {
        let StartingHead { item, again, cost } = head;
        let (tenant, class) = self.lanes.owner(lane);
        // Not after this start has moved the rounds: it may yet be taken back.
        self.free_sleepers(class);
        let rounds = self.lanes.rounds(class);
        self.recent.add(Before::new(item, class, self.picker.clone(), rounds));
        self.picker.served(class, self.lanes.ready());
        let in_line = self.lanes.in_line(lane);
        let Tenant { limits, average, running, queued, .. } = &mut self.tenants[tenant];
        let RunLimits { weight, max_running } = *limits;
        let charge = Charge { cost: cost.unwrap_or(*average).max(1), weight, in_line };
        *running += 1;
        queued[class.index()] -= 1;
        let at_limit = *running >= max_running;
        self.lanes.serve(lane, charge, (item, again));
        if at_limit {
            self.place_all(tenant);
        } else if !self.lanes.has_keys(lane) {
            self.lanes.leave(lane, weight);
        }
        self.leave_class(class);
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

    /// An item that was started did not run after all, and is gone.
    pub(crate) fn revoke(&mut self, started: Started) {
        self.take_back(started);
        self.stop(started.tenant);
    }

    /// A running item goes back to waiting.
    pub(crate) fn requeue(&mut self, tenant: u32, class: Class, charge: Charge, cost: Option<u32>) {
        self.join_queue(tenant, class);
        self.measure(tenant, class, charge, cost);
        self.stop(tenant);
    }

    /// A running item goes back to waiting as if it had never started.
    pub(crate) fn requeue_unrun(&mut self, started: Started) {
        // Counted as waiting first, so that neither tenant nor class is taken for idle in between.
        self.join_queue(started.tenant, started.class);
        self.take_back(started);
        self.stop(started.tenant);
    }

    /// Invariant 5.
    fn take_back(&mut self, started: Started) {
        let Started { tenant, class, again, charge, item } = started;
        let lane = self.tenants[tenant].lanes[class.index()];
        if lane != NIL {
            self.lanes.unserve(lane, charge, (item, again));
        }
        let moved_back = self.lanes.rounds(class).moved_back(charge);
        self.lanes.set_rounds(class, moved_back);
        let before = self.recent.take_back(item, |later, before| {
            later.picker.owe(class, before);
            if later.class == class {
                later.rounds = later.rounds.moved_back(charge);
            }
        });
        if let Some(before) = before {
            self.picker.owe(class, &before);
        }
        while let Some(before) = self.recent.pop_taken_back() {
            self.lanes.set_rounds(before.class, before.rounds);
            self.picker = before.picker;
        }
        for class in Class::ALL {
            if self.queued[class.index()] == 0 {
                self.picker.forget(class);
            }
        }
    }

    /// Other limits for a tenant that is here.
    pub(crate) fn set_limits(&mut self, tenant: u32, limits: RunLimits) {
        let weight = std::mem::replace(&mut self.tenants[tenant].limits, limits).weight;
        for lane in self.lanes_of(tenant) {
            self.lanes.reweigh(lane, weight, limits.weight);
        }
        self.place_all(tenant);
    }

    /// Other limits for each tenant, as `limits` says.
    pub(crate) fn set_all_limits(&mut self, limits: impl Fn(&T) -> RunLimits) {
        let tenants: Vec<u32> = self.tenants.iter().map(|(index, _)| index).collect();
        for tenant in tenants {
            let limits = limits(&self.tenants[tenant].name);
            self.set_limits(tenant, limits);
        }
    }

    /// Nothing waits and nothing runs: debts are void, and everybody is forgotten.
    pub(crate) fn clear(&mut self) {
        if self.tenants.len() > SLEEPERS_FREED_SINGLY || self.tenants.was_large() {
            self.tenants = Arena::new();
            self.by_name = Map::default();
            self.idle = 0;
            self.lanes.free_all();
        }
        for class in Class::ALL {
            while let Some(lane) = self.lanes.first_asleep(class) {
                self.free_sleeper(lane);
            }
        }
        self.lanes.rewind();
        self.recent.clear();
    }

    fn lanes_of(&self, tenant: u32) -> impl Iterator<Item = u32> + use<T> {
        self.tenants[tenant].lanes.into_iter().filter(|lane| *lane != NIL)
    }

    /// One more item of the tenant waits.
    pub(crate) fn join_queue(&mut self, tenant: u32, class: Class) {
        self.tenants[tenant].queued[class.index()] += 1;
        self.queued[class.index()] += 1;
    }

    fn leave_queue(&mut self, tenant: u32, class: Class) {
        self.tenants[tenant].queued[class.index()] -= 1;
        self.leave_class(class);
    }

    fn leave_class(&mut self, class: Class) {
        let queued = &mut self.queued[class.index()];
        *queued -= 1;
        if *queued == 0 {
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
        let lane = self.lanes.add(tenant, class);
        self.tenants[tenant].lanes[class.index()] = lane;
        lane
    }

    fn place_all(&mut self, tenant: u32) {
        for lane in self.lanes_of(tenant) {
            self.place(lane);
        }
    }

    /// Brings a lane to where invariant 1 wants it.
    pub(crate) fn place(&mut self, lane: u32) {
        let (tenant, _) = self.lanes.owner(lane);
        let Tenant { limits, running, .. } = &self.tenants[tenant];
        if self.lanes.has_keys(lane) && *running < limits.max_running {
            self.lanes.enter(lane, limits.weight);
        } else {
            self.lanes.leave(lane, limits.weight);
        }
    }

    fn correct(&mut self, tenant: u32, class: Class, charged: Charge, cost: u32) {
        let lane = self.tenants[tenant].lanes[class.index()];
        if lane != NIL {
            self.lanes.correct(lane, charged, cost);
        }
    }

    /// A tenant with nothing queued or running leaves; one in debt sleeps until it has paid.
    fn rest(&mut self, tenant: u32) {
        if !self.tenants[tenant].rests() {
            return;
        }
        let mut in_debt = false;
        for lane in self.lanes_of(tenant) {
            if self.lanes.sleep(lane) {
                in_debt = true;
            } else {
                self.lanes.reset(lane);
            }
        }
        if !in_debt {
            self.retire(tenant);
        }
    }

    /// A tenant that owes nothing is as if it had just been made. One that has been so for longer goes.
    fn retire(&mut self, tenant: u32) {
        self.tenants[tenant].idle = true;
        self.idle += 1;
        let oldest = self.recently_idle.push(tenant);
        let Some(gone) = oldest.filter(|old| self.tenants.get(*old).is_some_and(|old| old.idle))
        else {
            return;
        };
        for lane in self.lanes_of(gone) {
            self.lanes.free(lane);
        }
        let Tenant { name, .. } = self.tenants.remove(gone);
        self.idle -= 1;
        self.by_name.remove(&name);
        crate::shrink(&mut self.by_name);
    }

    fn wake(&mut self, tenant: u32) {
        for lane in self.lanes_of(tenant) {
            self.lanes.wake(lane);
        }
    }

    /// Frees tenants whose debt `entry` has passed.
    fn free_sleepers(&mut self, class: Class) {
        for _ in 0..SLEEPERS_PER_DISPATCH {
            match self.lanes.first_free_of_debt(class) {
                Some(lane) => self.free_sleeper(lane),
                None => break,
            }
        }
    }

    fn free_sleeper(&mut self, lane: u32) {
        let (tenant, _) = self.lanes.owner(lane);
        self.lanes.wake(lane);
        self.lanes.reset(lane);
        if !self.lanes_of(tenant).any(|lane| self.lanes.is_asleep(lane)) {
            self.retire(tenant);
        }
    }
}

/// An eighth of the way towards the new cost; the first one counts whole.
fn averaged(average: u32, cost: u32) -> u32 {
    if average == 0 {
        return cost;
    }
    let mixed = (u64::from(average) * 7 + u64::from(cost) + 4) / 8;
    u32::try_from(mixed).unwrap_or(u32::MAX).max(1)
}
