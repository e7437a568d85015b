//! Items, and the list of those that wait, longest first.

use std::num::NonZeroU32;
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
    /// It was tried, and put back.
    pub(crate) again: bool,
    pub(crate) stage: Stage,
    /// What was said of the cost on admission.
    pub(crate) cost: Option<NonZeroU32>,
    /// Since when it waits, or runs.
    pub(crate) since: Moment,
    pub(crate) value: V,
}

/// Where an item is. Millions wait, so what only one stage needs shares its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    Waiting(Links),
    Running(Bill),
    /// It ran, and only keeps its key. Its tenant may be gone.
    Lingering,
}

/// Neighbours of an item that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// Within the key's queue.
    pub(crate) before: u32,
    pub(crate) behind: u32,
    /// Among all that wait.
    older: u32,
    newer: u32,
}

/// What an item took when it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bill {
    pub(crate) charge: Charge,
    /// The token bucket its token came from.
    pub(crate) bucket: Option<NonZeroU32>,
}

/// A cost, charged at the weight its tenant had then: taken back at another weight it would be more
/// or less than what was charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) cost: u32,
    pub(crate) weight: u32,
    /// The weight of all that were in line then, where the tenant came new: by it those who come new
    /// after it were moved.
    pub(crate) in_line: Option<NonZeroU32>,
}

/// What an item brings along.
pub(crate) struct Arrival<V> {
    pub(crate) key: u32,
    pub(crate) tenant: u32,
    pub(crate) class: Class,
    pub(crate) cost: Option<u32>,
    pub(crate) value: V,
}

impl Links {
    const NONE: Self = Self { before: NIL, behind: NIL, older: NIL, newer: NIL };
}

impl<V> Item<V> {
    /// The links of an item that waits.
    ///
    /// # Panics
    /// When it does not: only queues of waiting items are linked, so that is a fault of this crate.
    pub(crate) fn links(&mut self) -> &mut Links {
        match &mut self.stage {
            Stage::Waiting(links) => links,
            _ => panic!("item {} does not wait", self.seq),
        }
    }
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

    /// The index behind an id, while the item waits.
    pub(crate) fn find_waiting(&self, id: ItemId) -> Option<u32> {
        matches!(self.get(id)?.stage, Stage::Waiting(_)).then_some(id.index)
    }

    /// The index behind an id, while the item runs, and what it took.
    pub(crate) fn find_running(&self, id: ItemId) -> Option<(u32, Bill)> {
        match self.get(id)?.stage {
            Stage::Running(bill) => Some((id.index, bill)),
            _ => None,
        }
    }

    /// The index behind an id, while the item lingers.
    pub(crate) fn find_lingering(&self, id: ItemId) -> Option<u32> {
        matches!(self.get(id)?.stage, Stage::Lingering).then_some(id.index)
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
            again: false,
            stage: Stage::Waiting(Links::NONE),
            cost: cost.and_then(NonZeroU32::new),
            since: now,
            value,
        });
        self.begin_wait(item);
        item
    }

    /// The number of the next item that comes.
    pub(crate) const fn next_number(&self) -> u64 {
        self.admitted + 1
    }

    /// An item comes that runs at once.
    pub(crate) fn arrive_running(&mut self, arrival: Arrival<V>, bill: Bill, now: Moment) -> u32 {
        let Arrival { key, tenant, class, cost, value } = arrival;
        self.admitted += 1;
        self.running += 1;
        self.items.insert(Item {
            seq: self.admitted,
            key,
            tenant,
            class,
            again: false,
            stage: Stage::Running(bill),
            cost: cost.and_then(NonZeroU32::new),
            since: now,
            value,
        })
    }

    pub(crate) fn start(&mut self, item: u32, bill: Bill, now: Moment) {
        self.end_wait(item);
        self.running += 1;
        let item = &mut self.items[item];
        item.stage = Stage::Running(bill);
        item.since = now;
    }

    pub(crate) fn put_back(&mut self, item: u32, now: Moment) {
        self.running -= 1;
        self.items[item].stage = Stage::Waiting(Links::NONE);
        self.items[item].since = now;
        self.begin_wait(item);
    }

    pub(crate) fn linger(&mut self, item: u32) {
        self.running -= 1;
        self.lingering += 1;
        self.items[item].stage = Stage::Lingering;
    }

    pub(crate) fn remove(&mut self, item: u32) -> Item<V> {
        match self.items[item].stage {
            Stage::Waiting(_) => self.end_wait(item),
            Stage::Running(_) => self.running -= 1,
            Stage::Lingering => self.lingering -= 1,
        }
        self.items.remove(item)
    }

    /// The one that waits longest.
    pub(crate) fn oldest(&self) -> Option<u32> {
        Some(self.oldest).filter(|&item| item != NIL)
    }

    /// All that wait, longest first.
    pub(crate) fn iter_waiting(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.oldest(), |&item| match self.items[item].stage {
            Stage::Waiting(Links { newer, .. }) => Some(newer).filter(|&newer| newer != NIL),
            _ => None,
        })
    }

    pub(crate) fn iter_lingering(&self) -> impl Iterator<Item = &Item<V>> {
        let all = self.items.iter().map(|(_, item)| item);
        all.filter(|item| matches!(item.stage, Stage::Lingering))
    }

    pub(crate) fn iter_running(&self) -> impl Iterator<Item = u32> {
        let running = self.items.iter().filter(|(_, item)| matches!(item.stage, Stage::Running(_)));
        running.map(|(index, _)| index)
    }

    fn begin_wait(&mut self, item: u32) {
        self.waiting += 1;
        self.items[item].links().older = self.newest;
        match self.newest {
            NIL => self.oldest = item,
            newest => self.items[newest].links().newer = item,
        }
        self.newest = item;
    }

    fn end_wait(&mut self, item: u32) {
        self.waiting -= 1;
        let Links { older, newer, .. } = *self.items[item].links();
        match older {
            NIL => self.oldest = newer,
            older => self.items[older].links().newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => self.items[newer].links().older = older,
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
