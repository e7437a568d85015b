//! Fairness between tenants and classes, in simulated time.
//!
//! `docs/rules.md#schedule-1`, `docs/rules.md#schedule-2`.

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate_schedule::{Class, Limits, TenantLimits};

use crate::pool::{Job, Pool, SERVICE};

const BURST: u32 = 0;
const LIGHT: u32 = 1;

/// One tenant queues 10,000 items; another sends one at a time, the next so long after the former
/// ended. Its longest wait, in service times, is returned.
fn longest_wait_beside_a_burst(concurrency: u32, think: Duration) -> f64 {
    let mut pool = Pool::new(concurrency);
    pool.send_many(10_000, Job::of(BURST));
    pool.send(SERVICE / 3, Job::of(LIGHT));
    pool.run(10_000, |pool, job| {
        if job.tenant == LIGHT {
            pool.send(think, job);
        }
    });
    let light = || pool.starts.iter().filter(|start| start.job.tenant == LIGHT);
    assert!(light().count() > 20, "{concurrency}, {think:?}: {}", light().count());
    let longest = light().map(|start| start.waited).max().unwrap_or_default();
    longest.as_secs_f64() / SERVICE.as_secs_f64()
}

/// 2.4, and paper 001: a tenant that sends one at a time never waits longer than one service time,
/// however much another has queued.
#[test]
fn beside_a_burst_nobody_waits_longer_than_one_service_time() {
    let nano = Duration::from_nanos(1);
    let thinks = [Duration::ZERO, nano, SERVICE / 2, SERVICE - nano, SERVICE, SERVICE * 3 / 2];
    for concurrency in [1, 4, 32] {
        for think in thinks {
            let longest = longest_wait_beside_a_burst(concurrency, think);
            assert!(longest <= 1.0, "concurrency {concurrency}, think {think:?}: {longest}");
        }
    }
}

/// The same when the burst's items cost ten times as much as both were thought to.
#[test]
fn beside_an_expensive_burst_nobody_waits_longer_than_one_service_time() {
    for concurrency in [1, 4, 32] {
        let mut pool = Pool::new(concurrency);
        pool.send_many(5_000, Job { measured: Some(10), ..Job::of(BURST) });
        pool.send(SERVICE / 3, Job { measured: Some(1), ..Job::of(LIGHT) });
        pool.run(5_000, |pool, job| {
            if job.tenant == LIGHT {
                pool.send(SERVICE / 2, job);
            }
        });
        let light = pool.starts.iter().filter(|start| start.job.tenant == LIGHT);
        let longest = light.map(|start| start.waited).max().unwrap_or_default();
        assert!(longest <= SERVICE, "concurrency {concurrency}: {longest:?}");
    }
}

/// (sum x)² / (n * sum x²): 1 when all are equal.
pub(crate) fn jain(counts: &BTreeMap<u32, u64>, tenants: u32) -> f64 {
    let sum: u64 = counts.values().sum();
    let squares: u64 = counts.values().map(|count| count * count).sum();
    (sum * sum) as f64 / (f64::from(tenants) * squares as f64)
}

/// A hundred equal tenants, never without work, that send in four different ways.
#[test]
fn equal_tenants_get_equal_shares_however_they_send() {
    const TENANTS: u32 = 100;
    let mut pool = Pool::new(16);
    for tenant in 0..TENANTS {
        let job = Job::of(tenant);
        match tenant % 4 {
            0 => pool.send_many(1_000, job),
            1 => pool.send_many(2, job),
            2 => pool.send_many(50, job),
            _ => (0..1_000).for_each(|n| {
                pool.send(Duration::ZERO, Job { key: Some(tenant * 10 + n % 8), ..job });
            }),
        }
    }
    pool.run(40_000, |pool, job| {
        let queued = pool.queued.get(&job.tenant).copied().unwrap_or_default();
        match job.tenant % 4 {
            1 => pool.send(Duration::ZERO, job),
            2 if queued <= 1 => pool.send_many(50, job),
            _ => {}
        }
    });
    let least = (0..pool.starts.len() - 2_000)
        .step_by(50)
        .map(|from| jain(&pool.counts(from..from + 2_000), TENANTS))
        .fold(1.0, f64::min);
    assert!(least >= 0.99, "Jain index {least}");
}

/// How far the shares are from the weights, relative to the share that is due.
pub(crate) fn error(shares: &[(u32, f64)], weights: &[(u32, f64)]) -> f64 {
    let all: f64 = shares.iter().map(|(_, share)| share).sum();
    let of_all: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let errors = shares.iter().zip(weights).map(|((_, share), (_, weight))| {
        let due = weight / of_all;
        (share / all - due).abs() / due
    });
    errors.fold(0.0, f64::max)
}

pub(crate) const WEIGHTS: [(u32, f64); 3] = [(1, 1.0), (2, 2.0), (4, 4.0)];

pub(crate) fn weighted(concurrency: u32) -> Pool {
    let limits = WEIGHTS.iter().fold(Limits::new(concurrency, 1_000_000), |limits, (tenant, _)| {
        limits.tenant(*tenant, TenantLimits::new().weight(*tenant))
    });
    Pool::with(limits)
}

#[test]
fn weights_hold_by_count() {
    for concurrency in [1, 7, 32] {
        let mut pool = weighted(concurrency);
        WEIGHTS.iter().for_each(|(tenant, _)| pool.send_many(200, Job::of(*tenant)));
        pool.run(14_000, |pool, job| pool.send(Duration::ZERO, job));
        let shares: Vec<_> =
            pool.counts(0..14_000).into_iter().map(|(t, count)| (t, count as f64)).collect();
        let error = error(&shares, &WEIGHTS);
        assert!(error <= 0.02, "concurrency {concurrency}: {error} in {shares:?}");
    }
}

/// The tenants' items cost differently, and are found to do so only once they have run.
#[test]
fn weights_hold_by_measured_cost() {
    for concurrency in [1, 7, 32] {
        let mut pool = weighted(concurrency);
        let cost = |tenant: u32, n: u32| match tenant {
            1 => 1 + n % 3,
            2 => 10 + n % 11,
            _ => 40 + 37 * (n % 5),
        };
        let mut costs = BTreeMap::<u32, u64>::new();
        for (tenant, _) in WEIGHTS {
            for n in 0..100 {
                let measured = Some(cost(tenant, n));
                pool.send(Duration::ZERO, Job { measured, ..Job::of(tenant) });
            }
        }
        pool.run(100_000, |pool, job| {
            *costs.entry(job.tenant).or_default() += u64::from(job.measured.unwrap_or_default());
            let measured = Some(cost(job.tenant, pool.starts.len() as u32));
            pool.send(Duration::ZERO, Job { measured, ..job });
        });
        let shares: Vec<_> = costs.into_iter().map(|(t, cost)| (t, cost as f64)).collect();
        let error = error(&shares, &WEIGHTS);
        assert!(error <= 0.02, "concurrency {concurrency}: {error} in {shares:?}");
    }
}

#[test]
fn a_changed_weight_takes_effect_at_once() {
    let mut pool = Pool::new(4);
    pool.send_many(4_000, Job::of(1));
    pool.send_many(4_000, Job::of(2));
    pool.run(1_000, |_, _| {});
    pool.schedule.set_tenant(pool.now, 2, TenantLimits::new().weight(3)).unwrap();
    let from = pool.starts.len();
    pool.run(from + 1_000, |_, _| {});
    pool.schedule.set_each_tenant(pool.now, TenantLimits::new().weight(6)).unwrap();
    let then = pool.starts.len();
    pool.run(then + 900, |_, _| {});
    for (range, weights) in [
        (0..1_000, [(1, 1.0), (2, 1.0)]),
        (from..from + 1_000, [(1, 1.0), (2, 3.0)]),
        (from..from + 40, [(1, 1.0), (2, 3.0)]),
        (then..then + 900, [(1, 6.0), (2, 3.0)]),
    ] {
        let shares: Vec<_> =
            pool.counts(range.clone()).into_iter().map(|(t, n)| (t, n as f64)).collect();
        let error = error(&shares, &weights);
        let bound = if range.len() < 100 { 0.2 } else { 0.02 };
        assert!(error <= bound, "{range:?}: {error} in {shares:?}");
    }
}

#[test]
fn a_tenant_at_its_cap_leaves_the_rest_to_others() {
    let capped = TenantLimits::new().weight(100).max_running(2);
    let mut pool = Pool::with(Limits::new(8, 1_000_000).tenant(1u32, capped));
    (1..=3).for_each(|tenant| pool.send_many(500, Job::of(tenant)));
    while pool.starts.len() < 1_000 && pool.step(|_, _| {}) {
        assert_eq!(pool.running[&1], 2);
        assert_eq!(pool.running.values().sum::<u32>(), 8);
    }
    let counts = pool.counts(0..1_000);
    assert_eq!((counts[&1], counts[&2], counts[&3]), (250, 375, 375));
}

/// A burst may take every slot while nobody else is there. From when the first of its items has
/// ended it never has all of them while others wait, and after one service time none has more than
/// its share.
#[test]
fn a_burst_never_keeps_all_slots_while_others_wait() {
    for concurrency in [2u32, 8, 33] {
        let mut pool = Pool::new(concurrency);
        pool.send_many(2_000, Job::of(BURST));
        for tenant in 1..=3 {
            (0..200).for_each(|_| pool.send(SERVICE / 2, Job::of(tenant)));
        }
        pool.step(|_, _| {});
        assert_eq!(pool.running[&BURST], concurrency);
        while pool.starts.len() < 600 && pool.step(|_, _| {}) {
            if pool.now - sluicegate_schedule::Moment::ZERO < SERVICE {
                continue;
            }
            let waiting = pool.queued.values().filter(|queued| **queued > 0).count() as u32;
            let (running, share) = (pool.running[&BURST], concurrency.div_ceil(waiting) + 1);
            assert!(running <= share, "{running} of {concurrency}, with {waiting} waiting");
            assert!(running < concurrency || waiting == 1, "all {concurrency} slots");
        }
    }
}

#[test]
fn no_class_starves() {
    for period in [4, 5, 7, 16, 40] {
        let mut pool = Pool::with(Limits::new(3, 1_000_000).class_period(period));
        for class in Class::ALL {
            for tenant in 0..3 {
                pool.send_many(100, Job { class, ..Job::of(tenant) });
            }
        }
        pool.run(4_000, |pool, job| pool.send(Duration::ZERO, job));
        for window in pool.starts.windows(period as usize) {
            for class in Class::ALL {
                let served = window.iter().any(|start| start.job.class == class);
                assert!(served, "{class:?} got none of {period} dispatches");
            }
        }
        let first = pool.starts.iter().filter(|start| start.job.class == Class::System).count();
        let least = pool.starts.len() - 3 * (pool.starts.len() / period as usize + 4);
        assert!(first >= least.min(pool.starts.len() / 4), "period {period}: {first} of the first");
    }
}

/// Sending expensive items one at a time, and being idle in between, earns no more than sending
/// many cheap ones: the debt is remembered.
#[test]
fn expensive_items_one_at_a_time_get_no_more_than_their_share() {
    const EXPENSIVE: u32 = 9;
    for think in [Duration::ZERO, Duration::from_nanos(1), SERVICE / 2, SERVICE] {
        let mut pool = Pool::new(1);
        pool.send_many(20_000, Job { measured: Some(1), ..Job::of(1) });
        pool.send(Duration::ZERO, Job { measured: Some(25), ..Job::of(EXPENSIVE) });
        pool.run(5_000, |pool, job| {
            if job.tenant == EXPENSIVE {
                pool.send(think, job);
            }
        });
        let counts = pool.counts(0..5_000);
        let (cheap, expensive) = (counts[&1] as f64, counts[&EXPENSIVE] as f64 * 25.0);
        assert!(expensive <= cheap * 1.02 + 25.0, "think {think:?}: {expensive} beside {cheap}");
    }
}
