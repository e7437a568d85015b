//! Items, and the list of those that wait, longest first.

use std::ops::{Index, IndexMut};

use crate::arena::{Arena, NIL};
use crate::{Class, ItemId, Moment};

#[derive(Debug)]
pub(crate) struct Items<V> {
    items: Arena<Item<V>>,
    oldest: u32,
    newest: u32,
    waiting: u32,
    running: u32,
    lingering: u32,
    admitted: u64,
}

#[derive(Debug)]
pub(crate) struct Item<V> {
    pub(crate) seq: u64,
    pub(crate) key: u32,
    pub(crate) tenant: u32,
    pub(crate) class: Class,
    pub(crate) state: State,
    /// What was said of the cost on admission.
    pub(crate) cost: Option<u32>,
    /// What was charged when it started.
    pub(crate) charge: Charge,
    /// The bucket its token came from.
    pub(crate) bucket: Option<u32>,
    /// Since when it waits, or runs.
    pub(crate) since: Moment,
    /// Neighbours within the key's queue.
    pub(crate) before: u32,
    pub(crate) behind: u32,
    /// Neighbours among all that wait.
    older: u32,
    newer: u32,
    pub(crate) value: V,
}

/// A cost, charged at the weight its tenant had then: taken back at another weight it would be more
/// or less than what was charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) cost: u32,
    pub(crate) weight: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Running,
    /// It ran, and only keeps its key. Its tenant may be gone.
    Lingering,
}

/// What an item brings along.
pub(crate) struct Arrival<V> {
    pub(crate) key: u32,
    pub(crate) tenant: u32,
    pub(crate) class: Class,
    pub(crate) cost: Option<u32>,
    pub(crate) value: V,
}

impl<V> Items<V> {
    pub(crate) const fn new() -> Self {
        Self {
            items: Arena::new(),
            oldest: NIL,
            newest: NIL,
            waiting: 0,
            running: 0,
            lingering: 0,
            admitted: 0,
        }
    }

    pub(crate) const fn waiting(&self) -> u32 {
        self.waiting
    }

    pub(crate) const fn running(&self) -> u32 {
        self.running
    }

    pub(crate) const fn lingering(&self) -> u32 {
        self.lingering
    }

    /// The index behind an id, while the item is in that state.
    pub(crate) fn find(&self, id: ItemId, state: State) -> Option<u32> {
        self.get(id).filter(|item| item.state == state).map(|_| id.index)
    }

    pub(crate) fn get(&self, id: ItemId) -> Option<&Item<V>> {
        self.items.get(id.index).filter(|item| item.seq == id.seq)
    }

    pub(crate) fn id(&self, index: u32) -> ItemId {
        ItemId { index, seq: self.items[index].seq }
    }

    pub(crate) fn arrive(&mut self, arrival: Arrival<V>, now: Moment) -> u32 {
        let Arrival { key, tenant, class, cost, value } = arrival;
        self.admitted += 1;
        let item = self.items.insert(Item {
            seq: self.admitted,
            key,
            tenant,
            class,
            state: State::Waiting,
            cost,
            charge: Charge { cost: 0, weight: 1 },
            bucket: None,
            since: now,
            before: NIL,
            behind: NIL,
            older: NIL,
            newer: NIL,
            value,
        });
        self.begin_wait(item);
        item
    }

    pub(crate) fn start(
        &mut self,
        item: u32,
        (charge, bucket): (Charge, Option<u32>),
        now: Moment,
    ) {
        self.end_wait(item);
        self.running += 1;
        let item = &mut self.items[item];
        item.state = State::Running;
        item.charge = charge;
        item.bucket = bucket;
        item.since = now;
    }

    pub(crate) fn put_back(&mut self, item: u32, now: Moment) {
        self.running -= 1;
        self.items[item].state = State::Waiting;
        self.items[item].since = now;
        self.begin_wait(item);
    }

    pub(crate) fn linger(&mut self, item: u32) {
        self.running -= 1;
        self.lingering += 1;
        self.items[item].state = State::Lingering;
    }

    pub(crate) fn remove(&mut self, item: u32) -> Item<V> {
        match self.items[item].state {
            State::Waiting => self.end_wait(item),
            State::Running => self.running -= 1,
            State::Lingering => self.lingering -= 1,
        }
        self.items.remove(item)
    }

    /// The one that waits longest.
    pub(crate) fn oldest(&self) -> Option<u32> {
        Some(self.oldest).filter(|&item| item != NIL)
    }

    /// All that wait, longest first.
    pub(crate) fn iter_waiting(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.oldest(), |&item| {
            Some(self.items[item].newer).filter(|&newer| newer != NIL)
        })
    }

    pub(crate) fn iter_running(&self) -> impl Iterator<Item = u32> {
        let running = self.items.iter().filter(|(_, item)| item.state == State::Running);
        running.map(|(index, _)| index)
    }

    fn begin_wait(&mut self, item: u32) {
        self.waiting += 1;
        self.items[item].older = self.newest;
        match self.newest {
            NIL => self.oldest = item,
            newest => self.items[newest].newer = item,
        }
        self.newest = item;
    }

    fn end_wait(&mut self, item: u32) {
        self.waiting -= 1;
        let older = std::mem::replace(&mut self.items[item].older, NIL);
        let newer = std::mem::replace(&mut self.items[item].newer, NIL);
        match older {
            NIL => self.oldest = newer,
            older => self.items[older].newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => self.items[newer].older = older,
        }
    }
}

impl<V> Index<u32> for Items<V> {
    type Output = Item<V>;

    fn index(&self, index: u32) -> &Item<V> {
        &self.items[index]
    }
}

impl<V> IndexMut<u32> for Items<V> {
    fn index_mut(&mut self, index: u32) -> &mut Item<V> {
        &mut self.items[index]
    }
}
