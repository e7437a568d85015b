//! Order per key: one queue a key, one item out at a time.
//!
//! Invariants:
//! 1. `running` and being ready exclude each other: a key never has two items out.
//! 2. A put-back item (`front`) goes before everything else of its key, whatever the classes.
//! 3. A key with nothing waiting and nothing running does not exist, but for the last few that had a
//!    name: these are `idle`.
//! 4. Holds end in the order of their moments, and those of one moment in the order they began.
//! 5. The ready keys of a lane stand in two lists, first attempts and heads that come again, each in
//!    the order in which the heads became ready.
//!
//! `docs/rules.md#schedule-3`, `docs/rules.md#schedule-7`.

use std::hash::{Hash, Hasher};

use crate::arena::{Arena, NIL};
use crate::heap::Heap;
use crate::item::{Items, Links};
use crate::map::Map;
use crate::recently_idle::RecentlyIdle;
use crate::{Class, Moment};

#[derive(Debug)]
pub(crate) struct Keys<K, T> {
    keys: Arena<KeyQueue<K, T>>,
    by_name: Map<KeyName<K, T>, u32>,
    /// Until when, and of those that end together, which began first.
    held: Heap<(Moment, u64)>,
    holds: u64,
    recently_idle: RecentlyIdle,
    idle: usize,
}

/// What a key is known by: a name for all, or a name of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyName<K, T> {
    pub(crate) key: K,
    pub(crate) tenant: Option<T>,
}

/// Names for all hash as the key alone: that is most of them.
impl<K: Hash, T: Hash> Hash for KeyName<K, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        if let Some(tenant) = &self.tenant {
            tenant.hash(state);
        }
    }
}

#[derive(Debug)]
pub(crate) struct KeyQueue<K, T> {
    name: Option<KeyName<K, T>>,
    queues: [Queue; Class::COUNT],
    /// An item that was out and was put back.
    pub(crate) front: u32,
    pub(crate) running: u32,
    pub(crate) standing: Standing,
    idle: bool,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
}

/// Where a key stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nowhere: it runs, or nothing of it waits.
    Out,
    /// With the ready keys of a lane, for its head.
    Ready { lane: u32, head: u32, again: bool, before: u32, behind: u32 },
    /// Until a moment.
    Held { until: Moment, place: u32 },
}

/// Ready keys of a lane, the one whose head is ready for longest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyKeys {
    first: u32,
    last: u32,
}

impl ReadyKeys {
    pub(crate) const NONE: Self = Self { first: NIL, last: NIL };

    pub(crate) const fn first(self) -> Option<u32> {
        if self.first == NIL { None } else { Some(self.first) }
    }
}

impl<K, T> KeyQueue<K, T> {
    /// What goes next.
    pub(crate) fn head(&self) -> Option<u32> {
        let queues = self.queues.iter().map(|queue| queue.first);
        std::iter::once(self.front).chain(queues).find(|&item| item != NIL)
    }

    const fn is_gone(&self) -> bool {
        let [a, b, c, d] = &self.queues;
        self.running == NIL
            && self.front == NIL
            && a.first == NIL
            && b.first == NIL
            && c.first == NIL
            && d.first == NIL
    }
}

impl<K: Hash + Eq + Clone, T: Hash + Eq + Clone> Keys<K, T> {
    pub(crate) fn new() -> Self {
        Self {
            keys: Arena::new(),
            by_name: Map::default(),
            held: Heap::new(),
            holds: 0,
            recently_idle: RecentlyIdle::new(),
            idle: 0,
        }
    }

    pub(crate) fn get(&self, key: u32) -> &KeyQueue<K, T> {
        &self.keys[key]
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> &mut KeyQueue<K, T> {
        &mut self.keys[key]
    }

    /// How many have items.
    pub(crate) const fn len(&self) -> usize {
        self.keys.len() - self.idle
    }

    /// The key of that name, made if need be. Without a name every call makes one.
    pub(crate) fn enter(&mut self, name: Option<KeyName<K, T>>) -> u32 {
        if let Some(&key) = name.as_ref().and_then(|name| self.by_name.get(name)) {
            if self.idle > 0 {
                self.idle -= usize::from(std::mem::take(&mut self.keys[key].idle));
            }
            return key;
        }
        let key = self.keys.insert(KeyQueue {
            name: name.clone(),
            queues: [Queue { first: NIL, last: NIL }; Class::COUNT],
            front: NIL,
            running: NIL,
            standing: Standing::Out,
            idle: false,
        });
        if let Some(name) = name {
            self.by_name.insert(name, key);
        }
        key
    }

    /// Forgets a key that has neither waiting nor running items.
    pub(crate) fn leave_if_gone(&mut self, index: u32) {
        let key = &mut self.keys[index];
        if !key.is_gone() {
            return;
        }
        if key.name.is_none() {
            self.keys.remove(index);
            return;
        }
        key.idle = true;
        self.idle += 1;
        if self.idle == self.keys.len() && self.keys.was_large() {
            // Nothing is left of a crowd: its memory goes too.
            (self.keys, self.by_name, self.idle) = (Arena::new(), Map::default(), 0);
            return;
        }
        if let Some(oldest) = self.recently_idle.push(index)
            && self.keys.get(oldest).is_some_and(|key| key.idle)
        {
            self.idle -= 1;
            if let Some(name) = self.keys.remove(oldest).name {
                self.by_name.remove(&name);
                crate::shrink(&mut self.by_name);
            }
        }
    }

    pub(crate) fn append<V>(&mut self, items: &mut Items<V>, key: u32, item: u32) {
        let queue = &mut self.keys[key].queues[items[item].class.index()];
        items[item].links().before = queue.last;
        match queue.last {
            NIL => queue.first = item,
            last => items[last].links().behind = item,
        }
        queue.last = item;
    }

    pub(crate) fn unlink<V>(&mut self, items: &mut Items<V>, item: u32) {
        let (key, class) = (items[item].key, items[item].class);
        let key = &mut self.keys[key];
        if key.front == item {
            key.front = NIL;
            return;
        }
        let queue = &mut key.queues[class.index()];
        let Links { before, behind, .. } = *items[item].links();
        match before {
            NIL => queue.first = behind,
            before => items[before].links().behind = behind,
        }
        match behind {
            NIL => queue.last = before,
            behind => items[behind].links().before = before,
        }
    }

    /// Keeps a key from running until a moment.
    pub(crate) fn hold(&mut self, key: u32, until: Moment) {
        self.holds += 1;
        self.held.push((until, self.holds), key, |key, place| {
            let until = match self.keys[key].standing {
                Standing::Held { until, .. } => until,
                _ => until,
            };
            self.keys[key].standing = Standing::Held { until, place };
        });
    }

    /// Ends a hold before its time.
    pub(crate) fn release(&mut self, key: u32) {
        if let Standing::Held { place, .. } = self.keys[key].standing {
            self.held.remove(place, |key, at| {
                if let Standing::Held { place, .. } = &mut self.keys[key].standing {
                    *place = at;
                }
            });
            self.keys[key].standing = Standing::Out;
        }
    }

    /// Releases one key whose moment has come.
    #[inline]
    pub(crate) fn release_due(&mut self, now: Moment) -> Option<u32> {
        let (_, key) = self.held.first().filter(|((until, _), _)| *until <= now)?;
        self.release(key);
        Some(key)
    }

    /// When the next hold ends.
    pub(crate) fn next_release(&self) -> Option<Moment> {
        self.held.first().map(|((until, _), _)| until).filter(|until| *until < Moment::FAR)
    }

    /// The key joins the ready keys of a lane, behind those that are ready for longer.
    pub(crate) fn join(&mut self, line: &mut ReadyKeys, key: u32, ready: ReadyHead) {
        let ReadyHead { lane, head, again } = ready;
        let before = std::mem::replace(&mut line.last, key);
        match before {
            NIL => line.first = key,
            before => *self.neighbours(before).1 = key,
        }
        self.keys[key].standing = Standing::Ready { lane, head, again, before, behind: NIL };
    }

    /// The key leaves the ready keys of its lane.
    pub(crate) fn part(&mut self, line: &mut ReadyKeys, key: u32) {
        let (before, behind) = self.neighbours(key);
        let (before, behind) = (*before, *behind);
        match before {
            NIL => line.first = behind,
            before => *self.neighbours(before).1 = behind,
        }
        match behind {
            NIL => line.last = before,
            behind => *self.neighbours(behind).0 = before,
        }
        self.keys[key].standing = Standing::Out;
    }

    fn neighbours(&mut self, key: u32) -> (&mut u32, &mut u32) {
        match &mut self.keys[key].standing {
            Standing::Ready { before, behind, .. } => (before, behind),
            other => unreachable!("a ready key has ready neighbours, not {other:?}"),
        }
    }
}

/// A head that may start, and the lane it waits in.
pub(crate) struct ReadyHead {
    pub(crate) lane: u32,
    pub(crate) head: u32,
    /// It was tried before.
    pub(crate) again: bool,
}

impl<K, T> KeyQueue<K, T> {
    pub(crate) fn name(&self) -> Option<&K> {
        self.name.as_ref().map(|name| &name.key)
    }
}
