//! A pool in simulated time: as many servers as the schedule lets run, and service times given.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sluicegate_schedule::{Class, Entry, ItemId, Limits, LimitsBuilder, Moment, Next, Schedule};

/// One service time, where all items take the same.
pub(crate) const SERVICE: Duration = Duration::from_millis(10);

/// An item as its sender sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) tenant: u32,
    pub(crate) key: Option<u32>,
    pub(crate) class: Class,
    /// How long it runs.
    pub(crate) service: Duration,
    /// What it is said to cost.
    pub(crate) cost: Option<u32>,
    /// What it is found to have cost.
    pub(crate) measured: Option<u32>,
    /// It fails each time, and comes again so long after.
    pub(crate) fails: Option<Duration>,
    /// Each time it starts it is postponed for so long, without having run.
    pub(crate) throttled: Option<Duration>,
}

impl Job {
    pub(crate) const fn of(tenant: u32) -> Self {
        Self {
            tenant,
            key: None,
            class: Class::Normal,
            service: SERVICE,
            cost: None,
            measured: None,
            fails: None,
            throttled: None,
        }
    }
}

/// One start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) job: Job,
    pub(crate) waited: Duration,
}

pub(crate) struct Pool {
    pub(crate) schedule: Schedule<(Job, Moment), u32, u32>,
    pub(crate) now: Moment,
    pub(crate) starts: Vec<Start>,
    /// Per tenant.
    pub(crate) running: HashMap<u32, u32>,
    pub(crate) queued: HashMap<u32, u32>,
    /// How many starts that are to be postponed are there at once before they are.
    pub(crate) overlap: usize,
    pub(crate) postponed: u64,
    ends: BTreeMap<(Moment, u64), ItemId>,
    arrivals: BTreeMap<(Moment, u64), Job>,
    events: u64,
}

impl Pool {
    pub(crate) fn new(concurrency: u32) -> Self {
        Self::with(Limits::new(concurrency, 1_000_000))
    }

    pub(crate) fn with(limits: LimitsBuilder<u32>) -> Self {
        Self {
            schedule: Schedule::new(limits.build().expect("sound limits"), Moment::ZERO),
            now: Moment::ZERO,
            starts: Vec::new(),
            running: HashMap::new(),
            queued: HashMap::new(),
            overlap: 1,
            postponed: 0,
            ends: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            events: 0,
        }
    }

    /// The job arrives `after` now.
    pub(crate) fn send(&mut self, after: Duration, job: Job) {
        self.events += 1;
        self.arrivals.insert((self.now + after, self.events), job);
    }

    pub(crate) fn send_many(&mut self, count: usize, job: Job) {
        for _ in 0..count {
            self.send(Duration::ZERO, job);
        }
    }

    /// Goes to the next moment at which something happens: items end, then others arrive, then
    /// what may start does. `ended` sees each end. `false` when nothing will ever happen again.
    pub(crate) fn step(&mut self, mut ended: impl FnMut(&mut Self, Job)) -> bool {
        let wake = match self.schedule.next(self.now) {
            Next::At(at) => Some(at),
            Next::Idle => None,
            Next::Start(id) => panic!("{id:?} could have started before"),
        };
        let end = self.ends.first_key_value().map(|((at, _), _)| *at);
        let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
        let Some(now) = [wake, end, arrival].into_iter().flatten().min() else { return false };
        self.now = now;
        while let Some(id) = due(&mut self.ends, now) {
            let (job, _) = self.schedule.get(id).copied().expect("it runs");
            *self.running.entry(job.tenant).or_default() -= 1;
            if let Some(delay) = job.fails {
                assert!(self.schedule.retry(now, id, now + delay, job.measured));
                *self.queued.entry(job.tenant).or_default() += 1;
            } else {
                self.schedule.complete(id, job.measured).expect("it runs");
                ended(self, job);
            }
        }
        while let Some(job) = due(&mut self.arrivals, now) {
            self.admit(job);
        }
        self.dispatch();
        true
    }

    /// Steps until so many items have started, or nothing more happens.
    pub(crate) fn run(&mut self, starts: usize, mut ended: impl FnMut(&mut Self, Job)) {
        while self.starts.len() < starts && self.step(&mut ended) {}
    }

    /// How many of the starts in `range` were whose.
    pub(crate) fn counts(&self, range: std::ops::Range<usize>) -> BTreeMap<u32, u64> {
        let mut counts = BTreeMap::new();
        for start in &self.starts[range] {
            *counts.entry(start.job.tenant).or_default() += 1;
        }
        counts
    }

    fn admit(&mut self, job: Job) {
        let mut entry = Entry::of(job.tenant).class(job.class);
        if let Some(key) = job.key {
            entry = entry.key(key);
        }
        if let Some(cost) = job.cost {
            entry = entry.cost(cost);
        }
        self.schedule.admit(self.now, entry, (job, self.now)).expect("room");
        *self.queued.entry(job.tenant).or_default() += 1;
    }

    fn dispatch(&mut self) {
        let mut unrun: Vec<(ItemId, Duration)> = Vec::new();
        loop {
            let Next::Start(id) = self.schedule.next(self.now) else {
                if unrun.is_empty() {
                    break;
                }
                self.postpone(&mut unrun);
                continue;
            };
            let (job, since) = self.schedule.get(id).copied().expect("it runs");
            if let Some(hold) = job.throttled {
                unrun.push((id, hold));
                if unrun.len() >= self.overlap {
                    self.postpone(&mut unrun);
                }
                continue;
            }
            *self.queued.entry(job.tenant).or_default() -= 1;
            *self.running.entry(job.tenant).or_default() += 1;
            self.starts.push(Start { job, waited: self.now - since });
            self.events += 1;
            self.ends.insert((self.now + job.service, self.events), id);
        }
    }

    fn postpone(&mut self, unrun: &mut Vec<(ItemId, Duration)>) {
        for (id, hold) in unrun.drain(..) {
            self.postponed += 1;
            assert!(self.schedule.postpone(self.now, id, self.now + hold));
        }
    }
}

fn due<V>(events: &mut BTreeMap<(Moment, u64), V>, now: Moment) -> Option<V> {
    let first = events.first_entry().filter(|first| first.key().0 <= now)?;
    Some(first.remove())
}
