//! Token buckets inside the schedule: how often something starts.
//!
//! `docs/rules.md#rate-1`, `docs/rules.md#rate-2`.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use sluicegate_schedule::{Entry, ItemId, Limits, Moment, Next, Rate, Schedule};

use crate::history::{Flow, flow};

type Tested = Schedule<(), (), ()>;

fn ms(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

/// A schedule with that rate and more waiting than will ever start.
fn backlogged(flow: Option<Flow>) -> Tested {
    let mut limits = Limits::new(100_000, 100_000);
    if let Some(flow) = flow {
        limits = limits.rate(flow.rate());
    }
    let mut schedule = Schedule::new(limits.build().expect("sound"), Moment::ZERO);
    for _ in 0..5_000 {
        schedule.admit(Moment::ZERO, Entry::of(()), ()).expect("room");
    }
    schedule
}

fn start_all(schedule: &mut Tested, now: Moment) -> Vec<ItemId> {
    std::iter::from_fn(|| match schedule.next(now) {
        Next::Start(id) => Some(id),
        _ => None,
    })
    .collect()
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Advance { us: u64 },
    Start,
    StartOne,
    Revoke,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u64..20_000).prop_map(|us| Op::Advance { us }),
        3 => Just(Op::Start),
        3 => Just(Op::StartOne),
        1 => Just(Op::Revoke),
    ]
}

proptest! {
    #![proptest_config(Config { cases: 256, failure_persistence: None, ..Config::default() })]

    /// In no window of time do more items start, and run, than the burst and the rate allow.
    #[test]
    fn never_more_than_burst_and_rate(flow in flow(), ops in prop::collection::vec(op(), 0..80)) {
        let mut schedule = backlogged(Some(flow));
        let mut now = Moment::ZERO;
        let mut started: Vec<(Moment, ItemId)> = Vec::new();
        for op in ops {
            match op {
                Op::Advance { us } => now += Duration::from_micros(us),
                Op::Start => {
                    started.extend(start_all(&mut schedule, now).into_iter().map(|id| (now, id)));
                }
                Op::StartOne => if let Next::Start(id) = schedule.next(now) {
                    started.push((now, id));
                },
                // It did not run after all, and is said so at once: it does not count.
                Op::Revoke => if let Some((_, id)) = started.pop_if(|(at, _)| *at == now) {
                    prop_assert!(schedule.revoke(id).is_some());
                },
            }
        }
        let at: Vec<u64> = started.iter().map(|(at, _)| at.as_nanos()).collect();
        let period = u128::from(flow.period_ms) * 1_000_000;
        for from in 0..at.len() {
            for to in from..at.len() {
                let flowed = u128::from(at[to] - at[from]) * u128::from(flow.count) / period;
                let allowed = u128::from(flow.burst) + flowed;
                let seen = (to - from + 1) as u128;
                prop_assert!(seen <= allowed, "{seen} of {allowed} from {from} to {to}: {at:?}");
            }
        }
    }

    /// Woken when told, and only then, items start as often as the rate says. In a bucket of a single
    /// token what a told moment is rounded up by flows over: less than a nanosecond each time.
    #[test]
    fn nothing_is_lost_by_waiting_for_the_told_moment(flow in flow()) {
        let mut schedule = backlogged(Some(flow));
        let mut now = Moment::ZERO;
        let end = ms(flow.period_ms * 20);
        let mut count = 0;
        loop {
            match schedule.next(now) {
                Next::Start(_) => count += 1,
                Next::At(at) if at <= end => now = at,
                _ => break,
            }
        }
        let all = flow.burst + flow.count * 20;
        prop_assert!((all - 1..=all).contains(&count), "{} of {}", count, all);
    }
}

#[test]
fn a_rate_applies_at_once() {
    let rate = |count, burst| Rate::new(count, Duration::from_secs(1), burst).unwrap();
    let mut schedule = backlogged(None);
    let limits = |schedule: &Tested| schedule.snapshot(ms(0)).running;
    schedule.set_concurrency(50).unwrap();
    assert_eq!(start_all(&mut schedule, ms(0)).len(), 50);
    schedule.set_concurrency(10_000).unwrap();
    // Added: a full bucket, and then its pace.
    schedule.set_rate(ms(0), Some(rate(1, 3)));
    assert_eq!(start_all(&mut schedule, ms(0)).len(), 3);
    assert_eq!(schedule.next(ms(0)), Next::At(ms(1000)));
    // Changed in the middle of a wait: half a token is there, the other half comes faster.
    schedule.set_rate(ms(500), Some(rate(10, 1)));
    assert_eq!(schedule.next(ms(500)), Next::At(ms(550)));
    assert_eq!(start_all(&mut schedule, ms(550)).len(), 1);
    // Slower, deeper: a deeper bucket does not come full.
    schedule.set_rate(ms(550), Some(rate(1, 100)));
    assert_eq!(schedule.next(ms(550)), Next::At(ms(1550)));
    // Removed: nothing waits for it any more.
    schedule.set_rate(ms(551), None);
    let before = limits(&schedule);
    schedule.set_concurrency(before + 20).unwrap();
    assert_eq!(start_all(&mut schedule, ms(551)).len(), 20);
}

/// A token is spent by what starts and by nothing else: not by asking in vain, not by what was
/// revoked, not while the slots are taken.
#[test]
fn a_token_is_spent_only_by_an_item_that_starts() {
    let rate = Rate::new(1, Duration::from_secs(60), 2).unwrap();
    let limits = Limits::new(1, 10).rate(rate).build().unwrap();
    let mut schedule: Tested = Schedule::new(limits, ms(0));
    let in_a_minute = Next::At(ms(60_000));
    // Nothing waits: asking costs nothing.
    (0..5).for_each(|_| assert_eq!(schedule.next(ms(0)), Next::Idle));
    for _ in 0..4 {
        schedule.admit(ms(0), Entry::of(()), ()).unwrap();
    }
    let Next::Start(first) = schedule.next(ms(0)) else { panic!("a full bucket") };
    // The slot is taken: asking costs nothing.
    (0..5).for_each(|_| assert_eq!(schedule.next(ms(0)), Next::Idle));
    schedule.complete(first, None);
    // Revoked as often as you like: the second token is still there, and then is not.
    for _ in 0..2 {
        let Next::Start(id) = schedule.next(ms(0)) else { panic!("one token left") };
        assert!(schedule.revoke(id).is_some());
    }
    let Next::Start(last) = schedule.next(ms(0)) else { panic!("one token left") };
    schedule.complete(last, None);
    assert_eq!(schedule.snapshot(ms(0)).queued, 0);
    schedule.admit(ms(0), Entry::of(()), ()).unwrap();
    (0..5).for_each(|_| assert_eq!(schedule.next(ms(0)), in_a_minute));
}
