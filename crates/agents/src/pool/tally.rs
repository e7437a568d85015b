//! The requests by their ids, and what is counted of tenants.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_tasks::ItemId;

use crate::kept::Kept;
use crate::live::Live;
use crate::{Outcome, RequestError};

/// How many tenants are counted.
const TENANTS: usize = 10_000;

/// What became of a tenant's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantTally {
    /// How many were answered.
    pub served: u64,
    /// How many were let in and ended with an error; those that somebody cancelled are not counted.
    pub failed: u64,
    /// How many were not let in.
    pub rejected: u64,
}

impl TenantTally {
    /// Counts what came of a request that was let in.
    pub(super) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Ok(_) => self.served += 1,
            Err(RequestError::Cancelled) => {}
            Err(_) => self.failed += 1,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) live: HashMap<Arc<str>, Arc<Live>>,
    pub(super) by_item: HashMap<ItemId, Arc<str>>,
    pub(super) kept: Kept,
    tenants: HashMap<Arc<str>, TenantTally>,
}

impl Table {
    pub(super) fn add(&mut self, live: &Arc<Live>) {
        let id = &live.request.id;
        self.live.insert(Arc::clone(id), Arc::clone(live));
        if let Some(item) = live.item.get() {
            self.by_item.insert(*item, Arc::clone(id));
        }
    }

    pub(super) fn remove(&mut self, live: &Live) {
        self.live.remove(&live.request.id);
        if let Some(item) = live.item.get() {
            self.by_item.remove(item);
        }
    }

    pub(super) fn tally(&mut self, tenant: &Arc<str>) -> &mut TenantTally {
        if self.tenants.len() >= TENANTS && !self.tenants.contains_key(tenant) {
            // Whoever it is begins again from zero.
            let someone = self.tenants.keys().next().cloned();
            someone.map(|someone| self.tenants.remove(&someone));
        }
        self.tenants.entry(Arc::clone(tenant)).or_default()
    }

    pub(super) fn tallies(&self) -> impl Iterator<Item = (&Arc<str>, &TenantTally)> {
        self.tenants.iter()
    }
}
