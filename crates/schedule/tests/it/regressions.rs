//! Faults this schedule once had. Each test failed before its fix.

use sluicegate_schedule::{
    Class, Entry, ItemId, Limits, Moment, Next, Rate, Schedule, TenantLimits,
};
use std::time::Duration;

type Tested = Schedule<char, u32, char>;

const NOW: Moment = Moment::ZERO;

fn schedule(concurrency: u32) -> Tested {
    Schedule::new(Limits::new(concurrency, 100_000).build().expect("sound"), NOW)
}

fn start(schedule: &mut Tested) -> ItemId {
    match schedule.next(NOW) {
        Next::Start(id) => id,
        other => panic!("nothing starts: {other:?}"),
    }
}

/// A charge that is taken back is the charge that was made, whatever the weight is by then.
/// Otherwise a tenant whose weight falls while it runs something is given rounds it never paid.
#[test]
fn a_charge_taken_back_is_the_charge_that_was_made() {
    let mut schedule = schedule(1);
    schedule.set_tenant(Moment::ZERO, 'a', TenantLimits::new().weight(10)).unwrap();
    for n in 0..500 {
        let (value, cost) = if n == 300 { ('!', 20_000) } else { ('a', 1000) };
        schedule.admit(NOW, Entry::of('a').cost(cost), value).unwrap();
        schedule.admit(NOW, Entry::of('b').cost(1000), 'b').unwrap();
    }
    let big = loop {
        let id = start(&mut schedule);
        if schedule.get(id) == Some(&'!') {
            break id;
        }
        schedule.complete(id, None);
    };
    schedule.set_tenant(Moment::ZERO, 'a', TenantLimits::new()).unwrap();
    schedule.revoke(big);
    let served: String = (0..10)
        .filter_map(|_| {
            let id = start(&mut schedule);
            schedule.complete(id, None)
        })
        .collect();
    assert!(served.contains('b'), "{served}");
}

/// A token goes back only to the bucket it came from. Otherwise an item that started before there
/// was a rate brings a token along that nobody took.
#[test]
fn a_token_goes_back_only_to_the_bucket_it_came_from() {
    let rate = Rate::new(1, Duration::from_secs(1), 1).unwrap();
    let mut schedule = schedule(10);
    for _ in 0..4 {
        schedule.admit(NOW, Entry::of('a'), 'a').unwrap();
    }
    let unrated = start(&mut schedule);
    schedule.set_rate(NOW, Some(rate));
    let rated = start(&mut schedule);
    let in_a_second = Next::At(NOW + Duration::from_secs(1));
    schedule.revoke(unrated);
    assert_eq!(schedule.next(NOW), in_a_second);
    schedule.revoke(rated);
    assert!(matches!(schedule.next(NOW), Next::Start(_)));
    assert_eq!(schedule.next(NOW), in_a_second);
}

/// A tenant with work waiting gets its turn though others come new all the time. A round robin
/// appends those who come; they must not all go before those who were there.
#[test]
fn newcomers_do_not_starve_those_who_wait() {
    let mut schedule: Schedule<u32, u32, u32> =
        Schedule::new(Limits::new(1, 2000).build().unwrap(), NOW);
    for _ in 0..1000 {
        schedule.admit(NOW, Entry::of(0u32), 0).unwrap();
    }
    // There are always so many of them waiting.
    for waiting in [1, 10] {
        let (mut newcomers, mut served) = (0, 0);
        for _ in 0..200 {
            while schedule.snapshot(NOW).queued < 1000 + waiting {
                newcomers += 1;
                schedule.admit(NOW, Entry::of(waiting * 1000 + newcomers), newcomers).unwrap();
            }
            let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
            if schedule.complete(id, None) == Some(0) {
                schedule.admit(NOW, Entry::of(0u32), 0).unwrap();
                served += 1;
            }
        }
        assert!(served >= 200 / (2 * waiting + 2), "{served} of 200 with {waiting} newcomers");
    }
}

/// Tenants that come once and never again are forgotten, also while something else always runs.
#[test]
fn tenants_that_came_once_are_forgotten() {
    let mut schedule: Schedule<(), u32, u32> =
        Schedule::new(Limits::new(2, 1000).build().unwrap(), NOW);
    schedule.admit(NOW, Entry::of(0u32), ()).unwrap();
    schedule.next(NOW);
    for tenant in 1..=1000 {
        schedule.admit(NOW, Entry::of(tenant), ()).unwrap();
        let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
        schedule.complete(id, Some(tenant % 7));
    }
    assert!(schedule.tenants().count() < 40, "{} tenants", schedule.tenants().count());
}

/// Starts that are taken back while later ones stay cost no class its share: here `Normal` was started third, and is
/// due again before the fourth dispatch after that.
#[test]
fn starts_taken_back_between_others_starve_no_class() {
    let limits = Limits::new(100, 100).class_period(4).build().unwrap();
    let mut schedule = Tested::new(limits, NOW);
    for class in Class::ALL.into_iter().cycle().take(40) {
        schedule.admit(NOW, Entry::of('a').class(class), class.to_string().remove(0)).unwrap();
    }
    let mut started = || {
        let id = start(&mut schedule);
        (id, schedule.get(id).copied().unwrap())
    };
    let first: Vec<(ItemId, char)> = (0..4).map(|_| started()).collect();
    assert_eq!(first.iter().map(|(_, class)| *class).collect::<String>(), "sanl");
    schedule.revoke(first[2].0);
    let fifth = start(&mut schedule);
    start(&mut schedule);
    schedule.revoke(fifth);
    let due = start(&mut schedule);
    assert_eq!(schedule.get(due), Some(&'n'));
}

/// A start that was the last of its tenant and is taken back leaves no trace in whose turn it is: heads that come
/// again waited for the turn that it had while there were none.
#[test]
fn a_start_taken_back_leaves_those_that_come_again_their_turn() {
    let mut schedule = schedule(10);
    for _ in 0..5 {
        schedule.admit(NOW, Entry::of('a'), 'a').unwrap();
    }
    let again = start(&mut schedule);
    start(&mut schedule);
    let taken_back = start(&mut schedule);
    schedule.retry(NOW, again, NOW, None);
    schedule.revoke(taken_back);
    assert_eq!(start(&mut schedule), again);
}
