//! The schedule in its plainest form: one list of items, one list of tenants, and linear scans.
//!
//! Written from the specification, to be compared with the real one step by step. Where the
//! specification leaves an order open (who of several that enter at the same instant comes first)
//! the model follows what the real schedule said, and only checks that it was among the equals.

mod bucket;
mod order;
mod rounds;

use std::time::Duration;

use sluicegate_schedule::{Class, ItemId, Moment, Next, Refusal, Why};

use crate::history::{Bounds, Flow, Newcomer, Setup};
use bucket::Bucket;
use rounds::{Charge, Rounds};

pub(crate) struct Model {
    concurrency: u32,
    capacity: u32,
    bucket: Option<Bucket>,
    draining: bool,
    items: Vec<Item>,
    rounds: Rounds,
    /// Counts waits as they begin: the order of those that wait.
    waits: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) id: ItemId,
    pub(crate) value: u64,
    pub(crate) tenant: u8,
    pub(crate) class: Class,
    line: Line,
    cost: Option<u32>,
    state: State,
}

/// What keeps order: a key, or an item on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Key(u8),
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
        charge: Charge,
        bucket: Option<u64>,
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

/// What a snapshot says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) queued: u32,
    pub(crate) running: u32,
    pub(crate) lingering: u32,
    pub(crate) concurrency: u32,
    pub(crate) capacity: u32,
    pub(crate) keys: usize,
    pub(crate) oldest_wait: Duration,
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
            bucket: None,
            draining: false,
            items: Vec::new(),
            rounds: Rounds::new(setup.class_period, setup.each_tenant),
            waits: 0,
        };
        model.set_rate(Moment::ZERO, setup.rate);
        model
    }

    /// Whether all of them, one after the other, would be let in. What waits is counted as it was
    /// before them.
    pub(crate) fn may_admit(&self, batch: &[Newcomer]) -> Result<(), Refusal> {
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
            let max = self.rounds.bounds(tenant).max_queued;
            let passes = matches!(newcomer.class, Class::System | Class::Admin);
            if queued + before >= max && !passes {
                return Err(Refusal::TenantQueueFull { queued, max });
            }
        }
        Ok(())
    }

    /// An item that [`Model::may_admit`] lets in, under the id that the schedule gave it.
    pub(crate) fn admit(&mut self, now: Moment, id: ItemId, newcomer: Newcomer, value: u64) {
        let Newcomer { tenant, key, class, cost } = newcomer;
        self.waits += 1;
        let state = State::Waits { since: now, order: self.waits, back: None };
        let line = key.map_or(Line::Alone(id.number()), Line::Key);
        let cost = cost.map(|cost| cost.max(1));
        self.items.push(Item { id, value, tenant, class, line, cost, state });
        self.rounds.know(tenant);
        self.settle(None);
    }

    /// The decision; `said` is the real one's, which is followed among equals only.
    pub(crate) fn next(&mut self, now: Moment, said: Next) -> Next {
        while let Some(due) = self.next_release().filter(|due| *due <= now) {
            for item in &mut self.items {
                if item.held() == Some(due) {
                    item.let_go();
                }
            }
            self.settle(None);
        }
        let running = self.count(Item::runs);
        if running >= self.concurrency {
            return Next::Idle;
        }
        let Some(class) = self.rounds.class() else {
            return match self.next_release() {
                Some(at) if at < Moment::FAR => Next::At(at),
                _ => Next::Idle,
            };
        };
        if let Some(Err(at)) = self.bucket.as_mut().map(|bucket| bucket.take(now)) {
            return Next::At(at);
        }
        // The tenants whose turn it is; their oldest head each; of those, what the schedule said.
        let heads: Vec<Item> = self
            .rounds
            .first_of(class)
            .into_iter()
            .filter_map(|tenant| self.oldest_head(tenant, class))
            .collect();
        let said = heads.iter().find(|head| said == Next::Start(head.id));
        let chosen = *said.unwrap_or(&heads[0]);
        self.start(chosen);
        Next::Start(chosen.id)
    }

    pub(crate) fn complete(&mut self, id: ItemId, cost: Option<u32>) -> Option<u64> {
        let (item, charge, _) = self.running(id)?;
        self.rounds.served(item.tenant);
        self.rounds.measure((item.tenant, item.class), charge, cost);
        self.leave(item);
        Some(item.value)
    }

    pub(crate) fn revoke(&mut self, id: ItemId) -> Option<u64> {
        let item = self.take_back(id)?;
        self.leave(item);
        Some(item.value)
    }

    pub(crate) fn retry(
        &mut self,
        now: Moment,
        id: ItemId,
        until: Moment,
        cost: Option<u32>,
    ) -> bool {
        let Some((item, charge, _)) = self.running(id) else { return false };
        self.rounds.measure((item.tenant, item.class), charge, cost);
        self.put_back(now, item, until);
        true
    }

    pub(crate) fn postpone(&mut self, now: Moment, id: ItemId, until: Moment) -> bool {
        let Some(item) = self.take_back(id) else { return false };
        self.put_back(now, item, until);
        true
    }

    pub(crate) fn linger(&mut self, id: ItemId, cost: Option<u32>) -> bool {
        let Some((item, charge, _)) = self.running(id) else { return false };
        self.rounds.served(item.tenant);
        self.rounds.measure((item.tenant, item.class), charge, cost);
        self.set_state(id, State::Lingers);
        self.settle(None);
        true
    }

    pub(crate) fn depart(&mut self, id: ItemId) -> Option<u64> {
        let item = self.find(id).filter(Item::lingers)?;
        self.leave(item);
        Some(item.value)
    }

    /// The token and the charge of a running item are given back.
    fn take_back(&mut self, id: ItemId) -> Option<Item> {
        let (item, charge, taken_from) = self.running(id)?;
        if let Some(bucket) = self.bucket.as_mut().filter(|b| Some(b.number) == taken_from) {
            bucket.put_back();
        }
        self.rounds.take_back((item.tenant, item.class), charge);
        Some(item)
    }

    fn put_back(&mut self, now: Moment, item: Item, until: Moment) {
        self.waits += 1;
        let held = Some(until).filter(|until| *until > now);
        let state = State::Waits { since: now, order: self.waits, back: Some(Back { held }) };
        self.set_state(item.id, state);
        self.settle(Some(item.line));
        self.settle(None);
    }

    fn set_state(&mut self, id: ItemId, state: State) {
        if let Some(item) = self.items.iter_mut().find(|item| item.id == id) {
            item.state = state;
        }
    }

    pub(crate) fn release(&mut self, id: ItemId) -> bool {
        let Some(item) = self.find(id).filter(|item| item.waits()) else { return false };
        let mut released = false;
        for other in &mut self.items {
            if other.line == item.line && other.held().is_some() {
                other.let_go();
                released = true;
            }
        }
        self.settle(None);
        released
    }

    pub(crate) fn cancel(&mut self, id: ItemId) -> Option<u64> {
        let item = self.find(id).filter(Item::waits)?;
        // A tenant whose only ready head is taken away loses its place among equals.
        let was_head = self.head(item.line).is_some_and(|head| head.id == id);
        self.items.retain(|other| other.id != id);
        if was_head {
            self.settle(Some(item.line));
        }
        self.settle(None);
        Some(item.value)
    }

    pub(crate) fn take_waiting(&mut self) -> Vec<u64> {
        let waiting = self.waiting();
        waiting.into_iter().filter_map(|(item, _)| self.cancel(item.id)).collect()
    }

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
        match (rate, &mut self.bucket) {
            (None, _) => self.bucket = None,
            (Some(rate), Some(bucket)) => bucket.change(now, rate),
            (Some(rate), None) => {
                self.waits += 1;
                self.bucket = Some(Bucket::full(now, rate, self.waits));
            }
        }
    }

    pub(crate) fn set_tenant(&mut self, tenant: u8, bounds: Bounds) {
        self.rounds.set_bounds(tenant, bounds);
        self.settle(None);
    }

    pub(crate) fn set_each_tenant(&mut self, bounds: Bounds) {
        self.rounds.set_each(bounds);
        self.settle(None);
    }
}

/// Looking in.
impl Model {
    pub(crate) fn why(&self, now: Moment, id: ItemId) -> Option<Why> {
        let item = self.find(id)?;
        if item.runs() {
            return Some(Why::Running);
        }
        if item.lingers() {
            return Some(Why::Lingering);
        }
        let mut of_line = self.items.iter().filter(|other| other.line == item.line);
        if let Some(runs) = of_line.clone().find(|other| !other.waits()) {
            return Some(Why::KeyBusy { head: runs.id });
        }
        if let Some((head, until)) = of_line.find_map(|i| Some((i.id, i.held()?))) {
            return Some(Why::KeyRetrying { head, until });
        }
        let head = self.head(item.line)?;
        if head.id != id {
            return Some(Why::KeyBusy { head: head.id });
        }
        let running = self.count(|other| other.runs() && other.tenant == item.tenant);
        let max = self.rounds.bounds(item.tenant).max_running;
        if running >= max {
            return Some(Why::TenantAtLimit { running, max });
        }
        let running = self.count(Item::runs);
        if running >= self.concurrency {
            return Some(Why::AtLimit { running, limit: self.concurrency });
        }
        match self.bucket.as_ref().map(|bucket| bucket.ready_at(now)) {
            Some(until) if until > now => Some(Why::RateLimited { until }),
            _ => Some(Why::Ready),
        }
    }

    pub(crate) fn counts(&self, now: Moment) -> Counts {
        let mut lines: Vec<Line> = Vec::new();
        for item in &self.items {
            if !lines.contains(&item.line) {
                lines.push(item.line);
            }
        }
        let oldest = self.waiting().first().map(|(_, since)| *since);
        Counts {
            queued: self.count(Item::waits),
            running: self.count(Item::runs),
            lingering: self.count(Item::lingers),
            concurrency: self.concurrency,
            capacity: self.capacity,
            keys: lines.len(),
            oldest_wait: oldest.map_or(Duration::ZERO, |since| now - since),
        }
    }

    /// All that wait, longest first, each with since when.
    pub(crate) fn waiting(&self) -> Vec<(Item, Moment)> {
        let mut waiting: Vec<_> =
            self.items.iter().filter_map(|item| Some((*item, item.wait()?))).collect();
        waiting.sort_by_key(|(_, (order, _))| *order);
        waiting.into_iter().map(|(item, (_, since))| (item, since)).collect()
    }

    pub(crate) fn running_ids(&self) -> Vec<ItemId> {
        self.items.iter().filter(|item| item.runs()).map(|item| item.id).collect()
    }

    pub(crate) fn lingering_ids(&self) -> Vec<ItemId> {
        self.items.iter().filter(|item| item.lingers()).map(|item| item.id).collect()
    }

    /// Tenant, weight, queued, running, served, in order. Those that neither wait, nor run, nor owe
    /// may be forgotten at any time: `known` tells which of them the schedule still has.
    pub(crate) fn tenants(&mut self, known: &[u8]) -> Vec<(u8, u32, u32, u32, u64)> {
        let Self { items, rounds, .. } = self;
        let idle = items.iter().all(Item::lingers);
        rounds.forget(|tenant, owes| {
            let here = items.iter().any(|item| item.tenant == tenant && !item.lingers());
            here || (!idle && (owes || known.contains(&tenant)))
        });
        if idle {
            rounds.begin_anew();
        }
        let mut tenants: Vec<_> = rounds
            .known()
            .map(|(tenant, served)| {
                let of = |which: fn(&Item) -> bool| {
                    items.iter().filter(|i| i.tenant == tenant && which(i)).count() as u32
                };
                let (waits, runs) = (of(Item::waits), of(Item::runs));
                (tenant, rounds.bounds(tenant).weight, waits, runs, served)
            })
            .collect();
        tenants.sort_unstable();
        tenants
    }

    fn count(&self, which: impl Fn(&Item) -> bool) -> u32 {
        self.items.iter().filter(|item| which(item)).count() as u32
    }

    fn find(&self, id: ItemId) -> Option<Item> {
        self.items.iter().find(|item| item.id == id).copied()
    }

    fn running(&self, id: ItemId) -> Option<(Item, Charge, Option<u64>)> {
        let item = self.find(id)?;
        match item.state {
            State::Runs { charge, bucket } => Some((item, charge, bucket)),
            State::Waits { .. } | State::Lingers => None,
        }
    }
}
