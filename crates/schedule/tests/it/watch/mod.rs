//! A schedule with somebody watching: every step is checked against what the specification promises
//! (2.9), from what can be seen outside and a list of what was admitted.

mod limits;
mod ready;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sluicegate_schedule::{Class, ItemId, Moment, Next, Snapshot, Why};

use crate::history::{Bounds, Newcomer, Op, Setup, Tested};

pub(crate) struct Watched {
    schedule: Tested,
    now: Moment,
    setup: Setup,
    bounds: HashMap<u8, Bounds>,
    /// What waits or runs, by number; its value is its number too.
    items: BTreeMap<u64, Seen>,
    ids: Vec<ItemId>,
    ended: Vec<ItemId>,
    /// The most that could ever be here, given what the limits were.
    most: u32,
    /// Per class: dispatches in a row that it could have had and did not get.
    passed_over: [u32; Class::COUNT],
    /// The same before each start, and whether that was taken back: those that were, and nothing after
    /// them was not, were none.
    before: Vec<(ItemId, [u32; Class::COUNT], bool)>,
    draining: bool,
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    id: ItemId,
    tenant: u8,
    /// Its name, and whose it is where it is a tenant's own.
    key: Option<(u8, Option<u8>)>,
    class: Class,
    stage: Stage,
    /// It was put back, and may run again from this moment on.
    back: Option<Moment>,
    /// It was tried before.
    again: bool,
    /// While nothing but limits keep it from starting: from which step on.
    ready: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    Runs,
    Lingers,
}

impl Seen {
    fn waits(&self) -> bool {
        self.stage == Stage::Waits
    }

    fn runs(&self) -> bool {
        self.stage == Stage::Runs
    }

    fn lingers(&self) -> bool {
        self.stage == Stage::Lingers
    }

    /// Whether it goes before the other, in one key.
    fn precedes(&self, other: &Self) -> bool {
        let rank = |seen: &Self| (seen.back.is_none(), seen.class, seen.id.number());
        rank(self) < rank(other)
    }
}

impl Watched {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            schedule: setup.schedule(),
            now: Moment::ZERO,
            setup,
            bounds: HashMap::new(),
            items: BTreeMap::new(),
            ids: Vec::new(),
            ended: Vec::new(),
            most: setup.capacity + setup.concurrency,
            passed_over: [0; Class::COUNT],
            before: Vec::new(),
            draining: false,
            steps: 0,
        }
    }

    pub(crate) fn step(&mut self, op: Op) {
        match op {
            Op::Admit(newcomer) => self.admit(newcomer),
            Op::AdmitAll { first, count, tenants, keys } => {
                self.admit_all(&first.batch(count, tenants, keys));
            }
            Op::Next => self.next(),
            Op::Complete { nth, cost } => {
                self.end(nth, Stage::Runs, |schedule, id| schedule.complete(id, cost));
            }
            Op::Revoke { nth } => {
                self.take_back(nth);
                self.end(nth, Stage::Runs, |schedule, id| schedule.revoke(id));
            }
            Op::Cancel { nth } => self.end(nth, Stage::Waits, |schedule, id| schedule.cancel(id)),
            Op::Depart { nth } => self.end(nth, Stage::Lingers, |schedule, id| schedule.depart(id)),
            Op::Linger { nth, cost } => self.linger(nth, cost),
            Op::Retry { nth, delay, cost } => {
                let (now, until) = (self.now, delay.after(self.now));
                let id = self.nth(nth, Stage::Runs);
                self.put_back(nth, until, |schedule, id| schedule.retry(now, id, until, cost));
                if let Some(id) = id {
                    self.seen(id).again = true;
                }
            }
            Op::Postpone { nth, delay } => {
                let (now, until) = (self.now, delay.after(self.now));
                self.take_back(nth);
                self.put_back(nth, until, |schedule, id| schedule.postpone(now, id, until));
            }
            Op::Release { nth } => self.release(nth),
            Op::Advance { ms, .. } => self.now += Duration::from_millis(ms),
            Op::Peek => drop(self.schedule.peek(self.now)),
            Op::StopAdmission => {
                self.schedule.stop_admission();
                self.draining = true;
            }
            Op::TakeWaiting => self.take_waiting(),
            _ => self.set(op),
        }
        for class in Class::ALL {
            if self.count(|seen| seen.waits() && seen.class == class) == 0 {
                self.passed_over[class as usize] = 0;
                if !matches!(op, Op::Next) {
                    self.before.iter_mut().for_each(|(_, before, _)| before[class as usize] = 0);
                }
            }
        }
        self.check_counts();
        self.check_stale();
        self.note_ready();
    }

    /// Everything ends: what waits is taken out, what runs completes, and nothing is left.
    pub(crate) fn drain(&mut self) {
        self.schedule.stop_admission();
        self.take_waiting();
        self.check_counts();
        while self.items.values().any(Seen::runs) {
            self.end(0, Stage::Runs, |schedule, id| schedule.complete(id, None));
        }
        self.check_counts();
        while self.items.values().any(Seen::lingers) {
            self.end(0, Stage::Lingers, |schedule, id| schedule.depart(id));
        }
        self.check_counts();
        assert_eq!(self.ended.len(), self.ids.len(), "each admitted item ended");
        let Snapshot { queued, running, keys, oldest_wait, .. } = self.schedule.snapshot(self.now);
        assert_eq!((queued, running, keys, oldest_wait), (0, 0, 0, Duration::ZERO));
        assert_eq!(self.schedule.tenants().count(), 0, "no tenant is left");
        assert_eq!(self.schedule.next(self.now), Next::Idle);
    }

    fn admit(&mut self, newcomer: Newcomer) {
        let value = self.ids.len() as u64 + 1;
        let before = self.schedule.snapshot(self.now);
        let may = self.may_admit(&[newcomer]);
        match self.schedule.admit(self.now, newcomer.entry(), value) {
            Ok(id) => {
                assert_eq!(may, Ok(()));
                self.admitted(newcomer, id);
            }
            Err(refused) => {
                assert_eq!(refused.value, value, "the item itself comes back");
                assert_eq!(self.schedule.snapshot(self.now), before, "nothing stays behind");
                self.check_refusal(&[newcomer], refused.why, may);
            }
        }
    }

    fn admit_all(&mut self, batch: &[Newcomer]) {
        let values = self.ids.len() as u64 + 1..;
        let before = self.schedule.snapshot(self.now);
        let may = self.may_admit(batch);
        let offered: Vec<_> = batch.iter().map(|newcomer| newcomer.entry()).zip(values).collect();
        match self.schedule.admit_all(self.now, offered.clone()) {
            Ok(ids) => {
                assert_eq!((may, ids.len()), (Ok(()), batch.len()));
                batch.iter().zip(ids).for_each(|(newcomer, id)| self.admitted(*newcomer, id));
            }
            Err(refused) => {
                assert_eq!(refused.value, offered, "the whole batch comes back");
                assert_eq!(self.schedule.snapshot(self.now), before, "nothing stays behind");
                self.check_refusal(batch, refused.why, may);
            }
        }
    }

    fn admitted(&mut self, newcomer: Newcomer, id: ItemId) {
        let Newcomer { tenant, class, .. } = newcomer;
        let key = newcomer.key.map(|key| (key, newcomer.own_key.then_some(tenant)));
        let number = self.ids.len() as u64 + 1;
        assert_eq!(id.number(), number, "numbered in order of admission");
        let stage = Stage::Waits;
        let seen = Seen { id, tenant, key, class, stage, back: None, again: false, ready: None };
        self.items.insert(number, seen);
        self.ids.push(id);
    }

    fn next(&mut self) {
        let could_start = Class::ALL.map(|class| {
            let mut of_class = self.items.values().filter(|seen| seen.class == class);
            of_class.any(|seen| self.schedule.why(self.now, seen.id) == Some(Why::Ready))
        });
        match self.schedule.next(self.now) {
            Next::Start(id) => self.started(id, could_start),
            Next::At(at) => assert!(at > self.now, "{at:?} is not later"),
            Next::Idle => {}
        }
    }

    fn started(&mut self, id: ItemId, could_start: [bool; Class::COUNT]) {
        let started = self.items[&id.number()];
        assert!(started.waits(), "{started:?} was started already");
        assert!(started.back.is_none_or(|from| from <= self.now), "{started:?} is kept back");
        if let Some(key) = started.key {
            for other in self.items.values().filter(|seen| seen.key == Some(key)) {
                assert!(other.waits(), "two of key {key:?} are out: {other:?}, {started:?}");
                assert!(!other.precedes(&started), "{other:?} goes before {started:?}");
            }
        }
        self.check_longest_ready(&started);
        self.before.push((id, self.passed_over, false));
        self.seen(id).stage = Stage::Runs;
        let running = self.count(Seen::runs);
        assert!(running <= self.setup.concurrency, "{running} run");
        let of_tenant = self.count(|seen| seen.runs() && seen.tenant == started.tenant);
        let max = self.bounds(started.tenant).max_running;
        assert!(of_tenant <= max, "tenant {} runs {of_tenant} of {max}", started.tenant);
        for class in Class::ALL {
            let passed_over = &mut self.passed_over[class as usize];
            let again = class != started.class && could_start[class as usize];
            *passed_over = if again { *passed_over + 1 } else { 0 };
            let period = self.setup.class_period;
            assert!(*passed_over < period, "{class:?} got none of {period} dispatches");
        }
    }

    /// The nth that runs did not run after all.
    fn take_back(&mut self, nth: usize) {
        let Some(id) = self.nth(nth, Stage::Runs) else { return };
        if let Some(start) = self.before.iter_mut().rev().find(|(started, ..)| *started == id) {
            start.2 = true;
        }
        while let Some((_, passed_over, _)) = self.before.pop_if(|(_, _, taken_back)| *taken_back) {
            self.passed_over = passed_over;
        }
    }

    /// The nth of those at a stage ends.
    fn end(
        &mut self,
        nth: usize,
        stage: Stage,
        end: impl FnOnce(&mut Tested, ItemId) -> Option<u64>,
    ) {
        if let Some(id) = self.nth(nth, stage) {
            assert_eq!(end(&mut self.schedule, id), Some(id.number()));
            self.items.remove(&id.number());
            self.ended.push(id);
        }
    }

    fn put_back(
        &mut self,
        nth: usize,
        until: Moment,
        put_back: impl FnOnce(&mut Tested, ItemId) -> bool,
    ) {
        if let Some(id) = self.nth(nth, Stage::Runs) {
            assert!(put_back(&mut self.schedule, id));
            let seen = self.seen(id);
            seen.stage = Stage::Waits;
            seen.back = Some(until);
        }
    }

    fn linger(&mut self, nth: usize, cost: Option<u32>) {
        if let Some(id) = self.nth(nth, Stage::Runs) {
            assert!(self.schedule.linger(id, cost));
            self.seen(id).stage = Stage::Lingers;
        }
    }

    fn release(&mut self, nth: usize) {
        let Some(id) = self.nth(nth, Stage::Waits) else { return };
        let seen = *self.seen(id);
        if self.schedule.release(id) {
            let now = self.now;
            let of_line = self
                .items
                .values_mut()
                .filter(|other| other.id == id || (other.key.is_some() && other.key == seen.key));
            let mut held = of_line.filter(|other| other.back.is_some());
            let freed = held.next().expect("something was put back");
            freed.back = Some(now);
        }
    }

    fn take_waiting(&mut self) {
        let taken = self.schedule.take_waiting();
        assert_eq!(taken.len() as u32, self.count(Seen::waits), "all that waited");
        for number in taken {
            let seen = self.items.remove(&number).expect("it was here");
            assert!(seen.waits(), "{seen:?} did not wait");
            self.ended.push(seen.id);
        }
    }

    fn check_counts(&self) {
        let snapshot = self.schedule.snapshot(self.now);
        assert_eq!(snapshot.queued, self.count(Seen::waits));
        assert_eq!(snapshot.running, self.count(Seen::runs));
        assert_eq!(snapshot.lingering, self.count(Seen::lingers));
        assert!(snapshot.queued + snapshot.running <= self.most, "{snapshot:?}");
        let tenants: Vec<_> = self.schedule.tenants().collect();
        assert_eq!(tenants.iter().map(|of| of.queued).sum::<u32>(), snapshot.queued);
        assert_eq!(tenants.iter().map(|of| of.running).sum::<u32>(), snapshot.running);
        assert!(!self.items.is_empty() || snapshot.keys == 0);
        assert!(snapshot.queued + snapshot.running > 0 || tenants.is_empty(), "all are idle");
    }

    /// An id of an item that has ended finds nothing, and changes nothing.
    fn check_stale(&mut self) {
        let Some(&id) = self.ended.last() else { return };
        let before = self.schedule.snapshot(self.now);
        assert_eq!(self.schedule.complete(id, Some(7)), None);
        assert_eq!(self.schedule.revoke(id), None);
        assert_eq!(self.schedule.cancel(id), None);
        assert!(!self.schedule.retry(self.now, id, Moment::FAR, None));
        assert!(!self.schedule.postpone(self.now, id, Moment::FAR));
        assert!(!self.schedule.linger(id, None));
        assert_eq!(self.schedule.depart(id), None);
        assert!(!self.schedule.release(id));
        assert_eq!(self.schedule.why(self.now, id), None);
        assert_eq!(self.schedule.get(id), None);
        assert_eq!(self.schedule.snapshot(self.now), before);
    }

    fn seen(&mut self, id: ItemId) -> &mut Seen {
        self.items.get_mut(&id.number()).expect("it is here")
    }

    fn count(&self, which: impl Fn(&Seen) -> bool) -> u32 {
        self.items.values().filter(|seen| which(seen)).count() as u32
    }

    fn nth(&self, nth: usize, stage: Stage) -> Option<ItemId> {
        let at_stage = self.items.values().filter(|seen| seen.stage == stage);
        let among: Vec<_> = at_stage.map(|seen| seen.id).collect();
        among.get(nth % among.len().max(1)).copied()
    }
}
