//! What of a [`FakeSource`](super::FakeSource) can be handed out, and whose turn it is.
//!
//! Pools take turns, the one that was served longest ago first; tenants of a pool take turns by how often
//! they were served, and one that comes back begins where the others are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluicegate_dispatch::{DEFAULT_POOL, Demand, Message};

#[derive(Debug, Default)]
pub(super) struct Ready {
    pools: BTreeMap<Arc<str>, Pool>,
    /// Where each number is.
    places: BTreeMap<u64, Place>,
    /// Pools that had no room when they were last asked.
    shut: BTreeSet<Arc<str>>,
    turns: u64,
}

#[derive(Debug, Default)]
struct Pool {
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// How often the tenant was served that had the last turn, at that moment.
    now: u64,
    last_turn: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    numbers: BTreeSet<(Reverse<bool>, u64)>,
    /// Whose turn it is: the least.
    turn: (u64, bool, u64),
}

#[derive(Clone, Debug)]
struct Place {
    pool: Arc<str>,
    tenant: Arc<str>,
    is_high: bool,
}

impl Place {
    fn of(message: Option<&Message>) -> Self {
        let pool = message.map_or_else(|| DEFAULT_POOL.into(), |message| Arc::clone(&message.pool));
        let tenant = message.and_then(|message| message.tenant.clone()).unwrap_or_default();
        Self { pool, tenant, is_high: message.is_some_and(|message| message.high_priority) }
    }
}

impl Ready {
    pub(super) fn insert(&mut self, number: u64, message: Option<&Message>) {
        let place = Place::of(message);
        self.turns += 1;
        let pool = self.pools.entry(Arc::clone(&place.pool)).or_default();
        let tenant = pool.tenants.entry(Arc::clone(&place.tenant)).or_default();
        if tenant.numbers.is_empty() && tenant.turn.0 <= pool.now {
            tenant.turn = (pool.now, false, self.turns);
        }
        tenant.numbers.insert((Reverse(place.is_high), number));
        self.places.insert(number, place);
    }

    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Some(place) = self.places.remove(&number) else { return false };
        let pool = self.pools.get_mut(&place.pool);
        let tenant = pool.and_then(|pool| pool.tenants.get_mut(&place.tenant));
        tenant.is_some_and(|tenant| tenant.numbers.remove(&(Reverse(place.is_high), number)))
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Forgets what is ready; who was served how often stays known.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        for tenant in self.pools.values_mut().flat_map(|pool| pool.tenants.values_mut()) {
            tenant.numbers.clear();
        }
    }

    /// Hears which pools have room again.
    pub(super) fn hear(&mut self, demand: &Demand) {
        let Some(openings) = demand.openings() else { return self.shut.clear() };
        let opened = openings.opened();
        if opened.all {
            self.shut.clear();
        }
        for pool in opened.pools {
            self.shut.remove(&pool);
        }
    }

    /// Takes the one whose turn it is, if there is demand for it.
    pub(super) fn next(&mut self, demand: &Demand) -> Option<u64> {
        loop {
            let is_open = |code: &Arc<str>, pool: &Pool| {
                !self.shut.contains(code) && pool.tenants.values().any(|t| !t.numbers.is_empty())
            };
            let open = self.pools.iter_mut().filter(|(code, pool)| is_open(code, pool));
            let (code, pool) = open.min_by_key(|(_, pool)| pool.last_turn)?;
            if demand.take(code) {
                self.turns += 1;
                pool.last_turn = self.turns;
                let number = pool.next(self.turns)?;
                self.places.remove(&number);
                return Some(number);
            }
            self.shut.insert(Arc::clone(code));
        }
    }
}

impl Pool {
    fn next(&mut self, turn: u64) -> Option<u64> {
        let waiting = self.tenants.values_mut().filter(|tenant| !tenant.numbers.is_empty());
        let tenant = waiting.min_by_key(|tenant| tenant.turn)?;
        let (_, number) = tenant.numbers.pop_first()?;
        self.now = self.now.max(tenant.turn.0);
        tenant.turn = (self.now + 1, true, turn);
        Some(number)
    }
}
