//! A pool: a bounded, ordered, fair queue before its workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering as Memory};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sluicegate_schedule::{Class, Invalid, ItemId, Rate};
use sluicegate_tasks::{Entry, Pause, Refused, Sluice, TaskGroup};
use tokio::time::Instant;

use crate::item::{BatchGroup, Item, Rest};
use crate::parking::ParkingKeys;
use crate::places::Places;
use crate::routed::{InFlightMessage, Now, Place, PoolId};
use crate::{
    DEFAULT_GROUP, FAST_FAIL_DELAY, Message, Ordered, Ordering, PoolSettings, Reason, Ungrouped,
};

/// The most workers a pool can have; the sluice decides how many it has.
const MOST_WORKERS: u32 = 1 << 20;

/// How often a pool looks whether messages without a group wait beside idle permits.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// A pool of the router.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    pub(crate) code: Arc<str>,
    settings: RwLock<Arc<PoolSettings>>,
    /// How often they were changed.
    revision: AtomicU32,
    pub(crate) sluice: Sluice<Item>,
    pub(crate) places: Arc<Places>,
    pub(crate) workers: TaskGroup,
    /// How many wait here to be tried again, or for a person.
    resting: AtomicU32,
    pauses: Mutex<HashMap<Box<str>, Instant>>,
    /// Whether there may be any.
    any_paused: AtomicBool,
    pub(crate) parking: Arc<ParkingKeys>,
    /// How many were let in.
    pub(crate) admitted: AtomicU64,
    ungrouped: AtomicU32,
    looked: Mutex<Option<Instant>>,
    closed: AtomicBool,
    pub(crate) counts: Counts,
}

/// What a pool has seen. In a cache line of its own: it changes with every message, and what is beside it is
/// read with every message.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) retried: AtomicU64,
    /// Messages whose target was not called because its breaker was open.
    pub(crate) put_off: AtomicU64,
    pub(crate) parked: AtomicU64,
    /// Messages that went back for want of room before they reached the sluice.
    pub(crate) refused: AtomicU64,
}

impl Pool {
    pub(crate) fn new(settings: PoolSettings) -> Result<Self, Invalid> {
        let (concurrency, capacity) = (settings.concurrency, settings.capacity());
        let mut builder = Sluice::builder(&*settings.code, concurrency, capacity);
        if let Some(rate) = settings.rate()? {
            builder = builder.rate(rate);
        }
        Ok(Self {
            id: PoolId::next(),
            code: Arc::clone(&settings.code),
            sluice: builder.build()?,
            places: Places::new(concurrency, capacity),
            workers: TaskGroup::new(&*settings.code, MOST_WORKERS)?,
            resting: AtomicU32::new(0),
            settings: RwLock::new(Arc::new(settings)),
            revision: AtomicU32::new(0),
            pauses: Mutex::default(),
            any_paused: AtomicBool::new(false),
            parking: Arc::default(),
            admitted: AtomicU64::new(0),
            ungrouped: AtomicU32::new(0),
            looked: Mutex::new(None),
            closed: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    pub(crate) fn settings(&self) -> Arc<PoolSettings> {
        Arc::clone(&self.settings.read())
    }

    /// The settings again, if they are others than at a revision.
    pub(crate) fn renew(&self, settings: &mut Arc<PoolSettings>, revision: &mut u32) {
        let now = self.revision.load(Memory::Acquire);
        if *revision != now {
            *revision = now;
            *settings = self.settings();
        }
    }

    pub(crate) fn revision(&self) -> u32 {
        self.revision.load(Memory::Acquire)
    }

    /// Changes the settings, at once and for those that wait: docs/rules.md#pool-2. Where it begins to keep order, or keeps
    /// that of more messages, nothing starts until the answer is dropped.
    pub(crate) fn change(&self, settings: PoolSettings) -> Result<Option<Pause<Item>>, Invalid> {
        let rate = settings.rate()?;
        let mut current = self.settings.write();
        let becomes_strict =
            current.ordered() == Ordered::Nothing && settings.ordered() != Ordered::Nothing;
        let begins = becomes_strict || settings.keys() > current.keys();
        let pause = begins.then(|| self.sluice.pause("its pool begins to keep order"));
        self.sluice.resize(settings.concurrency, settings.capacity())?;
        if current.rate_limit_per_minute != settings.rate_limit_per_minute {
            self.sluice.set_rate(rate);
        }
        self.places.resize(settings.concurrency, settings.capacity());
        *current = Arc::new(settings);
        self.revision.fetch_add(1, Memory::Release);
        Ok(pause)
    }

    /// Lets messages in, all or none, in order. Answers with those that were let in.
    pub(crate) fn admit(
        &self,
        part: Vec<Item>,
        settings: &PoolSettings,
    ) -> Result<Vec<InFlightMessage>, Vec<Item>> {
        let tracked: Vec<_> = part.iter().map(|item| Arc::clone(item.held.tracked())).collect();
        let batches: Vec<_> = part.iter().map(|item| item.past.batch.clone()).collect();
        let count = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let first = self.admitted.fetch_add(u64::from(count), Memory::Relaxed);
        let numbered = |(number, item): (u64, Item)| {
            let has_key = settings.key_name(&item.held.tracked().entry.message).is_some();
            (entry(settings, &item), Item { number, has_key, ..item })
        };
        let items = (first..).zip(part).map(numbered).collect();
        // Before one of them can start or be settled.
        self.places.entered(count);
        tracked.iter().for_each(|one| one.entry.take_place(Arc::clone(&self.places)));
        let ids = match self.sluice.admit_all(items) {
            Ok(ids) => ids,
            Err(Refused { work, .. }) => {
                for tracked in &tracked {
                    self.places.started();
                    tracked.entry.leave_place();
                }
                return Err(work.into_iter().map(|(_, item)| item).collect());
            }
        };
        for ((tracked, batch), id) in tracked.iter().zip(batches).zip(ids) {
            let has_key = settings.key_name(&tracked.entry.message).is_some();
            let place = Place { code: Arc::clone(&self.code), pool: self.id, item: id, has_key };
            tracked.entry.set_place(place);
            let batch = batch.filter(|_| settings.turns_back(&tracked.entry.message));
            if batch.is_some_and(|batch| !batch.record(self.id, id)) {
                self.turn_back(id);
            }
        }
        Ok(tracked)
    }

    /// Hands back those that came in one batch with a message of theirs that failed:
    /// docs/rules.md#fifo-2.
    pub(crate) fn cascade(&self, batch: &BatchGroup) {
        // Those that went to another pool meanwhile look when they would start.
        let own = batch.fail().into_iter().filter(|(pool, _)| *pool == self.id);
        own.for_each(|(_, id)| self.turn_back(id));
    }

    fn turn_back(&self, id: ItemId) {
        if let Some(item) = self.withdraw(id) {
            self.cascaded(item);
        }
    }

    /// Takes out a message that waits.
    pub(crate) fn withdraw(&self, id: ItemId) -> Option<Item> {
        self.sluice.withdraw(id).map(|item| self.taken_out(item))
    }

    /// A message does not wait here any more; it keeps what it rests for.
    fn taken_out(&self, mut item: Item) -> Item {
        self.places.started();
        let entry = &item.held.tracked().entry;
        let before = entry.set_now(Now::Waiting);
        self.rests(&before, &Now::Waiting);
        self.left(&entry.message);
        if let Now::Retrying { until, reason, breaker } = before {
            item.past.rest = Some(Rest { until, reason, breaker });
        }
        item
    }

    /// Hands back a message that must not run before one of its batch and group.
    pub(crate) fn cascaded(&self, item: Item) {
        item.hand_back(FAST_FAIL_DELAY, Reason::Cascade);
    }

    /// A message that rested does so no more, or one that did not does.
    pub(crate) fn rests(&self, before: &Now, after: &Now) {
        match (before.is_resting(), after.is_resting()) {
            (false, true) => self.resting.fetch_add(1, Memory::Relaxed),
            (true, false) => self.resting.fetch_sub(1, Memory::Relaxed),
            _ => return,
        };
    }

    /// Whether as many rest here as may: the next goes back to its source, so that others have room:
    /// docs/rules.md#pool-4.
    pub(crate) fn is_resting_full(&self, settings: &PoolSettings) -> bool {
        self.resting.load(Memory::Relaxed) >= settings.capacity() / 2
    }

    /// Lets nothing more in and hands back all that wait: docs/rules.md#pool-3.
    pub(crate) fn close(&self) {
        self.take_all().into_iter().for_each(Item::drain);
    }

    /// Lets nothing more in. Hands back what waits, but for those that later ones of their group could come before:
    /// these it answers with, in order.
    pub(crate) fn leave(&self) -> Vec<Item> {
        let is_strict = self.settings().ordering == Ordering::Strict;
        let mut stay = Vec::new();
        for item in self.take_all() {
            let is_acked = item.held.tracked().entry.is_acked();
            match is_strict && !item.comes_alone() && !is_acked {
                true => stay.push(item.at_once()),
                false => item.drain(),
            }
        }
        stay
    }

    /// All that wait, in order.
    fn take_all(&self) -> Vec<Item> {
        self.closed.store(true, Memory::Release);
        let mut items = self.sluice.close();
        items.sort_by_key(|item| item.number);
        let items = items.into_iter().map(|item| self.taken_out(item)).collect();
        self.places.tell();
        items
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Memory::Acquire)
    }

    /// Whether it is closed, nothing of it runs any more, and all that did is settled.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_closed() && self.places.is_empty() && self.sluice.stats().gauges.running == 0
    }

    /// Until when a host is not to be called.
    pub(crate) fn paused_until(&self, host: &str, now: Instant) -> Option<Instant> {
        if !self.any_paused.load(Memory::Acquire) {
            return None;
        }
        let mut pauses = self.pauses.lock();
        let until = *pauses.get(host)?;
        if until <= now {
            pauses.remove(host);
            self.any_paused.store(!pauses.is_empty(), Memory::Release);
            return None;
        }
        Some(until)
    }

    pub(crate) fn pause(&self, host: &str, until: Instant) {
        let mut pauses = self.pauses.lock();
        let now = Instant::now();
        pauses.retain(|_, until| *until > now);
        let pause = pauses.entry(host.into()).or_insert(until);
        *pause = (*pause).max(until);
        self.any_paused.store(true, Memory::Release);
    }

    /// The hosts that are not to be called, and until when.
    pub(crate) fn pauses(&self, now: Instant) -> Vec<(Box<str>, Instant)> {
        let pauses = self.pauses.lock();
        let paused = pauses.iter().filter(|(_, until)| **until > now);
        paused.map(|(host, until)| (host.clone(), *until)).collect()
    }

    /// Lets a host be called again. `false` if it was not paused.
    pub(crate) fn lift_pause(&self, host: &str) -> bool {
        let mut pauses = self.pauses.lock();
        let is_lifted = pauses.remove(host).is_some_and(|until| until > Instant::now());
        self.any_paused.store(!pauses.is_empty(), Memory::Release);
        is_lifted
    }

    /// A message came in. `true` if it is one without a group that waits for another beside idle
    /// permits.
    pub(crate) fn entered(&self, message: &Message, settings: &PoolSettings) -> bool {
        if message.group.is_some()
            || settings.ungrouped == Ungrouped::Parallel
            || settings.ordering == Ordering::None
        {
            return false;
        }
        let others = self.ungrouped.fetch_add(1, Memory::Relaxed);
        others > 0 && self.is_due() && self.sluice.stats().gauges.running < settings.concurrency
    }

    /// Whether it is time to look for idle permits again.
    fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut looked = self.looked.lock();
        let due = looked.is_none_or(|last| now - last >= BETWEEN_LOOKS);
        if due {
            *looked = Some(now);
        }
        due
    }

    /// A message is over.
    pub(crate) fn left(&self, message: &Message) {
        if message.group.is_none() {
            let less = |count: u32| Some(count.saturating_sub(1));
            self.ungrouped.fetch_update(Memory::Relaxed, Memory::Relaxed, less).ok();
        }
    }
}

impl PoolSettings {
    pub(crate) fn rate(&self) -> Result<Option<Rate>, Invalid> {
        self.rate_limit_per_minute.filter(|rate| *rate > 0).map(Rate::per_minute).transpose()
    }

    /// The name of what a message stays in order with in this pool, if with anything.
    pub(crate) fn key_name<'a>(&self, message: &'a Message) -> Option<&'a str> {
        match (self.ordering, &message.group, self.ungrouped) {
            (Ordering::None, _, _) | (_, None, Ungrouped::Parallel) => None,
            (_, Some(group), _) => Some(group),
            (_, None, Ungrouped::Fifo) => Some(DEFAULT_GROUP),
        }
    }

    /// How many kinds of messages have keys in this pool: none, those with a group, all.
    const fn keys(&self) -> u8 {
        match (self.ordering, self.ungrouped) {
            (Ordering::None, _) => 0,
            (_, Ungrouped::Parallel) => 1,
            (_, Ungrouped::Fifo) => 2,
        }
    }

    /// Whether a failure turns back what was received with it of its group: docs/rules.md#fifo-2.
    pub(crate) fn turns_back(&self, message: &Message) -> bool {
        self.ordering == Ordering::Batch && self.key_name(message).is_some()
    }

    /// What of this pool stays in order across deliveries.
    pub(crate) const fn ordered(&self) -> Ordered {
        match (self.ordering, self.ungrouped) {
            (Ordering::Strict, Ungrouped::Fifo) => Ordered::All,
            (Ordering::Strict, Ungrouped::Parallel) => Ordered::Groups,
            (Ordering::Batch | Ordering::None, _) => Ordered::Nothing,
        }
    }

    /// What a message stays in order with in this pool, if with anything.
    #[must_use]
    pub fn key(&self, message: &Message) -> Option<Arc<str>> {
        match (self.ordering, &message.group, self.ungrouped) {
            (Ordering::None, _, _) | (_, None, Ungrouped::Parallel) => None,
            (_, Some(group), _) => Some(Arc::clone(group)),
            (_, None, Ungrouped::Fifo) => Some(default_group()),
        }
    }
}

/// The group of messages without one, made once.
pub(crate) fn default_group() -> Arc<str> {
    static GROUP: std::sync::OnceLock<Arc<str>> = std::sync::OnceLock::new();
    Arc::clone(GROUP.get_or_init(|| DEFAULT_GROUP.into()))
}

/// The tenant of messages without one, made once.
fn no_tenant() -> Arc<str> {
    static TENANT: std::sync::OnceLock<Arc<str>> = std::sync::OnceLock::new();
    Arc::clone(TENANT.get_or_init(|| "".into()))
}

/// Its key and its class: docs/rules.md#fifo-1. What was to be tried again goes before what has high priority.
fn entry(settings: &PoolSettings, item: &Item) -> Entry {
    let message = &item.held.tracked().entry.message;
    let entry = Entry::of(message.tenant.clone().unwrap_or_else(no_tenant));
    let class = match (item.past.is_head, message.high_priority) {
        (true, _) => Class::System,
        (false, true) => Class::Admin,
        (false, false) => Class::Normal,
    };
    match settings.key(message) {
        Some(key) => entry.key(key).class(class),
        None => entry.class(class),
    }
}
