//! The kernel's schedule as a pool: seeded load, faults of every kind, and a drain at the end.
//!
//! Items arrive one by one, in bursts and in batches, with keys of all or of their tenant; they complete,
//! panic, linger, are put back for a while or for ever, are postponed, revoked and cancelled; concurrency,
//! capacity, rates and tenants' limits change meanwhile, and starting is paused.

mod arrivals;
mod changes;

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate_schedule::{ItemId, Limits, Moment, Next, Schedule};

use crate::oracles::{Broken, End, Fact, Item, Oracles, Setup};
use crate::rng::Rng;
use crate::scenarios::Report;
use crate::trace::Trace;
use changes::{bounds, limits};

const MAX_CONCURRENCY: u32 = 6;
const MAX_COST: u32 = 8;
/// Two tenants in line can be apart by what runs and is not measured yet, and by one item more.
const MOST_APART: i64 = (MAX_CONCURRENCY as i64 + 1) * MAX_COST as i64;

/// Runs the scenario.
///
/// # Errors
/// What an oracle found.
pub fn run(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    let mut pool = Pool::new(Rng::new(seed), trace);
    while let Some(event) = pool.next_event() {
        // Whose hold is over has been ready for longer than whom this event makes so.
        pool.schedule.advance(pool.now);
        pool.happen(event)?;
        pool.dispatch()?;
    }
    pool.finish()
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive {
        tenant: usize,
    },
    Burst {
        tenant: usize,
        count: u64,
    },
    Batch {
        tenant: usize,
        count: u32,
    },
    End(ItemId),
    Release(ItemId),
    Depart(ItemId),
    Pause(&'static str),
    Resume(&'static str),
    Cancel,
    Change,
    Drain,
    /// The schedule said that something may start now.
    Wake,
}

struct Pool<'a> {
    rng: Rng,
    trace: &'a mut Trace,
    schedule: Schedule<Item, u32, usize>,
    oracles: Oracles,
    now: Moment,
    /// By time, and by order of planning where that is the same.
    events: BTreeMap<(Moment, u64), Event>,
    planned: u64,
    /// The moment of the one wake-up there is.
    wake: Option<(Moment, u64)>,
    tenants: usize,
    keys: u32,
    numbers: u64,
    draining: bool,
    report: Report,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl<'a> Pool<'a> {
    fn new(mut rng: Rng, trace: &'a mut Trace) -> Self {
        let tenants = rng.between(2, 8) as usize;
        let setup = Setup {
            concurrency: rng.between_u32(1, MAX_CONCURRENCY),
            capacity: rng.between_u32(10, 120),
            class_period: rng.between_u32(4, 20),
            tenants: (0..tenants).map(|_| bounds(&mut rng)).collect(),
            most_apart: MOST_APART,
        };
        trace.note(0, format_args!("{setup:?}"));
        let builder =
            Limits::new(setup.concurrency, setup.capacity).class_period(setup.class_period);
        let builder = setup
            .tenants
            .iter()
            .enumerate()
            .fold(builder, |builder, (tenant, bounds)| builder.tenant(tenant, limits(*bounds)));
        let limits = builder.build().expect("sound limits");
        let mut pool = Self {
            trace,
            schedule: Schedule::new(limits, Moment::ZERO),
            oracles: Oracles::new(setup),
            now: Moment::ZERO,
            events: BTreeMap::new(),
            planned: 0,
            wake: None,
            tenants,
            keys: rng.between_u32(1, 12),
            numbers: 0,
            draining: false,
            report: Report { seeds: 1, ..Report::default() },
            rng,
        };
        pool.plan_load();
        pool
    }

    /// Everything that comes from outside, over one simulated span of time.
    fn plan_load(&mut self) {
        let span = self.rng.between(300, 2_000);
        for tenant in 0..self.tenants {
            let arrivals = self.rng.between(0, 120);
            for _ in 0..arrivals {
                let after = ms(self.rng.between(0, span));
                self.plan(after, Event::Arrive { tenant });
            }
            if self.rng.percent(40) {
                let after = ms(self.rng.between(0, span));
                let count = self.rng.between(10, 60);
                self.plan(after, Event::Burst { tenant, count });
            }
            for _ in 0..self.rng.between(0, 4) {
                let after = ms(self.rng.between(0, span));
                let count = self.rng.between_u32(0, 12);
                self.plan(after, Event::Batch { tenant, count });
            }
        }
        for (event, most) in [(Event::Cancel, 20), (Event::Change, 12)] {
            for _ in 0..self.rng.between(0, most) {
                let after = ms(self.rng.between(0, span));
                self.plan(after, event);
            }
        }
        for _ in 0..self.rng.between(0, 4) {
            let reason = *self.rng.one_of(&["memory", "disk"]);
            let after = ms(self.rng.between(0, span));
            self.plan(after, Event::Pause(reason));
            let resumed = after + ms(self.rng.between(0, 40));
            self.plan(resumed, Event::Resume(reason));
        }
        // Some pools are drained while they are busy, some when nearly all has ended.
        let drain = if self.rng.percent(50) { span } else { span * 3 };
        self.plan(ms(drain), Event::Drain);
    }

    fn plan(&mut self, after: Duration, event: Event) -> (Moment, u64) {
        self.planned += 1;
        let at = (self.now + after, self.planned);
        self.events.insert(at, event);
        at
    }

    fn next_event(&mut self) -> Option<Event> {
        let ((now, _), event) = self.events.pop_first()?;
        self.now = now;
        Some(event)
    }

    fn see(&mut self, fact: Fact) -> Result<(), Broken> {
        self.trace.note(self.now.as_nanos(), format_args!("{fact:?}"));
        self.oracles.see(self.now, fact)
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Arrive { tenant } => self.arrive(tenant),
            Event::Burst { tenant, count } => (0..count).try_for_each(|_| self.arrive(tenant)),
            Event::Batch { tenant, count } => self.arrive_together(tenant, count),
            Event::End(id) => self.end(id),
            Event::Release(id) => self.release(id),
            Event::Depart(id) => self.depart(id),
            Event::Pause(reason) => self.pause(reason),
            Event::Resume(reason) => self.resume(reason),
            Event::Cancel => self.cancel(),
            Event::Change => self.change(),
            Event::Drain => self.drain(),
            Event::Wake => {
                self.wake = None;
                Ok(())
            }
        }
    }

    /// Starts what may start, and plans how it ends.
    fn dispatch(&mut self) -> Result<(), Broken> {
        let at = loop {
            let peeked = self.schedule.peek(self.now);
            let next = self.schedule.next(self.now);
            if peeked != next {
                return Err(Broken::new("peek", format!("{peeked:?} was to come, not {next:?}")));
            }
            match next {
                Next::Start(id) => self.start(id)?,
                Next::At(at) => break Some(at),
                Next::Idle => break None,
            }
        };
        if let Some(wake) = self.wake.take() {
            self.events.remove(&wake);
        }
        self.wake = at.map(|at| self.plan(at - self.now, Event::Wake));
        Ok(())
    }

    fn start(&mut self, id: ItemId) -> Result<(), Broken> {
        let number = self.number(id)?;
        self.report.started += 1;
        self.see(Fact::Started(number))?;
        match self.rng.between(1, 100) {
            // Whoever waited for it is gone: it did not run after all.
            1..=3 => {
                self.report.faults += 1;
                let revoked = self.schedule.revoke(id);
                return self.ended(number, revoked, End::Revoked);
            }
            // What it needs is not there.
            4..=8 => return self.postpone(id, number, 1),
            _ => {}
        }
        let service = Duration::from_micros(self.rng.between(100, 15_000));
        self.plan(service, Event::End(id));
        Ok(())
    }

    fn postpone(&mut self, id: ItemId, number: u64, least: u64) -> Result<(), Broken> {
        self.report.faults += 1;
        let until = self.now + ms(self.rng.between(least, 60));
        if !self.schedule.postpone(self.now, id, until) {
            return Err(Broken::new("ends", format!("item {number} was not postponed")));
        }
        self.see(Fact::Postponed { number, until })
    }

    fn end(&mut self, id: ItemId) -> Result<(), Broken> {
        let number = self.number(id)?;
        let measured = Some(self.rng.between_u32(1, MAX_COST));
        // A drain lets what runs go on, and does not try it again.
        let fate = if self.draining { 100 } else { self.rng.between(1, 100) };
        match fate {
            1..=10 => self.retry(id, number, measured),
            // A panic: there is no cost to tell.
            11..=15 => {
                self.report.faults += 1;
                let done = self.schedule.complete(id, None);
                self.ended(number, done, End::Completed { cost: None })
            }
            16..=20 => self.postpone(id, number, 0),
            21..=35 => {
                if !self.schedule.linger(id, measured) {
                    return Err(Broken::new("ends", format!("item {number} does not linger")));
                }
                self.plan(ms(self.rng.clone().between(0, 30)), Event::Depart(id));
                self.see(Fact::Lingers { number, cost: measured })
            }
            _ => {
                let done = self.schedule.complete(id, measured);
                self.ended(number, done, End::Completed { cost: measured })
            }
        }
    }

    fn retry(&mut self, id: ItemId, number: u64, measured: Option<u32>) -> Result<(), Broken> {
        self.report.faults += 1;
        let far = self.rng.percent(20);
        let delay = ms(self.rng.between(0, 60));
        let until = if far { Moment::FAR } else { self.now + delay };
        let cost = measured.filter(|_| self.rng.percent(50));
        if !self.schedule.retry(self.now, id, until, cost) {
            return Err(Broken::new("ends", format!("item {number} was not put back")));
        }
        if far || self.rng.percent(10) {
            self.plan(ms(self.rng.clone().between(1, 90)), Event::Release(id));
        }
        self.see(Fact::PutBack { number, until, cost })
    }

    fn depart(&mut self, id: ItemId) -> Result<(), Broken> {
        let number = self.number(id)?;
        let departed = self.schedule.depart(id);
        self.ended(number, departed, End::Departed)
    }

    fn release(&mut self, id: ItemId) -> Result<(), Broken> {
        match self.number(id) {
            Ok(number) if self.schedule.release(id) => self.see(Fact::Released(number)),
            _ => Ok(()),
        }
    }

    fn cancel(&mut self) -> Result<(), Broken> {
        let waiting: Vec<ItemId> = self.schedule.waiting().map(|waiting| waiting.id).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        self.report.faults += 1;
        let id = *self.rng.one_of(&waiting);
        let number = self.number(id)?;
        let cancelled = self.schedule.cancel(id);
        self.ended(number, cancelled, End::Cancelled)
    }

    /// Admission stops, what waits goes back to its owners, what runs goes on to its end.
    fn drain(&mut self) -> Result<(), Broken> {
        self.draining = true;
        self.schedule.stop_admission();
        self.see(Fact::Draining)?;
        self.arrive(0)?;
        for item in self.schedule.take_waiting() {
            self.see(Fact::Ended(item.number, End::Cancelled))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Report, Broken> {
        let left = self.schedule.snapshot(self.now);
        let tenants = self.schedule.tenants().count();
        let (queued, running, keys) = (left.queued, left.running, left.keys);
        self.see(Fact::Over { queued, running, keys, tenants })?;
        self.report.widest = self.oracles.widest().unsigned_abs();
        Ok(self.report)
    }

    fn ended(&mut self, number: u64, value: Option<Item>, end: End) -> Result<(), Broken> {
        if value.map(|item| item.number) != Some(number) {
            return Err(Broken::new("ends", format!("item {number}: {end:?} gave {value:?}")));
        }
        self.see(Fact::Ended(number, end))
    }

    fn number(&self, id: ItemId) -> Result<u64, Broken> {
        let lost = || Broken::new("ends", format!("{id:?} is not here"));
        self.schedule.get(id).map(|item| item.number).ok_or_else(lost)
    }
}
