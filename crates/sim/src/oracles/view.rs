//! What the oracles know of the run: who waits, who runs, who could start. The oracles of limits,
//! order, ends and leftovers are its own rules.

use std::collections::BTreeMap;

use sluicegate_schedule::{Class, Moment};

use super::{Bounds, Broken, End, Fact, Item, Setup, hold};

#[derive(Debug)]
pub(super) struct View {
    setup: Setup,
    items: BTreeMap<u64, Seen>,
    running: u32,
    /// Per tenant: how many wait, how many run.
    tenants: Vec<(u32, u32)>,
    draining: bool,
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
    number: u64,
    key: Option<u32>,
    runs: bool,
    /// It was put back, and its key is held until then.
    back: Option<Moment>,
}

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
        Self {
            setup,
            items: BTreeMap::new(),
            running: 0,
            tenants,
            draining: false,
            admitted: 0,
            ended: 0,
        }
    }

    pub(super) fn see(&mut self, fact: Fact) -> Result<(), Broken> {
        match fact {
            Fact::Admitted(item) => return self.admit(item),
            Fact::Refused { tenant, class } => {
                let full = self.is_full(tenant, class);
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

    fn is_full(&self, tenant: usize, class: Class) -> bool {
        let max = self.setup.tenants[tenant].max_queued;
        self.draining
            || self.queued() >= self.setup.capacity
            || (self.tenants[tenant].0 >= max && !class.passes_tenant_depth())
    }

    fn admit(&mut self, item: Item) -> Result<(), Broken> {
        let Item { number, tenant, key, class, cost } = item;
        hold("limits", !self.is_full(tenant, class), || format!("{item:?} let in, without room"))?;
        self.admitted += 1;
        self.tenants[tenant].0 += 1;
        let seen = Seen { tenant, class, cost, weight: 1, number, key, runs: false, back: None };
        let twice = self.items.insert(number, seen);
        hold("ends", twice.is_none(), || format!("{item:?} let in twice"))
    }

    pub(super) fn start(&mut self, now: Moment, number: u64) -> Result<Seen, Broken> {
        let started = self.find(number)?;
        hold("ends", !started.runs, || format!("{started:?} starts twice"))?;
        let of_key = self.items.values().filter(|seen| {
            seen.number == number || (seen.key.is_some() && seen.key == started.key)
        });
        for other in of_key {
            hold("order", !other.runs, || format!("{started:?} starts beside {other:?}"))?;
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
        let should_run = end != End::Cancelled;
        hold("ends", ended.runs == should_run, || format!("{ended:?}: {end:?}"))?;
        self.items.remove(&number);
        self.ended += 1;
        let (queued, running) = &mut self.tenants[ended.tenant];
        if ended.runs {
            self.running -= 1;
            *running -= 1;
        } else {
            *queued -= 1;
        }
        Ok(ended)
    }

    pub(super) fn put_back(&mut self, number: u64, until: Moment) -> Result<Seen, Broken> {
        let ran = self.find(number)?;
        hold("ends", ran.runs, || format!("{ran:?} is put back and does not run"))?;
        self.running -= 1;
        let (queued, running) = &mut self.tenants[ran.tenant];
        *queued += 1;
        *running -= 1;
        self.items.insert(number, Seen { runs: false, back: Some(until), ..ran });
        Ok(ran)
    }

    pub(super) fn set_bounds(&mut self, tenant: usize, bounds: Bounds) {
        self.setup.tenants[tenant] = bounds;
    }

    pub(super) fn waits(&self, class: Class) -> bool {
        self.items.values().any(|seen| !seen.runs && seen.class == class)
    }

    /// Who could start something now.
    pub(super) fn in_line(&self, now: Moment) -> InLine {
        let mut in_line = [(); Class::COUNT].map(|()| vec![false; self.tenants.len()]);
        let mut heads: BTreeMap<u32, Option<&Seen>> = BTreeMap::new();
        let mut put = |head: &Seen| {
            let below = self.tenants[head.tenant].1 < self.setup.tenants[head.tenant].max_running;
            in_line[head.class as usize][head.tenant] |= below;
        };
        for seen in self.items.values() {
            let blocks = seen.runs || seen.back.is_some_and(|until| until > now);
            match seen.key {
                None if !blocks => put(seen),
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
        heads.into_values().flatten().for_each(put);
        in_line
    }

    fn queued(&self) -> u32 {
        self.tenants.iter().map(|(queued, _)| queued).sum()
    }

    fn find(&self, number: u64) -> Result<Seen, Broken> {
        let lost = || Broken::new("ends", format!("item {number} is not here"));
        self.items.get(&number).copied().ok_or_else(lost)
    }
}
