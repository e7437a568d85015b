//! Memory: no allocation per decision in a steady state, and nothing kept of those who left.
//!
//! `docs/rules.md#schedule-5`.

use allocation_counter::{AllocationInfo, measure};
use sluicegate_schedule::{Class, Entry, Limits, Moment, Next, Rate, Schedule, TenantLimits};
use std::sync::Arc;
use std::time::Duration;

type Tested<N> = Schedule<u64, N, N>;

const NOW: Moment = Moment::ZERO;

fn schedule<N: std::hash::Hash + Eq + Clone + std::fmt::Debug>(concurrency: u32) -> Tested<N> {
    Schedule::new(Limits::new(concurrency, 200_000).build().expect("sound"), NOW)
}

/// An item ends, one way or another, and another like it comes in its stead.
fn cycle<N: std::hash::Hash + Eq + Clone>(schedule: &mut Tested<N>, names: &[N], n: u64) {
    let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
    let Some(&value) = schedule.get(id) else { panic!("it does not run") };
    match n % 9 {
        0 => assert!(schedule.revoke(id).is_some()),
        1 => assert!(schedule.complete(id, None).is_some()),
        2 => {
            assert!(schedule.retry(NOW, id, NOW, Some(2)));
            return;
        }
        7 => {
            assert!(schedule.postpone(NOW, id, NOW));
            return;
        }
        8 => assert!(schedule.linger(id, Some(3)) && schedule.depart(id).is_some()),
        cost => assert!(schedule.complete(id, Some(cost as u32)).is_some()),
    }
    schedule.admit(NOW, entry(names, value), value).expect("room");
}

/// The item of that number: some have a key, and it may be another tenant's too.
fn entry<N: Clone>(names: &[N], n: u64) -> Entry<N, N> {
    let name = |n: u64| names[(n % names.len() as u64) as usize].clone();
    let entry = Entry::of(name(n)).class(Class::ALL[(n / 7 % 4) as usize]);
    if n.is_multiple_of(5) { entry } else { entry.key(name(n * 11)) }
}

/// Allocations over 10,000 cycles with so many items, after a warm-up.
fn steady<N: std::hash::Hash + Eq + Clone + std::fmt::Debug>(
    names: &[N],
    items: u64,
) -> AllocationInfo {
    let mut schedule = schedule(8);
    for n in 0..items {
        schedule.admit(NOW, entry(names, n), n).expect("room");
    }
    (0..20_000).for_each(|n| cycle(&mut schedule, names, n));
    measure(|| (20_000..30_000).for_each(|n| cycle(&mut schedule, names, n)))
}

#[test]
fn a_decision_allocates_nothing() {
    let numbers: Vec<u64> = (0..100).collect();
    let texts: Vec<Arc<str>> = (0..100).map(|n| format!("session-{n}").into()).collect();
    for items in [1, 2, 50, 255, 256, 257, 3_000] {
        assert_eq!(steady(&numbers, items).count_total, 0, "{items} items, numbers");
        assert_eq!(steady(&texts, items).count_total, 0, "{items} items, texts");
    }
}

/// Records are kept in pages; going up and down across the edge of one allocates nothing either.
#[test]
fn going_up_and_down_allocates_nothing() {
    let mut schedule: Tested<u64> = schedule(10_000);
    let start = |schedule: &mut Tested<u64>, n| {
        schedule.admit(NOW, Entry::of(0u64), n).expect("room");
        let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
        id
    };
    let mut first: Vec<_> = (0..256).map(|n| start(&mut schedule, n)).collect();
    let mut second = vec![start(&mut schedule, 256)];
    let mut cycle = |n: u64| {
        for page in [&mut first, &mut second] {
            let id = page.pop().expect("one is there");
            assert!(schedule.complete(id, None).is_some());
        }
        for page in [&mut first, &mut second] {
            page.push(start(&mut schedule, n));
        }
    };
    (0..100).for_each(&mut cycle);
    assert_eq!(measure(|| (0..1_000).for_each(&mut cycle)).count_total, 0);
}

/// A pool that falls idle after every item is the commonest of all.
#[test]
fn one_item_at_a_time_allocates_nothing() {
    let mut schedule: Tested<u64> = schedule(1);
    let mut one = |n: u64| {
        schedule.admit(NOW, Entry::of(n % 10).key(n % 3), n).expect("room");
        let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
        assert_eq!(schedule.complete(id, Some(1)), Some(n));
    };
    (0..100).for_each(&mut one);
    assert_eq!(measure(|| (0..10_000).for_each(&mut one)).count_total, 0);
}

/// Keys and tenants that come once leave nothing behind, alone or beside one that stays.
#[test]
fn keys_and_tenants_one_after_the_other_leave_nothing_behind() {
    for stays in [false, true] {
        let mut schedule: Tested<u64> = schedule(2);
        if stays {
            schedule.admit(NOW, Entry::of(u64::MAX).key(u64::MAX), 0).expect("room");
            assert!(matches!(schedule.next(NOW), Next::Start(_)));
        }
        let mut pass = |range: std::ops::Range<u64>| {
            for n in range {
                schedule.admit(NOW, Entry::of(n).key(n), n).expect("room");
                let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
                let cost = Some(1 + (n % 50) as u32);
                assert_eq!(schedule.complete(id, cost), Some(n));
            }
        };
        pass(0..5_000);
        let grown = measure(|| pass(5_000..105_000)).bytes_current;
        assert!(grown <= 0, "one stays: {stays}; grew by {grown} bytes");
    }
}

/// A hundred thousand at once, each of its own key and tenant: once they are gone, so is the memory.
#[test]
fn keys_and_tenants_all_at_once_leave_nothing_behind() {
    for stays in [false, true] {
        let mut schedule: Tested<u64> = schedule(200_000);
        if stays {
            schedule.admit(NOW, Entry::of(u64::MAX).key(u64::MAX), 0).expect("room");
            assert!(matches!(schedule.next(NOW), Next::Start(_)));
        }
        let info = measure(|| {
            for n in 0..100_000 {
                schedule.admit(NOW, Entry::of(n).key(n), n).expect("room");
            }
            let mut started = Vec::new();
            while let Next::Start(id) = schedule.next(NOW) {
                started.push(id);
            }
            assert_eq!(started.len(), 100_000);
            started.into_iter().for_each(|id| assert!(schedule.complete(id, Some(3)).is_some()));
            // Debts are paid by what others do.
            for n in 0..60_000 {
                schedule.admit(NOW, Entry::of(n % 5).key(n % 5), n).expect("room");
                let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
                schedule.complete(id, Some(3));
            }
        });
        assert!(info.bytes_max > 10_000_000, "{info:?}");
        assert!(info.bytes_current < 250_000, "one stays: {stays}; {} bytes", info.bytes_current);
    }
}

/// How often a tenant entered is forgotten once that no longer matters, whether or not more come.
#[test]
fn admission_rates_leave_nothing_behind() {
    let second = Duration::from_secs(1);
    for rate in [Rate::sliding(2, second), Rate::new(2, second, 2)] {
        let each = TenantLimits::new().admission_rate(rate.expect("sound"));
        let limits = Limits::new(1, 10).each_tenant(each).build().expect("sound");
        let mut schedule: Tested<u64> = Schedule::new(limits, NOW);
        let info = measure(|| {
            for n in 0..10_000 {
                let id = schedule.admit(NOW, Entry::of(n), n).expect("room");
                assert_eq!(schedule.cancel(id), Some(n));
            }
            schedule.advance(NOW + second);
        });
        assert!(info.bytes_max > 500_000, "{info:?}");
        assert!(info.bytes_current < 200_000, "{} bytes", info.bytes_current);
    }
}
