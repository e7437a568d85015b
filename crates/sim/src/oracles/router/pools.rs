//! The pools as they were told to be: the oracles of limits, rate and pauses.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_dispatch::{DEFAULT_POOL, Ordering, PoolSettings, Ungrouped};
use sluicegate_schedule::Moment;

use crate::oracles::bucket::{Bucket, Flow};
use crate::oracles::{Broken, hold};

/// All pools there have been in this life, and what is known of their codes over all lives.
#[derive(Debug, Default)]
pub(super) struct Pools {
    all: Vec<Pool>,
    open: BTreeMap<Arc<str>, usize>,
    /// The codes that were strict from the first to the last, and how they take the ungrouped.
    strict: BTreeMap<Arc<str>, Option<Ungrouped>>,
    most_concurrency: u32,
}

/// One pool, from the moment it is made to the moment it is removed.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) settings: Arc<PoolSettings>,
    pub(super) is_closed: bool,
    closed: Moment,
    /// No other of its code was there before it in this life, and it has kept its order.
    pub(super) is_steady: bool,
    /// It has kept strict order, if only for a while.
    pub(super) was_strict: bool,
    /// It has been told to leave a host alone.
    pub(super) has_paused: bool,
    pub(super) running: u32,
    /// What still holds for what began at this very instant.
    changed: (Moment, Vec<Arc<PoolSettings>>),
    pauses: BTreeMap<Arc<str>, Moment>,
    bucket: Option<Bucket>,
    most: (u32, u32),
}

fn flow(settings: &PoolSettings) -> Option<Flow> {
    let count = settings.rate_limit_per_minute.filter(|count| *count > 0)?;
    Some(Flow { count, period: 60_000_000_000, burst: (count / 60).max(1) })
}

impl Pools {
    /// The memory of a router is gone, and so are its pools.
    pub(super) fn begin(&mut self) {
        self.all.clear();
        self.open.clear();
    }

    pub(super) fn set(&mut self, now: Moment, settings: PoolSettings) {
        let ungrouped = (settings.ordering == Ordering::Strict).then_some(settings.ungrouped);
        let strict = self.strict.entry(Arc::clone(&settings.code)).or_insert(ungrouped);
        if *strict != ungrouped {
            *strict = None;
        }
        self.most_concurrency = self.most_concurrency.max(settings.concurrency);
        match self.open.get(&settings.code) {
            Some(at) => self.all[*at].change(now, settings),
            None => {
                let same = |pool: &Pool| pool.settings.code == settings.code;
                let is_steady = !self.all.iter().any(same);
                self.open.insert(Arc::clone(&settings.code), self.all.len());
                self.all.push(Pool::new(now, settings, is_steady));
            }
        }
    }

    pub(super) fn remove(&mut self, now: Moment, code: &Arc<str>) {
        self.strict.insert(Arc::clone(code), None);
        if let Some(at) = self.open.remove(code) {
            let pool = &mut self.all[at];
            (pool.is_closed, pool.closed) = (true, now);
        }
    }

    /// The pool of a code; the default one is made when it is first needed.
    pub(super) fn open(&mut self, now: Moment, code: &Arc<str>) -> Result<usize, Broken> {
        if **code == *DEFAULT_POOL && !self.open.contains_key(code) {
            self.set(now, PoolSettings::default_pool());
        }
        let gone = || Broken::new("pools", format!("there is no pool {code}"));
        self.open.get(code).copied().ok_or_else(gone)
    }

    /// Whether there was ever a pool of this code in this life.
    pub(super) fn has_been(&self, code: &Arc<str>) -> bool {
        self.all.iter().any(|pool| pool.settings.code == *code)
    }

    pub(super) fn is_open(&self, code: &Arc<str>) -> bool {
        self.open.contains_key(code)
    }

    pub(super) fn get(&self, at: usize) -> &Pool {
        &self.all[at]
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut Pool {
        &mut self.all[at]
    }

    /// How a code that was always strict takes the ungrouped.
    pub(super) fn always_strict(&self, code: &Arc<str>) -> Option<Ungrouped> {
        *self.strict.get(code)?
    }

    pub(super) const fn most_concurrency(&self) -> u32 {
        self.most_concurrency
    }

    /// What waits is bounded, but for those who come back: there is always room for them.
    pub(super) fn gauges(&self, code: &Arc<str>, queued: u32, running: u32) -> Result<(), Broken> {
        let of_code = self.all.iter().filter(|pool| pool.settings.code == *code);
        let most = of_code.map(|pool| pool.most).max();
        let (capacity, concurrency) = most.unwrap_or_default();
        hold("limits", queued <= capacity + concurrency, || {
            format!("{queued} wait in {code}, of {capacity}")
        })?;
        hold("limits", running <= concurrency, || format!("{running} run in {code}"))
    }
}

impl Pool {
    fn new(now: Moment, settings: PoolSettings, is_steady: bool) -> Self {
        let mut bucket = None;
        Bucket::change(&mut bucket, now, flow(&settings));
        Self {
            most: (settings.capacity(), settings.concurrency),
            was_strict: settings.ordering == Ordering::Strict,
            settings: Arc::new(settings),
            is_closed: false,
            closed: now,
            is_steady,
            has_paused: false,
            running: 0,
            changed: (now, Vec::new()),
            pauses: BTreeMap::new(),
            bucket,
        }
    }

    fn change(&mut self, now: Moment, settings: PoolSettings) {
        if settings.rate_limit_per_minute != self.settings.rate_limit_per_minute {
            Bucket::change(&mut self.bucket, now, flow(&settings));
        }
        let (capacity, concurrency) = self.most;
        self.most = (capacity.max(settings.capacity()), concurrency.max(settings.concurrency));
        self.is_steady &= (settings.ordering, settings.ungrouped)
            == (self.settings.ordering, self.settings.ungrouped);
        self.was_strict |= settings.ordering == Ordering::Strict;
        let old = std::mem::replace(&mut self.settings, Arc::new(settings));
        // What was told to start under the old settings may be on its way, at this instant only.
        if self.changed.0 < now {
            self.changed = (now, Vec::new());
        }
        self.changed.1.push(old);
    }

    fn old(&self, now: Moment) -> impl Iterator<Item = &Arc<PoolSettings>> {
        let (at, old) = &self.changed;
        old.iter().filter(move |_| *at == now)
    }

    pub(super) fn start(
        &mut self,
        now: Moment,
        settings: &PoolSettings,
        host: &Arc<str>,
    ) -> Result<(), Broken> {
        let is_new = self.old(now).next().is_none();
        let is_known = *settings == *self.settings || !is_new;
        hold("pools", is_known, || format!("starts under old settings: {settings:?}"))?;
        // What was told to start before may be on its way, at this instant only.
        let is_open = !self.is_closed || self.closed == now;
        hold("pools", is_open, || format!("something starts in {}, removed", settings.code))?;
        self.running += 1;
        let old = self.old(now).map(|old| old.concurrency).max().unwrap_or_default();
        let (runs, limit) = (self.running, old.max(self.settings.concurrency));
        hold("limits", runs <= limit, || format!("{runs} run in {}, of {limit}", settings.code))?;
        let paused = self.pauses.get(host).copied().unwrap_or_default();
        hold("pauses", paused <= now, || {
            format!("{} calls {host}, which is to be left alone until {paused:?}", settings.code)
        })?;
        match &mut self.bucket {
            Some(bucket) if is_new => bucket.take(now),
            _ => Ok(()),
        }
    }

    pub(super) fn pause(&mut self, host: &Arc<str>, until: Moment) {
        self.has_paused = true;
        let paused = self.pauses.entry(Arc::clone(host)).or_default();
        *paused = (*paused).max(until);
    }

    /// Whether so many more would have fitted where so many wait.
    pub(super) fn has_room(&self, now: Moment, waiting: u32, unsettled: u32, more: u32) -> bool {
        let capacity = self.settings.capacity();
        let capacity = self.old(now).map(|old| old.capacity()).fold(capacity, u32::min);
        let all = capacity + self.settings.concurrency;
        !self.is_closed && waiting + more <= capacity && unsettled + more <= all
    }
}
