//! Shares hold beside trouble: a tenant that is throttled throughout, and keys that fail throughout.
//!
//! `docs/rules.md#schedule-1`, `docs/rules.md#schedule-2`, `docs/rules.md#schedule-8`.

use std::time::Duration;

use sluicegate_schedule::{Class, Limits};

use crate::fairness::{WEIGHTS, error, jain, weighted};
use crate::pool::{Job, Pool, SERVICE};

const THROTTLED: u32 = 2_000;
const FAILING: u32 = 2_001;

/// What goes on beside.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    /// Keys of a tenant whose every start is postponed.
    throttled_keys: u32,
    hold: Duration,
    /// So many of its starts are there before they are postponed.
    overlap: usize,
    /// Keys of a tenant whose heads fail, and come again.
    failing_keys: u32,
    failing_tenant: u32,
    class: Class,
}

const NONE: Trouble = Trouble {
    throttled_keys: 0,
    hold: Duration::ZERO,
    overlap: 1,
    failing_keys: 0,
    failing_tenant: FAILING,
    class: Class::Normal,
};

const TROUBLES: [Trouble; 5] = [
    NONE,
    Trouble { throttled_keys: 2, hold: Duration::from_millis(1), ..NONE },
    Trouble { throttled_keys: 300, hold: Duration::from_millis(15), ..NONE },
    Trouble { throttled_keys: 40, hold: Duration::from_millis(4), overlap: 4, ..NONE },
    Trouble { throttled_keys: 3, hold: Duration::from_millis(7), failing_keys: 24, ..NONE },
];

impl Trouble {
    fn begin(self, pool: &mut Pool) {
        pool.overlap = self.overlap;
        for key in 0..self.throttled_keys {
            let throttled = Some(self.hold);
            let class = self.class;
            let job = Job { key: Some(100_000 + key), class, throttled, ..Job::of(THROTTLED) };
            pool.send(Duration::ZERO, job);
        }
        for key in 0..self.failing_keys {
            let fails = Some(SERVICE);
            let job = Job { key: Some(200_000 + key), fails, ..Job::of(self.failing_tenant) };
            pool.send(Duration::ZERO, job);
        }
    }

    fn check(self, pool: &Pool) {
        assert!(self.throttled_keys == 0 || pool.postponed > 100, "{} postponed", pool.postponed);
        let of_it = |start: &&crate::pool::Start| start.job.tenant == THROTTLED;
        assert_eq!(pool.starts.iter().filter(of_it).count(), 0, "what is postponed never runs");
    }
}

/// A hundred equal tenants; every fourth has keys that fail besides.
#[test]
fn equal_tenants_get_equal_shares_beside_trouble() {
    const TENANTS: u32 = 100;
    for trouble in TROUBLES {
        let mut pool = Pool::new(16);
        trouble.begin(&mut pool);
        for tenant in 0..TENANTS {
            pool.send_many(if tenant % 2 == 0 { 3 } else { 60 }, Job::of(tenant));
            let fails = Some(SERVICE / 2);
            for key in 0..if tenant % 4 == 3 { 5 } else { 0 } {
                let key = Some(tenant * 10 + key);
                pool.send(Duration::ZERO, Job { key, fails, ..Job::of(tenant) });
            }
        }
        pool.run(8_000, |pool, job| pool.send(Duration::ZERO, job));
        trouble.check(&pool);
        let least = (0..pool.starts.len() - 2_200)
            .step_by(200)
            .map(|from| {
                let mut counts = pool.counts(from..from + 2_200);
                counts.remove(&FAILING);
                jain(&counts, TENANTS)
            })
            .fold(1.0, f64::min);
        assert!(least >= 0.99, "Jain index {least}: {trouble:?}");
    }
}

#[test]
fn weights_hold_beside_trouble() {
    for trouble in TROUBLES {
        for concurrency in [1, 7] {
            let mut pool = weighted(concurrency);
            trouble.begin(&mut pool);
            WEIGHTS.iter().for_each(|(tenant, _)| pool.send_many(100, Job::of(*tenant)));
            pool.run(4_000, |pool, job| pool.send(Duration::ZERO, job));
            trouble.check(&pool);
            let mut counts = pool.counts(0..4_000);
            counts.remove(&FAILING);
            let shares: Vec<_> = counts.into_iter().map(|(t, count)| (t, count as f64)).collect();
            let error = error(&shares, &WEIGHTS);
            assert!(error <= 0.02, "{error} in {shares:?}, {concurrency} at once: {trouble:?}");
        }
    }
}

/// One tenant has queued thousands, and what fails is its too; another sends one at a time, and waits
/// for one service time at most.
#[test]
fn a_light_tenant_waits_one_service_time_at_most_beside_trouble() {
    for trouble in TROUBLES.map(|trouble| Trouble { failing_tenant: 0, ..trouble }) {
        for (concurrency, think) in
            [(1, SERVICE / 2), (4, Duration::ZERO), (4, SERVICE * 3 / 2), (32, SERVICE)]
        {
            let mut pool = Pool::new(concurrency);
            trouble.begin(&mut pool);
            pool.send_many(10_000, Job::of(0));
            pool.send(SERVICE / 3, Job::of(1));
            pool.run(2_000, |pool, job| {
                if job.tenant == 1 {
                    pool.send(think, job);
                }
            });
            trouble.check(&pool);
            let light = || pool.starts.iter().filter(|start| start.job.tenant == 1);
            assert!(light().count() > 20, "{} of it ran: {trouble:?}", light().count());
            let longest = light().map(|start| start.waited).max().unwrap_or_default();
            assert!(
                longest <= SERVICE,
                "{longest:?}, {concurrency} at once, {think:?}: {trouble:?}"
            );
        }
    }
}

/// Of every 16 dispatches that really ran each class has one, though the turns of the low one may go
/// to a tenant that never runs.
#[test]
fn no_class_starves_beside_a_throttled_tenant() {
    for period in [4, 16] {
        for trouble in TROUBLES.map(|trouble| Trouble { class: Class::Low, ..trouble }) {
            let mut pool = Pool::with(Limits::new(4, 1_000_000).class_period(period));
            trouble.begin(&mut pool);
            for class in Class::ALL {
                pool.send_many(20, Job { class, ..Job::of(1) });
                pool.send_many(20, Job { class, ..Job::of(2) });
            }
            pool.run(2_000, |pool, job| pool.send(Duration::ZERO, job));
            trouble.check(&pool);
            for window in pool.starts.windows(period as usize) {
                for class in Class::ALL {
                    let served = window.iter().any(|start| start.job.class == class);
                    assert!(served, "{class:?} got none of {period} that ran: {trouble:?}");
                }
            }
        }
    }
}
