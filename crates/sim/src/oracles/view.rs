//! What the oracles know of the run: who waits, who runs, who could start. The oracles of limits,
//! order, ends and leftovers are its own rules.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_schedule::{Class, Moment};

use super::entries::Entries;
use super::{Bounds, Broken, End, Fact, Item, Setup, hold};

#[derive(Debug)]
pub(super) struct View {
    setup: Setup,
    items: BTreeMap<u64, Seen>,
    running: u32,
    /// Per tenant: how many wait, how many run.
    tenants: Vec<(u32, u32)>,
    entries: Vec<Entries>,
    draining: bool,
    pauses: u32,
    /// Counts the changes at which heads become ready.
    readies: u64,
    admitted: u64,
    ended: u64,
}

/// An item that is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) tenant: usize,
    pub(super) class: Class,
    pub(super) cost: u32,
    /// Its tenant's weight when it started.
    pub(super) weight: u32,
    pub(super) number: u64,
    key: Option<Key>,
    runs: bool,
    /// It ran, and nothing else of its key may.
    lingers: bool,
    /// It was put back, and its key is held until then.
    back: Option<Moment>,
    /// It was tried before.
    again: bool,
    /// While nothing but limits keep it from starting: at which change that began.
    ready: Option<u64>,
}

/// A key's name, and whose it is where it is a tenant's own.
type Key = (u32, Option<usize>);

/// Per class and tenant: whether something of it could start, but for limits that hold for all.
pub(super) type InLine = [Vec<bool>; Class::COUNT];

impl Seen {
    fn rank(&self) -> (bool, Class, u64) {
        (self.back.is_none(), self.class, self.number)
    }
}

impl View {
    pub(super) fn new(setup: Setup) -> Self {
        let tenants = vec![(0, 0); setup.tenants.len()];
        let entries = setup.tenants.iter().map(|bounds| Entries::new(bounds.entries)).collect();
        Self {
            setup,
            entries,
            pauses: 0,
            readies: 0,
            items: BTreeMap::new(),
            running: 0,
            tenants,
            draining: false,
            admitted: 0,
            ended: 0,
        }
    }

    pub(super) fn see(&mut self, now: Moment, fact: Fact) -> Result<(), Broken> {
        match fact {
            Fact::Admitted(item) => return self.admit(now, item),
            Fact::Paused => self.pauses += 1,
            Fact::Resumed => self.pauses -= 1,
            Fact::Refused { tenant, class, count } => {
                let full = self.is_full(tenant, class, count)
                    || self.entries[tenant].may_refuse(now, count);
                return hold("limits", full, || format!("tenant {tenant} refused with room left"));
            }
            Fact::Released(number) => {
                let key = self.items.get(&number).and_then(|seen| seen.key);
                for seen in self.items.values_mut().filter(|seen| seen.back.is_some()) {
                    if seen.number == number || (key.is_some() && seen.key == key) {
                        seen.back = Some(Moment::ZERO);
                    }
                }
            }
            Fact::Concurrency(concurrency) => self.setup.concurrency = concurrency,
            Fact::Capacity(capacity) => self.setup.capacity = capacity,
            Fact::Draining => self.draining = true,
            Fact::Over { queued, running, keys, tenants } => {
                let (admitted, ended) = (self.admitted, self.ended);
                hold("ends", admitted == ended, || {
                    format!("{admitted} items were let in, {ended} ended: {:?}", self.items)
                })?;
                let left = (queued, running, keys, tenants);
                return hold("leftovers", left == (0, 0, 0, 0), || {
                    format!("queued, running, keys, tenants: {left:?}")
                });
            }
            _ => unreachable!("seen by another oracle: {fact:?}"),
        }
        Ok(())
    }

    fn is_full(&self, tenant: usize, class: Class, count: u32) -> bool {
        let max = self.setup.tenants[tenant].max_queued;
        let over = |queued: u32, max: u32| queued.saturating_add(count) > max;
        self.draining
            || over(self.queued(), self.setup.capacity)
            || (over(self.tenants[tenant].0, max) && !class.passes_tenant_depth())
    }

    fn admit(&mut self, now: Moment, item: Item) -> Result<(), Broken> {
        let Item { number, tenant, class, cost, .. } = item;
        let refused = self.is_full(tenant, class, 1) || self.entries[tenant].must_refuse(now, 1);
        hold("limits", !refused, || format!("{item:?} let in, without room"))?;
        self.admitted += 1;
        self.tenants[tenant].0 += 1;
        self.entries[tenant].enter(now);
        let seen = Seen {
            tenant,
            class,
            cost,
            weight: 1,
            number,
            key: item.key.map(|key| (key, item.own_key.then_some(tenant))),
            runs: false,
            lingers: false,
            back: None,
            again: false,
            ready: None,
        };
        let twice = self.items.insert(number, seen);
        hold("ends", twice.is_none(), || format!("{item:?} let in twice"))
    }

    pub(super) fn start(&mut self, now: Moment, number: u64) -> Result<Seen, Broken> {
        let started = self.find(number)?;
        let out = started.runs || started.lingers;
        hold("ends", !out, || format!("{started:?} starts twice"))?;
        hold("limits", self.pauses == 0, || format!("{started:?} starts, though paused"))?;
        self.check_longest_ready(&started)?;
        let of_key = self.items.values().filter(|seen| {
            seen.number == number || (seen.key.is_some() && seen.key == started.key)
        });
        for other in of_key {
            let beside = other.runs || other.lingers;
            hold("order", !beside, || format!("{started:?} starts beside {other:?}"))?;
            hold("order", other.rank() >= started.rank(), || {
                format!("{started:?} starts before {other:?}")
            })?;
            let held = other.back.is_some_and(|until| until > now);
            hold("order", !held, || format!("{started:?} starts, at {now:?}, though held"))?;
        }
        self.running += 1;
        let (queued, running) = &mut self.tenants[started.tenant];
        *queued -= 1;
        *running += 1;
        let Bounds { weight, max_running, .. } = self.setup.tenants[started.tenant];
        let (runs, limit) = (self.running, self.setup.concurrency);
        hold("limits", runs <= limit, || format!("{runs} run, of {limit}"))?;
        let runs = *running;
        hold("limits", runs <= max_running, || {
            format!("tenant {} runs {runs}, of {max_running}", started.tenant)
        })?;
        let started = Seen { runs: true, weight, ..started };
        self.items.insert(number, started);
        Ok(started)
    }

    pub(super) fn end(&mut self, number: u64, end: End) -> Result<Seen, Broken> {
        let ended = self.find(number)?;
        let was = (ended.runs, ended.lingers);
        let should = match end {
            End::Completed { .. } | End::Revoked => (true, false),
            End::Cancelled => (false, false),
            End::Departed => (false, true),
        };
        hold("ends", was == should, || format!("{ended:?}: {end:?}"))?;
        self.items.remove(&number);
        self.ended += 1;
        let (queued, running) = &mut self.tenants[ended.tenant];
        if ended.runs {
            self.running -= 1;
            *running -= 1;
        } else if !ended.lingers {
            *queued -= 1;
        }
        Ok(ended)
    }

    pub(super) fn put_back(
        &mut self,
        number: u64,
        until: Moment,
        tried: bool,
    ) -> Result<Seen, Broken> {
        let ran = self.stop(number)?;
        self.tenants[ran.tenant].0 += 1;
        let again = ran.again || tried;
        self.items.insert(number, Seen { runs: false, back: Some(until), again, ..ran });
        Ok(ran)
    }

    pub(super) fn linger(&mut self, number: u64) -> Result<Seen, Broken> {
        let ran = self.stop(number)?;
        self.items.insert(number, Seen { runs: false, lingers: true, ..ran });
        Ok(ran)
    }

    /// One that runs does not any more.
    fn stop(&mut self, number: u64) -> Result<Seen, Broken> {
        let ran = self.find(number)?;
        hold("ends", ran.runs, || format!("{ran:?} is put back and does not run"))?;
        self.running -= 1;
        self.tenants[ran.tenant].1 -= 1;
        Ok(ran)
    }

    pub(super) fn set_bounds(&mut self, now: Moment, tenant: usize, bounds: Bounds) {
        self.setup.tenants[tenant] = bounds;
        self.entries[tenant].change(now, bounds.entries);
    }

    pub(super) fn waits(&self, class: Class) -> bool {
        self.items.values().any(|seen| !seen.runs && !seen.lingers && seen.class == class)
    }

    /// Who could start something now.
    pub(super) fn in_line(&self, now: Moment) -> InLine {
        let mut in_line = [(); Class::COUNT].map(|()| vec![false; self.tenants.len()]);
        for head in self.heads(now) {
            let below = self.tenants[head.tenant].1 < self.setup.tenants[head.tenant].max_running;
            in_line[head.class as usize][head.tenant] |= below;
        }
        in_line
    }

    /// The next of each key, where nothing of it runs, lingers or is held.
    fn heads(&self, now: Moment) -> Vec<&Seen> {
        let mut alone = Vec::new();
        let mut heads: BTreeMap<Key, Option<&Seen>> = BTreeMap::new();
        for seen in self.items.values() {
            let blocks = seen.runs || seen.lingers || seen.back.is_some_and(|until| until > now);
            match seen.key {
                None if !blocks => alone.push(seen),
                None => {}
                Some(key) => {
                    let head = heads.entry(key).or_insert(Some(seen));
                    *head = match *head {
                        Some(_) if blocks => None,
                        Some(other) if seen.rank() < other.rank() => Some(seen),
                        other => other,
                    };
                }
            }
        }
        alone.extend(heads.into_values().flatten());
        alone
    }

    /// Holds that are over end, the earliest first.
    pub(super) fn release_due(&mut self, now: Moment) {
        let held = |seen: &Seen| seen.back.filter(|until| *until > Moment::ZERO);
        while let Some(due) = self.items.values().filter_map(held).min().filter(|due| *due <= now) {
            for seen in self.items.values_mut().filter(|seen| seen.back == Some(due)) {
                seen.back = Some(Moment::ZERO);
            }
            self.note_ready();
        }
    }

    /// Notes who became ready, and who is not any more.
    pub(super) fn note_ready(&mut self) {
        self.readies += 1;
        let heads: BTreeSet<u64> =
            self.heads(Moment::ZERO).iter().map(|seen| seen.number).collect();
        for seen in self.items.values_mut() {
            let since = seen.ready.unwrap_or(self.readies);
            seen.ready = heads.contains(&seen.number).then_some(since);
        }
    }

    fn check_longest_ready(&self, started: &Seen) -> Result<(), Broken> {
        let kind = |seen: &Seen| (seen.tenant, seen.class, seen.again);
        for other in self.items.values().filter(|other| kind(other) == kind(started)) {
            let longer = other.ready.is_some_and(|ready| started.ready.is_some_and(|s| ready < s));
            hold("longest", !longer, || format!("{started:?} starts before {other:?}"))?;
        }
        Ok(())
    }

    fn queued(&self) -> u32 {
        self.tenants.iter().map(|(queued, _)| queued).sum()
    }

    fn find(&self, number: u64) -> Result<Seen, Broken> {
        let lost = || Broken::new("ends", format!("item {number} is not here"));
        self.items.get(&number).copied().ok_or_else(lost)
    }
}
