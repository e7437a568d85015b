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

use crate::history::{Bounds, Flow, Setup};
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
    Waits { since: Moment, order: u64, back: Option<Back> },
    Runs { charge: Charge, bucket: Option<u64> },
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
    pub(crate) concurrency: u32,
    pub(crate) capacity: u32,
    pub(crate) keys: usize,
    pub(crate) oldest_wait: Duration,
}

impl Item {
    fn waits(&self) -> bool {
        matches!(self.state, State::Waits { .. })
    }

    fn back(&self) -> Option<Back> {
        match self.state {
            State::Waits { back, .. } => back,
            State::Runs { .. } => None,
        }
    }

    fn held(&self) -> Option<Moment> {
        self.back().and_then(|back| back.held)
    }

    fn wait(&self) -> Option<(u64, Moment)> {
        match self.state {
            State::Waits { since, order, .. } => Some((order, since)),
            State::Runs { .. } => None,
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

    pub(crate) fn may_admit(&self, tenant: u8, class: Class) -> Result<(), Refusal> {
        let queued = self.count(Item::waits);
        if self.draining {
            return Err(Refusal::Draining);
        }
        if queued >= self.capacity {
            return Err(Refusal::QueueFull { queued, capacity: self.capacity });
        }
        let queued = self.count(|item| item.waits() && item.tenant == tenant);
        let max = self.rounds.bounds(tenant).max_queued;
        let passes = matches!(class, Class::System | Class::Admin);
        if queued >= max && !passes {
            return Err(Refusal::TenantQueueFull { queued, max });
        }
        Ok(())
    }

    /// An item that [`Model::may_admit`] lets in, under the id that the schedule gave it.
    pub(crate) fn admit(
        &mut self,
        now: Moment,
        id: ItemId,
        (tenant, key, class, cost): (u8, Option<u8>, Class, Option<u32>),
        value: u64,
    ) {
        self.waits += 1;
        let state = State::Waits { since: now, order: self.waits, back: None };
        let line = key.map_or(Line::Alone(id.number()), Line::Key);
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
        let running = self.count(|item| !item.waits());
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
        let (item, charge, taken_from) = self.running(id)?;
        if let Some(bucket) = self.bucket.as_mut().filter(|b| Some(b.number) == taken_from) {
            bucket.put_back();
        }
        self.rounds.take_back((item.tenant, item.class), charge);
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
        self.waits += 1;
        let order = self.waits;
        let held = Some(until).filter(|until| *until > now);
        let back = Some(Back { held });
        self.rounds.measure((item.tenant, item.class), charge, cost);
        if let Some(item) = self.items.iter_mut().find(|item| item.id == id) {
            item.state = State::Waits { since: now, order, back };
        }
        self.settle(Some(item.line));
        self.settle(None);
        true
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
        if !item.waits() {
            return Some(Why::Running);
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
        let running = self.count(|other| !other.waits() && other.tenant == item.tenant);
        let max = self.rounds.bounds(item.tenant).max_running;
        if running >= max {
            return Some(Why::TenantAtLimit { running, max });
        }
        let running = self.count(|other| !other.waits());
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
            running: self.count(|item| !item.waits()),
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
        self.items.iter().filter(|item| !item.waits()).map(|item| item.id).collect()
    }

    /// Tenant, weight, queued, running, served, in order. Those that neither wait, nor run, nor owe
    /// may be forgotten at any time: `known` tells which of them the schedule still has.
    pub(crate) fn tenants(&mut self, known: &[u8]) -> Vec<(u8, u32, u32, u32, u64)> {
        let Self { items, rounds, .. } = self;
        rounds.forget(|tenant, owes| {
            let here = items.iter().any(|item| item.tenant == tenant);
            here || (!items.is_empty() && (owes || known.contains(&tenant)))
        });
        if items.is_empty() {
            rounds.begin_anew();
        }
        let mut tenants: Vec<_> = rounds
            .known()
            .map(|(tenant, served)| {
                let of = |waits: bool| {
                    items.iter().filter(|i| i.tenant == tenant && i.waits() == waits).count() as u32
                };
                (tenant, rounds.bounds(tenant).weight, of(true), of(false), served)
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
            State::Waits { .. } => None,
        }
    }
}
