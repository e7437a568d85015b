//! Heads that fail again and again do not keep out those that would not: how long a healthy key waits
//! beside failing ones, in simulated time.
//!
//! `docs/rules.md#schedule-7`.

use std::time::Duration;

use sluicegate_schedule::Class;

use crate::pool::{Job, Pool, SERVICE};

const FAILING: u32 = 0;
/// Keys from here on are healthy ones'.
const HEALTHY: u32 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Case {
    concurrency: u32,
    failing_keys: u32,
    service: Duration,
    /// After which a failed head comes again.
    delay: Duration,
    healthy_keys: u32,
    healthy_tenant: u32,
}

/// How long each of the healthy keys waited, that came once every failing one had failed.
fn waits(case: Case) -> Vec<Duration> {
    let mut pool = Pool::new(case.concurrency);
    let job = |tenant, key| Job { key: Some(key), service: case.service, ..Job::of(tenant) };
    for key in 0..case.failing_keys {
        pool.send(Duration::ZERO, Job { fails: Some(case.delay), ..job(FAILING, key) });
    }
    let mut tried = vec![false; case.failing_keys as usize];
    let mut seen = 0;
    while tried.contains(&false) {
        assert!(pool.step(|_, _| {}));
        let most = 4 * (case.failing_keys + case.concurrency) as usize;
        assert!(seen < most, "after {seen} starts some were never tried: {case:?}");
        for start in &pool.starts[seen..] {
            tried[start.job.key.expect("a key") as usize] = true;
        }
        seen = pool.starts.len();
    }
    for key in 0..case.healthy_keys {
        pool.send(case.service / 3, job(case.healthy_tenant, HEALTHY + key));
    }
    let healthy = |pool: &Pool| -> Vec<Duration> {
        let of = |key: Option<u32>| key.is_some_and(|key| key >= HEALTHY);
        pool.starts.iter().filter(|start| of(start.job.key)).map(|start| start.waited).collect()
    };
    let most = pool.starts.len() + 8 * (case.healthy_keys + case.concurrency) as usize + 100;
    while healthy(&pool).len() < case.healthy_keys as usize && pool.starts.len() < most {
        assert!(pool.step(|_, _| {}));
    }
    assert_eq!(healthy(&pool).len(), case.healthy_keys as usize, "some never start: {case:?}");
    healthy(&pool)
}

/// Of the starts every other one is theirs: the nth of them starts within twice n of them.
fn check(case: Case) {
    for (waited, nth) in waits(case).into_iter().zip(1..) {
        let most = case.service * (2 * nth as u32).div_ceil(case.concurrency);
        assert!(waited <= most, "the {nth}th waited {waited:?}, not {most:?}: {case:?}");
    }
}

/// The figure that must hold: a pool of 4, 24 keys whose heads fail after a second and come again
/// after a second. A healthy key starts within two service times.
#[test]
fn beside_24_failing_keys_a_healthy_one_starts_within_two_service_times() {
    let second = Duration::from_secs(1);
    for healthy_tenant in [FAILING, 1] {
        let case = Case {
            concurrency: 4,
            failing_keys: 24,
            service: second,
            delay: second,
            healthy_keys: 1,
            healthy_tenant,
        };
        let longest = waits(case).into_iter().max().expect("some");
        assert!(longest <= 2 * second, "{longest:?}");
        // And four of them, as they were never called.
        let longest = waits(Case { healthy_keys: 4, ..case }).into_iter().max().expect("a key");
        assert!(longest <= 2 * second, "{longest:?}");
    }
}

/// However many fail, at whatever concurrency, and however soon they come again.
#[test]
fn failing_keys_do_not_keep_out_healthy_ones() {
    let delays = [
        Duration::ZERO,
        SERVICE / 100,
        SERVICE / 2,
        SERVICE,
        SERVICE * 2,
        SERVICE * 10,
        SERVICE * 100,
    ];
    for concurrency in [1, 4, 32] {
        for failing_keys in [10, 100] {
            for delay in delays {
                for (healthy_keys, healthy_tenant) in [(1, FAILING), (1, 1), (7, FAILING), (7, 1)] {
                    check(Case {
                        concurrency,
                        failing_keys,
                        service: SERVICE,
                        delay,
                        healthy_keys,
                        healthy_tenant,
                    });
                }
            }
        }
    }
}

#[test]
fn a_thousand_failing_keys_do_not_keep_out_a_healthy_one() {
    for (concurrency, delay) in
        [(1, SERVICE), (4, Duration::ZERO), (4, SERVICE / 2), (4, SERVICE * 100), (32, SERVICE * 2)]
    {
        for healthy_tenant in [FAILING, 1] {
            check(Case {
                concurrency,
                failing_keys: 1_000,
                service: SERVICE,
                delay,
                healthy_keys: 1,
                healthy_tenant,
            });
        }
    }
}

/// While both may start neither first attempts nor heads that come again have more than half, over
/// every span of starts; and both get on though there are many more of the other.
#[test]
fn while_both_wait_each_kind_has_half_of_the_starts() {
    for (failing, healthy, concurrency) in [(50, 2_000, 1), (3, 2_000, 3), (500, 2_000, 4)] {
        let mut pool = Pool::new(concurrency);
        for key in 0..failing {
            let fails = Some(Duration::ZERO);
            pool.send(Duration::ZERO, Job { key: Some(key), fails, ..Job::of(FAILING) });
        }
        pool.run(2 * failing as usize, |_, _| {});
        (0..healthy).for_each(|_| pool.send(Duration::ZERO, Job::of(FAILING)));
        pool.step(|_, _| {});
        let from = pool.starts.len();
        pool.run(from + 1_000, |_, _| {});
        // With fewer failing keys than places now and then none of them waits.
        let tolerated = if failing > 2 * concurrency { 1 } else { 1 + concurrency as usize };
        for window in pool.starts[from..].windows(100) {
            let again = window.iter().filter(|start| start.job.fails.is_some()).count();
            let apart = again.abs_diff(100 - again);
            assert!(apart <= 2 * tolerated, "{again} of 100, with {failing} failing keys");
        }
    }
}

/// In each class for itself: failures in one do not matter to another.
#[test]
fn failures_of_one_class_do_not_matter_to_another() {
    let mut pool = Pool::new(2);
    for key in 0..30 {
        let fails = Some(SERVICE);
        let job = Job { class: Class::Low, key: Some(key), fails, ..Job::of(FAILING) };
        pool.send(Duration::ZERO, job);
    }
    pool.run(60, |_, _| {});
    pool.send(SERVICE / 3, Job::of(FAILING));
    pool.run(pool.starts.len() + 20, |_, _| {});
    let healthy = pool.starts.iter().find(|start| start.job.fails.is_none()).expect("it runs");
    assert!(healthy.waited <= SERVICE, "{:?}", healthy.waited);
}
