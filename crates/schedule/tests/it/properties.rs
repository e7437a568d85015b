//! What holds whoever is asked: stated by what can be seen from outside, without a formula.
//!
//! `docs/rules.md#schedule-1`, `docs/rules.md#schedule-2`, `docs/rules.md#schedule-7`.

use proptest::prelude::*;
use proptest::test_runner::Config;
use sluicegate_schedule::{Class, Entry, Limits, Moment, Next, Schedule};

use crate::history::{Bounds, Delay, Newcomer, Op, Setup, class};
use crate::watch::Watched;

const NOW: Moment = Moment::ZERO;

/// Many keys of few tenants, of which some fail and come again.
fn many_keys() -> impl Strategy<Value = Op> {
    let newcomer = (0u8..2, 0u8..40, class()).prop_map(|(tenant, key, class)| Newcomer {
        key: Some(key),
        ..Newcomer::of(tenant, class)
    });
    let nth = || 0usize..1000;
    let delay = || prop_oneof![Just(Delay::None), (0u64..30).prop_map(Delay::Ms)];
    prop_oneof![
        12 => newcomer.prop_map(Op::Admit),
        12 => Just(Op::Next),
        4 => nth().prop_map(|nth| Op::Complete { nth, cost: None }),
        6 => (nth(), delay()).prop_map(|(nth, delay)| Op::Retry { nth, delay, cost: None }),
        2 => (nth(), delay()).prop_map(|(nth, delay)| Op::Postpone { nth, delay }),
        1 => nth().prop_map(|nth| Op::Cancel { nth }),
        4 => (0u64..20, any::<bool>()).prop_map(|(ms, told)| Op::Advance { ms, told }),
    ]
}

proptest! {
    #![proptest_config(Config { cases: 96, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() })]

    /// Of two first attempts, or two that come again, of one tenant and class, the one that has been
    /// ready for longer starts first: [`Watched`] sees to it at each start.
    #[test]
    fn of_two_that_may_start_the_one_ready_for_longer_is_first(
        concurrency in 1u32..6,
        ops in prop::collection::vec(many_keys(), 0..400),
    ) {
        let each_tenant = Bounds::OPEN;
        let setup = Setup { concurrency, capacity: 1000, class_period: 16, rate: None, each_tenant };
        let mut watched = Watched::new(setup);
        ops.iter().for_each(|op| watched.step(*op));
        watched.drain();
    }
}

fn start(schedule: &mut Schedule<u32, u32, u32>) -> (sluicegate_schedule::ItemId, u32) {
    let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
    (id, *schedule.get(id).expect("it runs"))
}

/// A tenant that was away while others were served begins level with them. What its old item turns
/// out to have cost less gives it no more than that: from then on both have the same number of starts.
#[test]
fn a_correction_gives_no_credit_for_time_spent_away() {
    for (estimate, measured) in [(100, 1), (100, 50), (5_000, 1)] {
        let mut schedule =
            Schedule::<u32, u32, u32>::new(Limits::new(2, 100_000).build().expect("sound"), NOW);
        schedule.admit(NOW, Entry::of(1u32).cost(estimate), 1).expect("room");
        let (old, _) = start(&mut schedule);
        for _ in 0..2 * estimate + 1_000 {
            schedule.admit(NOW, Entry::of(2u32).cost(1), 2).expect("room");
        }
        for _ in 0..2 * estimate {
            let (id, tenant) = start(&mut schedule);
            assert_eq!(tenant, 2);
            schedule.complete(id, None);
        }
        for _ in 0..500 {
            schedule.admit(NOW, Entry::of(1u32).cost(1), 1).expect("room");
        }
        schedule.complete(old, Some(measured));
        let mut counts = [0u32; 3];
        for _ in 0..400 {
            let (id, tenant) = start(&mut schedule);
            counts[tenant as usize] += 1;
            schedule.complete(id, None);
            assert!(counts[1].abs_diff(counts[2]) <= 2, "{counts:?} after {estimate}, {measured}");
        }
    }
}

/// Inside a key the higher class goes first without exception, however long another waits there;
/// between keys none starves, and the one that waits inside has no claim.
#[test]
fn inside_a_key_the_higher_class_goes_first_without_exception() {
    let limits = Limits::new(1, 1_000).class_period(4).build().expect("sound");
    let mut schedule = Schedule::<u32, u32, u32>::new(limits, NOW);
    let (low, system, other) = (1, 2, 3);
    let entry = |class, key: u32| Entry::of(1u32).class(class).key(key);
    schedule.admit(NOW, entry(Class::Low, 7), low).expect("room");
    let mut since = 0;
    for _ in 0..100 {
        schedule.admit(NOW, entry(Class::System, 7), system).expect("room");
        schedule.admit(NOW, entry(Class::Low, 8), other).expect("room");
        let (id, started) = start(&mut schedule);
        assert_ne!(started, low, "a higher class waits in its key");
        since = if started == other { 0 } else { since + 1 };
        assert!(since < 4, "Low could start all along, and got none of {since}");
        schedule.complete(id, None);
    }
    // With nothing higher in its key any more it goes.
    let all: Vec<u32> = std::iter::from_fn(|| match schedule.next(NOW) {
        Next::Start(id) => schedule.complete(id, None),
        _ => None,
    })
    .collect();
    assert_eq!(all.iter().filter(|value| **value == low).count(), 1);
    let at = all.iter().position(|value| *value == low);
    let last_system = all.iter().rposition(|value| *value == system);
    assert!(at > last_system, "{all:?}");
}

/// Nothing is said of what items cost: while they run, and are not measured yet, they count as what
/// their tenant's cost lately, and a newcomer's as what all did.
#[test]
fn work_in_flight_counts_as_what_it_cost_lately() {
    let mut schedule = Schedule::<u32, u32, u32>::new(Limits::new(1, 1_000).build().unwrap(), NOW);
    let cost = |tenant| if tenant == 1 { 10 } else { 1 };
    for tenant in [1u32, 2] {
        (0..300).for_each(|_| drop(schedule.admit(NOW, Entry::of(tenant), tenant)));
    }
    for _ in 0..220 {
        let (id, tenant) = start(&mut schedule);
        schedule.complete(id, Some(cost(tenant)));
    }
    schedule.set_concurrency(100).unwrap();
    let mut counts = [0u32; 4];
    (0..66).for_each(|_| counts[start(&mut schedule).1 as usize] += 1);
    assert!((5..=7).contains(&counts[1]), "{counts:?}: ten of the one for each of the other");
    // As many newcomers' items count as more than the cheap one's.
    (0..30).for_each(|_| drop(schedule.admit(NOW, Entry::of(3u32), 3)));
    let before = counts;
    (0..22).for_each(|_| counts[start(&mut schedule).1 as usize] += 1);
    assert!(counts[3] < counts[2] - before[2], "{counts:?} after {before:?}");
}

/// A class of which nothing waits any more is owed nothing, also where that came about between a start
/// and its being taken back.
#[test]
fn a_class_that_was_emptied_is_owed_nothing() {
    let limits = Limits::new(1, 100).class_period(4).build().unwrap();
    let mut schedule = Schedule::<u32, u32, u32>::new(limits, NOW);
    let (low, system) = (1, 2);
    let gone = schedule.admit(NOW, Entry::of(1u32).class(Class::Low), low).unwrap();
    for _ in 0..20 {
        schedule.admit(NOW, Entry::of(1u32).class(Class::System), system).unwrap();
    }
    for _ in 0..2 {
        let (id, _) = start(&mut schedule);
        schedule.complete(id, None);
    }
    let (id, _) = start(&mut schedule);
    assert_eq!(schedule.cancel(gone), Some(low));
    assert_eq!(schedule.revoke(id), Some(system));
    schedule.admit(NOW, Entry::of(1u32).class(Class::Low), low).unwrap();
    let order: Vec<u32> = (0..4)
        .map(|_| {
            let (id, value) = start(&mut schedule);
            schedule.complete(id, None);
            value
        })
        .collect();
    assert_eq!(order, [system, system, system, low]);
}
