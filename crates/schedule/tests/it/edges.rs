//! What random histories seldom reach, each for itself.
//!
//! `docs/rules.md#schedule-7`, `docs/rules.md#schedule-9`, `docs/rules.md#rate-1`, `docs/rules.md#rate-4`.

use std::time::Duration;

use sluicegate_schedule::{
    Entry, ItemId, Limits, Moment, Next, Rate, Refusal, Schedule, TenantLimits, Why,
};

type Tested = Schedule<u32, u32, u32>;

const NOW: Moment = Moment::ZERO;
const SECOND: Duration = Duration::from_secs(1);

fn schedule(concurrency: u32) -> Tested {
    Schedule::new(Limits::new(concurrency, 100).build().expect("sound"), NOW)
}

fn admit(schedule: &mut Tested, now: Moment) -> ItemId {
    schedule.admit(now, Entry::of(1u32), 0).expect("room")
}

#[test]
fn a_pause_ends_when_it_was_ended_as_often_as_it_was_begun() {
    let mut schedule = schedule(1);
    let id = admit(&mut schedule, NOW);
    for reason in ["memory", "disk", "operator", "memory"] {
        schedule.pause(reason);
    }
    assert!(schedule.resume("memory"));
    assert_eq!(schedule.why(NOW, id), Some(Why::Paused { reason: "memory" }));
    assert!(schedule.resume("memory"));
    assert!(!schedule.resume("memory"));
    assert_eq!(schedule.why(NOW, id), Some(Why::Paused { reason: "disk" }));
    assert_eq!(schedule.next(NOW), Next::Idle);
    assert!(schedule.resume("disk"));
    assert!(schedule.resume("operator"));
    assert_eq!(schedule.next(NOW), Next::Start(id));
}

/// The rate was taken away and given again: that is another bucket.
#[test]
fn a_token_of_a_rate_that_is_gone_goes_nowhere() {
    let rate = Some(Rate::per_second(1).unwrap());
    let mut schedule = schedule(9);
    let ids: Vec<ItemId> = (0..3).map(|_| admit(&mut schedule, NOW)).collect();
    schedule.set_rate(NOW, rate);
    assert_eq!(schedule.next(NOW), Next::Start(ids[0]));
    schedule.set_rate(NOW, None);
    schedule.set_rate(NOW, rate);
    assert_eq!(schedule.next(NOW), Next::Start(ids[1]));
    assert_eq!(schedule.revoke(ids[0]), Some(0));
    assert_eq!(schedule.next(NOW), Next::At(NOW + SECOND));
}

/// One whose hold is over has been ready for longer than one that is postponed now.
#[test]
fn what_is_postponed_stands_behind_those_whose_hold_is_over() {
    let mut schedule = schedule(2);
    let (first, second) = (admit(&mut schedule, NOW), admit(&mut schedule, NOW));
    while schedule.next(NOW) != Next::Idle {}
    let later = NOW + SECOND;
    assert!(schedule.postpone(NOW, first, NOW + SECOND / 2));
    assert!(schedule.postpone(later, second, later));
    assert_eq!(schedule.next(later), Next::Start(first));
}

fn limited(rate: Option<Rate>) -> TenantLimits {
    rate.map_or(TenantLimits::new(), |rate| TenantLimits::new().admission_rate(rate))
}

/// A deeper bucket comes full to a tenant whose shallower one was full again, told of the time or not.
#[test]
fn another_admission_rate_begins_anew_once_the_old_one_has_recovered() {
    for told in [false, true] {
        let mut schedule = schedule(1);
        let bucket = |burst| limited(Some(Rate::new(1, SECOND, burst).unwrap()));
        schedule.set_each_tenant(NOW, bucket(1)).unwrap();
        admit(&mut schedule, NOW);
        let later = NOW + SECOND * 2;
        if told {
            schedule.advance(later);
        }
        schedule.set_each_tenant(later, bucket(3)).unwrap();
        for _ in 0..3 {
            admit(&mut schedule, later);
        }
        let refused = schedule.may_admit(later, &Entry::of(1u32));
        assert_eq!(refused, Err(Refusal::TenantRateLimited { until: later + SECOND }), "{told}");
    }
}

/// A tenant that may enter freely for a while owes nothing to a rate that comes later.
#[test]
fn an_admission_rate_that_was_taken_away_is_forgotten() {
    let mut schedule = schedule(1);
    let rate = limited(Some(Rate::sliding(1, SECOND).unwrap()));
    schedule.set_tenant(NOW, 1, rate).unwrap();
    admit(&mut schedule, NOW);
    assert!(schedule.may_admit(NOW, &Entry::of(1u32)).is_err());
    assert!(schedule.unset_tenant(NOW, &1));
    admit(&mut schedule, NOW);
    schedule.set_tenant(NOW, 1, rate).unwrap();
    admit(&mut schedule, NOW);
    assert!(schedule.may_admit(NOW, &Entry::of(1u32)).is_err());
}

/// Several starts of one tenant are there before they are all taken back. One that is away meanwhile
/// comes back to where it was: it has as much as the other had at once, before that has more.
#[test]
fn starts_that_are_taken_back_together_cost_one_who_is_away_nothing() {
    let (dear, cheap, throttled) = (1u32, 2u32, 3u32);
    for reversed in [false, true] {
        let mut schedule = schedule(6);
        for _ in 0..2 {
            schedule.admit(NOW, Entry::of(dear).cost(50), dear).unwrap();
        }
        for _ in 0..80 {
            schedule.admit(NOW, Entry::of(cheap).cost(1).key(1u32), cheap).unwrap();
        }
        for _ in 0..4 {
            schedule.admit(NOW, Entry::of(throttled).cost(10), throttled).unwrap();
        }
        let mut start = || {
            let Next::Start(id) = schedule.next(NOW) else { panic!("nothing starts") };
            (id, *schedule.get(id).unwrap())
        };
        let mut started: Vec<_> = (0..6).map(|_| start()).collect();
        if reversed {
            started.reverse();
        }
        for (id, _) in started.iter().filter(|(_, tenant)| *tenant == throttled) {
            assert!(schedule.postpone(NOW, *id, Moment::FAR));
        }
        let runs = started.iter().find(|(_, tenant)| *tenant == cheap);
        let (mut id, mut count) = (runs.unwrap().0, 0);
        schedule.set_concurrency(2).unwrap();
        loop {
            schedule.complete(id, None);
            let Next::Start(next) = schedule.next(NOW) else { panic!("nothing starts") };
            if *schedule.get(next).unwrap() == dear {
                break;
            }
            (id, count) = (next, count + 1);
        }
        assert!((48..=50).contains(&count), "{count} of the cheap one's, reversed: {reversed}");
    }
}
