//! Looking into the model: counts, and why an item is not running yet.

use std::time::Duration;

use sluicegate_schedule::{Class, ItemId, Moment, Why};

use super::{Item, Line, Model};

/// What a snapshot says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) queued: u32,
    pub(crate) queued_by_class: [u32; Class::COUNT],
    pub(crate) running: u32,
    pub(crate) lingering: u32,
    pub(crate) concurrency: u32,
    pub(crate) capacity: u32,
    pub(crate) keys: usize,
    pub(crate) oldest_wait: Duration,
}

/// What is said of a tenant: its name, weight, how many wait in each class, run, and were served.
pub(crate) type OfTenant = (u8, u32, [u32; Class::COUNT], u32, u64);

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
        if let Some((reason, _)) = self.pauses.first() {
            return Some(Why::Paused { reason });
        }
        let running = self.count(|other| other.runs() && other.tenant == item.tenant);
        let max = self.bounds(item.tenant).max_running;
        if running >= max {
            return Some(Why::TenantAtLimit { running, max });
        }
        let running = self.count(Item::runs);
        if running >= self.concurrency {
            return Some(Why::AtLimit { running, limit: self.concurrency });
        }
        match self.limit.as_ref().map(|limit| limit.ready_for(1, now)) {
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
            queued_by_class: Class::ALL.map(|class| self.count(|i| i.waits() && i.class == class)),
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

    /// What is to be said of the tenants, in order. One that neither waits nor runs may be in debt, and
    /// so `known`, or be forgotten at any time; when nothing waits or runs, all are.
    pub(crate) fn tenants(&mut self, known: &[u8]) -> Vec<OfTenant> {
        let idle = self.items.iter().all(Item::lingers);
        let here = |tenant: u8| self.items.iter().any(|i| i.tenant == tenant && !i.lingers());
        let mut names: Vec<u8> = self.served.iter().map(|(tenant, _)| *tenant).collect();
        names.retain(|tenant| here(*tenant) || (!idle && known.contains(tenant)));
        names.sort_unstable();
        self.served.retain(|(tenant, _)| names.contains(tenant));
        names.into_iter().map(|tenant| self.of_tenant(tenant)).collect()
    }

    fn of_tenant(&self, tenant: u8) -> OfTenant {
        let waits =
            |class| self.count(|item| item.tenant == tenant && item.waits() && item.class == class);
        let runs = self.count(|item| item.tenant == tenant && item.runs());
        let served = self.served.iter().find(|(name, _)| *name == tenant).map_or(0, |(_, n)| *n);
        (tenant, self.bounds(tenant).weight, Class::ALL.map(waits), runs, served)
    }

    pub(super) fn count(&self, which: impl Fn(&Item) -> bool) -> u32 {
        self.items.iter().filter(|item| which(item)).count() as u32
    }

    pub(super) fn find(&self, id: ItemId) -> Option<Item> {
        self.items.iter().find(|item| item.id == id).copied()
    }
}
