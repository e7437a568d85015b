//! Who comes new, or comes back, waits for its turn and no longer: stated by who started how often,
//! without a formula of the schedule's.
//!
//! `docs/rules.md#schedule-2`.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use sluicegate_schedule::{Entry, ItemId, Limits, Moment, Next, Schedule, TenantLimits};

use crate::pool::{Job, Pool, SERVICE};

const NOW: Moment = Moment::ZERO;

/// Tenants that always have work, each with a weight and what its items cost, at so many at once.
#[derive(Clone, Debug)]
struct Busy {
    tenants: Vec<(u32, u32)>,
    concurrency: usize,
    /// Each tenant's items are of one key: one of them runs at a time.
    one_key: bool,
}

fn busy() -> impl Strategy<Value = Busy> {
    let tenants = prop::collection::vec((1u32..5, 1u32..6), 1..7);
    (tenants, 1usize..9, any::<bool>()).prop_map(|(tenants, concurrency, one_key)| Busy {
        tenants,
        concurrency,
        one_key,
    })
}

struct Run {
    busy: Busy,
    schedule: Schedule<usize, usize, usize>,
    running: VecDeque<ItemId>,
    counts: Vec<u64>,
}

const NEWCOMER: usize = 1_000;

impl Run {
    fn new(busy: Busy) -> Self {
        let limits = busy.tenants.iter().enumerate().fold(
            Limits::new(busy.concurrency as u32, 1_000),
            |limits, (tenant, (weight, _))| {
                limits.tenant(tenant, TenantLimits::new().weight(*weight))
            },
        );
        let schedule = Schedule::new(limits.build().expect("sound"), NOW);
        let counts = vec![0; busy.tenants.len()];
        let mut run = Self { busy, schedule, running: VecDeque::new(), counts };
        for tenant in 0..run.busy.tenants.len() {
            (0..=run.busy.concurrency).for_each(|_| run.admit(tenant));
        }
        run
    }

    fn admit(&mut self, tenant: usize) {
        let mut entry = Entry::of(tenant).cost(self.busy.tenants[tenant].1);
        if self.busy.one_key {
            entry = entry.key(tenant);
        }
        self.schedule.admit(NOW, entry, tenant).expect("room");
    }

    /// One more start, and whose; where nothing may start, what runs for longest ends first.
    fn start(&mut self) -> usize {
        loop {
            if let Next::Start(id) = self.schedule.next(NOW) {
                let tenant = *self.schedule.get(id).expect("it runs");
                self.running.push_back(id);
                if let Some(count) = self.counts.get_mut(tenant) {
                    *count += 1;
                    self.admit(tenant);
                }
                return tenant;
            }
            let first = self.running.pop_front().expect("something runs");
            self.schedule.complete(first, None);
        }
    }

    fn starts(&mut self, count: usize) {
        for _ in 0..count {
            self.start();
        }
    }

    /// Each has had as much for its weight as each other: nobody is owed anything.
    fn is_level(&self) -> bool {
        let had = self.counts.iter().zip(&self.busy.tenants);
        let mut had = had.map(|(count, (weight, cost))| count * u64::from(cost * 12 / weight));
        let first = had.next();
        had.all(|had| Some(had) == first)
    }
}

proptest! {
    #![proptest_config(Config { cases: 128, failure_persistence: None, ..Config::default() })]

    /// A tenant that comes new where nobody is owed anything has the very next start: it waits for
    /// one that runs to end, and no longer. Whatever the weights and costs, however long it went on.
    #[test]
    fn a_newcomer_is_next_where_nobody_is_owed(busy in busy(), levels in 1usize..6) {
        let Busy { one_key, .. } = busy;
        let mut run = Run::new(Busy { one_key: one_key && busy.concurrency == 1, ..busy });
        for _ in 0..levels {
            run.start();
            while !run.is_level() {
                run.start();
            }
        }
        run.schedule.admit(NOW, Entry::of(NEWCOMER), NEWCOMER).expect("room");
        prop_assert_eq!(run.start(), NEWCOMER);
    }

    /// Whenever it comes: before it each other tenant starts for at most one item more than the round
    /// of its weight, however long they have been busy before, with one key or with many.
    #[test]
    fn before_a_newcomer_each_has_one_round_at_most(busy in busy(), before in 0usize..800) {
        let mut run = Run::new(busy);
        run.starts(before);
        let had = run.counts.clone();
        run.schedule.admit(NOW, Entry::of(NEWCOMER).cost(1), NEWCOMER).expect("room");
        while run.start() != NEWCOMER {
            for (tenant, (weight, cost)) in run.busy.tenants.iter().enumerate() {
                let dearest = run.busy.tenants.iter().map(|(w, c)| c.div_ceil(*w)).max().expect("some");
                let round = u64::from(weight * dearest / cost) + 1;
                let since = run.counts[tenant] - had[tenant];
                prop_assert!(since <= round, "{} of {} before it: {:?}", since, round, run.busy);
            }
        }
    }
}

/// The same in time: tenants of one key each, that are all busy for a long time, and one that comes
/// new. They were given no more than a slot each, so it waits for two turns at most.
#[test]
fn a_newcomer_does_not_wait_for_what_others_did_before_it_came() {
    for (tenants, concurrency) in [(2, 1), (5, 4), (6, 4), (10, 9), (12, 10), (40, 32)] {
        for before in [10, 1_000, 5_000] {
            let mut pool = Pool::new(concurrency);
            for tenant in 0..tenants {
                pool.send_many(3, Job { key: Some(tenant), ..Job::of(tenant) });
            }
            pool.run(before, |pool, job| pool.send(Duration::ZERO, job));
            pool.send(SERVICE / 3, Job::of(1_000));
            let starts = pool.starts.len() + 10 * tenants as usize;
            pool.run(starts, |pool, job| pool.send(Duration::ZERO, job));
            let newcomer = pool.starts.iter().find(|start| start.job.tenant == 1_000);
            let waited = newcomer.map(|start| start.waited);
            let most = SERVICE * tenants.div_ceil(concurrency);
            assert!(
                waited.is_some_and(|w| w <= most),
                "{tenants}, {concurrency}, {before}: {waited:?}"
            );
        }
    }
}

/// One that waits gets its turn though others come new all the time, also where each of those is
/// postponed at first and then runs: what did not run is no turn.
#[test]
fn newcomers_that_are_postponed_first_do_not_starve_one_who_waits() {
    let mut schedule = Schedule::<u32, u32, u32>::new(Limits::new(1, 2_000).build().unwrap(), NOW);
    (0..1_000).for_each(|_| drop(schedule.admit(NOW, Entry::of(0u32), 0)));
    let (mut newcomers, mut served, mut ran) = (0, 0, 0);
    let mut postponed = std::collections::HashSet::new();
    while ran < 200 {
        while schedule.snapshot(NOW).queued < 1_001 {
            newcomers += 1;
            schedule.admit(NOW, Entry::of(newcomers), newcomers).unwrap();
        }
        let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
        if *schedule.get(id).unwrap() > 0 && postponed.insert(id) {
            assert!(schedule.postpone(NOW, id, NOW));
            continue;
        }
        ran += 1;
        if schedule.complete(id, None) == Some(0) {
            schedule.admit(NOW, Entry::of(0u32), 0).unwrap();
            served += 1;
        }
    }
    assert!(served >= 50, "{served} of {ran}");
}
