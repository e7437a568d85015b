//! What waits, runs and lingers, in the plainest form: one list of items and linear scans.
//!
//! Written from the specification, to be compared with the real one step by step. Of whom the schedule
//! starts it only knows who may: the head of a key, of a tenant below its limit, that has been ready
//! for longest among its like. It knows no rounds and no charges: whose share is whose is stated in
//! the properties.

mod look;
mod order;
mod rate;

use sluicegate_schedule::{Class, ItemId, Moment, Refusal};

use crate::history::{Bounds, Flow, Newcomer, Setup};
pub(crate) use look::Counts;
use order::Turns;
use rate::Limit;

pub(crate) struct Model {
    concurrency: u32,
    capacity: u32,
    limit: Option<Limit>,
    each: Bounds,
    own: Vec<(u8, Bounds)>,
    /// How often each tenant entered lately, where that is limited.
    entered: Vec<(u8, Limit)>,
    draining: bool,
    items: Vec<Item>,
    /// In the order in which they were first given, and how often.
    pauses: Vec<(&'static str, u32)>,
    turns: Vec<Turns>,
    /// How many each tenant had completed.
    served: Vec<(u8, u64)>,
    /// Counts waits as they begin: the order of those that wait.
    waits: u64,
    /// Counts the changes at which heads become ready.
    readies: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) id: ItemId,
    pub(crate) value: u64,
    pub(crate) tenant: u8,
    pub(crate) class: Class,
    /// It was tried before.
    pub(crate) again: bool,
    line: Line,
    state: State,
    /// While it may start but for limits: at which change that began.
    ready: Option<u64>,
}

/// What keeps order: a key, a key of a tenant's own, or an item by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Key(u8),
    Own(u8, u8),
    Alone(u64),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waits {
        since: Moment,
        order: u64,
        back: Option<Back>,
    },
    Runs {
        since: Moment,
        limit: Option<u64>,
    },
    /// It ran, and nothing else of its line may.
    Lingers,
}

/// A wait after having been put back, at the front of the line.
#[derive(Clone, Copy, Debug)]
struct Back {
    /// The line runs nothing before this, while it is set.
    held: Option<Moment>,
}

impl Item {
    fn waits(&self) -> bool {
        matches!(self.state, State::Waits { .. })
    }

    fn runs(&self) -> bool {
        matches!(self.state, State::Runs { .. })
    }

    fn lingers(&self) -> bool {
        matches!(self.state, State::Lingers)
    }

    fn back(&self) -> Option<Back> {
        match self.state {
            State::Waits { back, .. } => back,
            State::Runs { .. } | State::Lingers => None,
        }
    }

    fn held(&self) -> Option<Moment> {
        self.back().and_then(|back| back.held)
    }

    fn wait(&self) -> Option<(u64, Moment)> {
        match self.state {
            State::Waits { since, order, .. } => Some((order, since)),
            State::Runs { .. } | State::Lingers => None,
        }
    }
}

impl Model {
    pub(crate) fn new(setup: Setup) -> Self {
        let mut model = Self {
            concurrency: setup.concurrency,
            capacity: setup.capacity,
            limit: None,
            each: setup.each_tenant,
            own: Vec::new(),
            entered: Vec::new(),
            draining: false,
            items: Vec::new(),
            pauses: Vec::new(),
            turns: Vec::new(),
            served: Vec::new(),
            waits: 0,
            readies: 0,
        };
        model.set_rate(Moment::ZERO, setup.rate);
        model
    }

    /// Whether all of them, one after the other, would be let in. What waits is counted as it was
    /// before them.
    pub(crate) fn may_admit(&self, now: Moment, batch: &[Newcomer]) -> Result<(), Refusal> {
        let queued = self.count(Item::waits);
        if self.draining {
            return Err(Refusal::Draining);
        }
        if !batch.is_empty() && queued as usize + batch.len() > self.capacity as usize {
            return Err(Refusal::QueueFull { queued, capacity: self.capacity });
        }
        for (at, newcomer) in batch.iter().enumerate() {
            let tenant = newcomer.tenant;
            let queued = self.count(|item| item.waits() && item.tenant == tenant);
            let before = batch[..at].iter().filter(|other| other.tenant == tenant).count() as u32;
            let max = self.bounds(tenant).max_queued;
            let passes = matches!(newcomer.class, Class::System | Class::Admin);
            if queued + before >= max && !passes {
                return Err(Refusal::TenantQueueFull { queued, max });
            }
        }
        for Newcomer { tenant, .. } in batch.iter().copied() {
            let items = batch.iter().filter(|other| other.tenant == tenant).count() as u32;
            let admission = self.bounds(tenant).admission;
            let until =
                admission.map_or(now, |flow| self.entry(now, tenant, flow).ready_for(items, now));
            if let (Moment::FAR, Some(flow)) = (until, admission) {
                let max = if flow.sliding { flow.count } else { flow.burst };
                return Err(Refusal::BatchTooLarge { items, max });
            }
            if until > now {
                return Err(Refusal::TenantRateLimited { until });
            }
        }
        Ok(())
    }

    /// How much of its admission rate a tenant has used.
    fn entry(&self, now: Moment, tenant: u8, flow: Flow) -> Limit {
        let used =
            self.entered.iter().find(|(name, limit)| *name == tenant && !limit.is_untouched(now));
        used.map_or_else(|| Limit::untouched(now, flow, 0), |(_, limit)| limit.clone())
    }

    /// An item that [`Model::may_admit`] lets in, under the id that the schedule gave it.
    pub(crate) fn admit(&mut self, now: Moment, id: ItemId, newcomer: Newcomer, value: u64) {
        let Newcomer { tenant, key, own_key, class, .. } = newcomer;
        self.waits += 1;
        let state = State::Waits { since: now, order: self.waits, back: None };
        let line = match key {
            Some(key) if own_key => Line::Own(tenant, key),
            Some(key) => Line::Key(key),
            None => Line::Alone(id.number()),
        };
        self.items.push(Item { id, value, tenant, class, again: false, line, state, ready: None });
        if self.served.iter().all(|(name, _)| *name != tenant) {
            self.served.push((tenant, 0));
        }
        if let Some(flow) = self.bounds(tenant).admission {
            let mut limit = self.entry(now, tenant, flow);
            limit.take(now).expect("it may enter");
            self.entered.retain(|(name, _)| *name != tenant);
            self.entered.push((tenant, limit));
        }
        self.settle();
    }

    pub(crate) fn complete(&mut self, id: ItemId) -> Option<u64> {
        let item = self.running(id)?;
        self.serve(item.tenant);
        self.leave(item)
    }

    pub(crate) fn revoke(&mut self, id: ItemId) -> Option<u64> {
        let item = self.running(id)?;
        self.take_back(&item);
        self.leave(item)
    }

    pub(crate) fn retry(&mut self, now: Moment, id: ItemId, until: Moment) -> bool {
        self.advance(now);
        let Some(item) = self.running(id) else { return false };
        self.put_back(now, Item { again: true, ..item }, until);
        true
    }

    pub(crate) fn postpone(&mut self, now: Moment, id: ItemId, until: Moment) -> bool {
        self.advance(now);
        let Some(item) = self.running(id) else { return false };
        self.take_back(&item);
        self.put_back(now, item, until);
        true
    }

    pub(crate) fn linger(&mut self, id: ItemId) -> bool {
        let Some(item) = self.running(id) else { return false };
        self.serve(item.tenant);
        self.set_state(id, State::Lingers);
        self.settle();
        true
    }

    pub(crate) fn depart(&mut self, id: ItemId) -> Option<u64> {
        let item = self.find(id).filter(Item::lingers)?;
        self.leave(item)
    }

    fn running(&self, id: ItemId) -> Option<Item> {
        self.find(id).filter(Item::runs)
    }

    fn serve(&mut self, tenant: u8) {
        if let Some((_, served)) = self.served.iter_mut().find(|(name, _)| *name == tenant) {
            *served += 1;
        }
    }

    fn leave(&mut self, item: Item) -> Option<u64> {
        self.items.retain(|other| other.id != item.id);
        self.settle();
        Some(item.value)
    }

    /// The token of a running item is given back.
    fn take_back(&mut self, item: &Item) {
        if let State::Runs { since, limit: taken_from } = item.state
            && let Some(limit) = self.limit.as_mut().filter(|l| Some(l.number) == taken_from)
        {
            limit.put_back(since);
        }
        self.forget_turn(item);
    }

    fn put_back(&mut self, now: Moment, item: Item, until: Moment) {
        self.waits += 1;
        let held = Some(until).filter(|until| *until > now);
        let state = State::Waits { since: now, order: self.waits, back: Some(Back { held }) };
        if let Some(at) = self.items.iter_mut().find(|other| other.id == item.id) {
            *at = Item { state, ..item };
        }
        self.settle();
    }

    fn set_state(&mut self, id: ItemId, state: State) {
        if let Some(item) = self.items.iter_mut().find(|item| item.id == id) {
            item.state = state;
        }
    }

    pub(crate) fn release(&mut self, id: ItemId) -> bool {
        let Some(item) = self.find(id).filter(Item::waits) else { return false };
        let mut released = false;
        for other in &mut self.items {
            if other.line == item.line && other.held().is_some() {
                other.let_go();
                released = true;
            }
        }
        self.settle();
        released
    }

    pub(crate) fn cancel(&mut self, id: ItemId) -> Option<u64> {
        let item = self.find(id).filter(Item::waits)?;
        self.leave(item)
    }

    pub(crate) fn take_waiting(&mut self) -> Vec<u64> {
        let waiting = self.waiting();
        waiting.into_iter().filter_map(|(item, _)| self.cancel(item.id)).collect()
    }
}

/// Limits.
impl Model {
    pub(crate) const fn stop_admission(&mut self) {
        self.draining = true;
    }

    pub(crate) const fn set_concurrency(&mut self, concurrency: u32) {
        self.concurrency = concurrency;
    }

    pub(crate) const fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    pub(crate) fn set_rate(&mut self, now: Moment, rate: Option<Flow>) {
        match (rate, &mut self.limit) {
            (None, _) => self.limit = None,
            (Some(rate), Some(limit)) => limit.change(now, rate),
            (Some(rate), None) => {
                self.waits += 1;
                self.limit = Some(Limit::untouched(now, rate, self.waits));
            }
        }
    }

    pub(crate) fn set_tenant(&mut self, now: Moment, tenant: u8, bounds: Option<Bounds>) -> bool {
        let had = self.own.len();
        self.own.retain(|(name, _)| *name != tenant);
        let had = self.own.len() < had;
        self.own.extend(bounds.map(|bounds| (tenant, bounds)));
        self.change_entries(now);
        had
    }

    pub(crate) fn set_each_tenant(&mut self, now: Moment, bounds: Bounds) {
        self.each = bounds;
        self.change_entries(now);
    }

    fn change_entries(&mut self, now: Moment) {
        let entered = std::mem::take(&mut self.entered);
        for (tenant, mut limit) in entered {
            if let Some(flow) = self.bounds(tenant).admission.filter(|_| !limit.is_untouched(now)) {
                limit.change(now, flow);
                self.entered.push((tenant, limit));
            }
        }
    }

    fn bounds(&self, tenant: u8) -> Bounds {
        self.own.iter().find(|(name, _)| *name == tenant).map_or(self.each, |(_, own)| *own)
    }

    pub(crate) fn pause(&mut self, reason: &'static str) {
        match self.pauses.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, times)) => *times += 1,
            None => self.pauses.push((reason, 1)),
        }
    }

    pub(crate) fn resume(&mut self, reason: &'static str) -> bool {
        let paused = self.pauses.iter().any(|(known, _)| *known == reason);
        self.pauses.iter_mut().filter(|(known, _)| *known == reason).for_each(|(_, n)| *n -= 1);
        self.pauses.retain(|(_, times)| *times > 0);
        paused
    }
}
