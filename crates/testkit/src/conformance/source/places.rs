//! Pools with so many places each, as a router has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_dispatch::{Demand, Openings, Room, Rooms};

/// Places by pool. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Places {
    shared: Arc<Mutex<State>>,
    openings: Arc<Openings>,
}

#[derive(Default)]
struct State {
    free: BTreeMap<String, u32>,
    taken: BTreeMap<String, u32>,
    /// How often each pool was asked for a place and had none.
    refused: BTreeMap<String, u32>,
}

/// The places of one demand: dropped, it gives back what was not kept.
struct Lent {
    places: Places,
    taken: Mutex<BTreeMap<String, u32>>,
}

impl Places {
    pub(super) fn of(pools: &[(&str, u32)]) -> Self {
        let places = Self::default();
        places.shared.lock().free = pools.iter().map(|(p, n)| ((*p).to_owned(), *n)).collect();
        places
    }

    /// A demand whose places stay taken.
    pub(super) fn demand(&self, most: usize) -> Demand {
        Demand::of(most, Arc::new(self.clone()), Arc::clone(&self.openings))
    }

    /// A demand that gives its places back when it is dropped.
    pub(super) fn lent(&self, most: usize) -> Demand {
        let lent = Lent { places: self.clone(), taken: Mutex::default() };
        Demand::of(most, Arc::new(lent), Arc::clone(&self.openings))
    }

    /// More places, without a word about it.
    pub(super) fn add(&self, pool: &str, count: u32) {
        *self.shared.lock().free.entry(pool.to_owned()).or_default() += count;
    }

    /// More places, and whoever was refused hears of it.
    pub(super) fn open(&self, pool: &str, count: u32) {
        self.add(pool, count);
        self.openings.open(pool.into());
    }

    pub(super) fn open_all(&self) {
        self.openings.open_all();
    }

    pub(super) fn taken(&self, pool: &str) -> u32 {
        self.shared.lock().taken.get(pool).copied().unwrap_or(0)
    }

    pub(super) fn refused(&self, pool: &str) -> u32 {
        self.shared.lock().refused.get(pool).copied().unwrap_or(0)
    }

    fn take_one(&self, pool: &str) -> bool {
        let mut state = self.shared.lock();
        let free = state.free.get_mut(pool).filter(|free| **free > 0);
        let is_free = free.is_some();
        if let Some(free) = free {
            *free -= 1;
        }
        let counts = if is_free { &mut state.taken } else { &mut state.refused };
        *counts.entry(pool.to_owned()).or_default() += 1;
        is_free
    }

    fn rest(&self) -> Room {
        let free = self.shared.lock().free.clone();
        let pools = free.into_iter().map(|(pool, free)| (pool.into(), free)).collect();
        Room { pools, others: 0 }
    }
}

impl Rooms for Places {
    fn take(&self, pool: &str) -> bool {
        self.take_one(pool)
    }

    fn room(&self) -> Room {
        self.rest()
    }
}

impl Rooms for Lent {
    fn take(&self, pool: &str) -> bool {
        let is_free = self.places.take_one(pool);
        if is_free {
            *self.taken.lock().entry(pool.to_owned()).or_default() += 1;
        }
        is_free
    }

    fn room(&self) -> Room {
        self.places.rest()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for (pool, count) in self.taken.get_mut() {
            self.places.open(pool, *count);
        }
    }
}
