//! Faults that other systems have had (specification, 12), as far as they concern the schedule.

use std::time::Duration;

use sluicegate_schedule::{
    Class, Entry, ItemId, Limits, Moment, Next, Schedule, TenantLimits, Why,
};

type Tested = Schedule<u32, &'static str, &'static str>;

const NOW: Moment = Moment::ZERO;

fn schedule(concurrency: u32) -> Tested {
    Schedule::new(Limits::new(concurrency, 10).build().expect("sound"), NOW)
}

fn entry(key: &'static str) -> Entry<&'static str, &'static str> {
    Entry::of("tenant").key(key)
}

fn admit(schedule: &mut Tested, entry: Entry<&'static str, &'static str>, value: u32) -> ItemId {
    schedule.admit(NOW, entry, value).expect("room")
}

/// The values that start now, until nothing more does.
fn starts(schedule: &mut Tested, now: Moment) -> Vec<(ItemId, u32)> {
    let mut started = Vec::new();
    while let Next::Start(id) = schedule.next(now) {
        started.push((id, schedule.get(id).copied().expect("it runs")));
    }
    started
}

/// "High priority that does not wake a worker parked on the regular queue."
#[test]
fn high_priority_is_next_at_once() {
    // On an idle pool, on a busy one, and behind others in the queue and in its own key.
    let mut idle = schedule(1);
    assert_eq!(idle.next(NOW), Next::Idle);
    let urgent = admit(&mut idle, entry("k").class(Class::System), 1);
    assert_eq!(idle.next(NOW), Next::Start(urgent));

    let mut busy = schedule(1);
    let runs = admit(&mut busy, entry("k"), 0);
    assert_eq!(busy.next(NOW), Next::Start(runs));
    for n in 1..5 {
        admit(&mut busy, entry("k"), n);
        admit(&mut busy, entry("other").class(Class::Low), n);
    }
    assert_eq!(busy.next(NOW), Next::Idle);
    let urgent = admit(&mut busy, entry("k").class(Class::System), 9);
    busy.complete(runs, None);
    assert_eq!(busy.next(NOW), Next::Start(urgent));
}

/// The same with room to run more: it does not even wait for the one that runs.
#[test]
fn high_priority_takes_a_free_slot() {
    let mut schedule = schedule(2);
    let runs = admit(&mut schedule, entry("k"), 0);
    assert_eq!(schedule.next(NOW), Next::Start(runs));
    admit(&mut schedule, entry("l").class(Class::Low), 1);
    let urgent = admit(&mut schedule, entry("m").class(Class::System), 2);
    assert_eq!(schedule.next(NOW), Next::Start(urgent));
}

/// "Stays tracked, and every redelivery is refused as a duplicate": a refused item leaves nothing.
#[test]
fn a_refused_item_leaves_nothing_behind() {
    let one_each = TenantLimits::new().max_queued(1);
    let limits = Limits::new(1, 2).each_tenant(one_each).build().unwrap();
    let mut schedule: Tested = Schedule::new(limits, NOW);
    admit(&mut schedule, Entry::of("a").key("k"), 0);
    let of_tenant = |schedule: &mut Tested| schedule.admit(NOW, Entry::of("a").key("new"), 7);
    let of_all = |schedule: &mut Tested| schedule.admit(NOW, Entry::of("c").key("new"), 7);
    let draining = |schedule: &mut Tested| schedule.admit(NOW, Entry::of("d").key("new"), 7);
    check_refused(&mut schedule, of_tenant);
    admit(&mut schedule, Entry::of("b").key("k"), 1);
    check_refused(&mut schedule, of_all);
    schedule.stop_admission();
    check_refused(&mut schedule, draining);
}

fn check_refused<E>(schedule: &mut Tested, admit: impl Fn(&mut Tested) -> Result<ItemId, E>) {
    let seen = |schedule: &Tested| {
        let mut tenants: Vec<_> = schedule.tenants().map(|of| (of.tenant, of.queued)).collect();
        tenants.sort_unstable();
        (schedule.snapshot(NOW), tenants)
    };
    let before = seen(schedule);
    assert!(admit(schedule).is_err());
    assert_eq!(seen(schedule), before);
}

/// "A group queue removed by its idle thread while a submitter holds a handle to it: the message
/// never runs." Whether the last item of a key ends before or after the next one comes, that runs.
#[test]
fn an_item_that_comes_as_its_key_falls_idle_runs() {
    for admitted_first in [true, false] {
        let mut schedule = schedule(4);
        let mut runs = admit(&mut schedule, entry("k"), 0);
        for n in 1..100 {
            assert_eq!(schedule.next(NOW), Next::Start(runs));
            let next = if admitted_first {
                let next = admit(&mut schedule, entry("k"), n);
                assert_eq!(schedule.next(NOW), Next::Idle);
                assert_eq!(schedule.why(NOW, next), Some(Why::KeyBusy { head: runs }));
                schedule.complete(runs, None);
                next
            } else {
                schedule.complete(runs, None);
                assert_eq!(schedule.snapshot(NOW).keys, 0);
                admit(&mut schedule, entry("k"), n)
            };
            assert_eq!(schedule.snapshot(NOW).keys, 1);
            runs = next;
        }
    }
}

/// "drain() that clears queues but leaves messages tracked."
#[test]
fn a_drain_hands_back_everything_and_leaves_nothing_tracked() {
    let mut schedule = schedule(2);
    let ids: Vec<_> =
        (0..6).map(|n| admit(&mut schedule, entry(["k", "l"][n % 2]), n as u32)).collect();
    let running = starts(&mut schedule, NOW);
    admit(&mut schedule, Entry::of("other"), 6);
    assert_eq!(running.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [0, 1]);
    // One of them is put back, for ever: also that is handed back.
    assert!(schedule.retry(NOW, running[0].0, Moment::FAR, None));
    schedule.stop_admission();
    assert_eq!(schedule.take_waiting(), [2, 3, 4, 5, 6, 0]);
    assert!(ids.iter().filter(|id| schedule.get(**id).is_some()).eq([&running[1].0]));
    assert_eq!(schedule.take_waiting(), [0; 0]);
    assert_eq!(schedule.complete(running[1].0, None), Some(1));
    let left = schedule.snapshot(NOW);
    assert_eq!((left.queued, left.running, left.keys), (0, 0, 0));
    assert_eq!(schedule.tenants().count(), 0);
}

/// "Delays computed, then overwritten by a second nack."
#[test]
fn a_delay_is_kept_to_the_nanosecond_and_never_overwritten() {
    let mut schedule = schedule(4);
    let id = admit(&mut schedule, entry("k"), 0);
    let behind = admit(&mut schedule, entry("k"), 1);
    assert_eq!(schedule.next(NOW), Next::Start(id));
    let until = NOW + Duration::from_millis(1500);
    assert!(schedule.retry(NOW, id, until, None));
    // It does not run any more, so it can be neither delayed again nor ended.
    assert!(!schedule.retry(NOW, id, Moment::FAR, None));
    assert_eq!(schedule.complete(id, None), None);
    assert_eq!(schedule.revoke(id), None);
    let just_before = Moment::from_nanos(until.as_nanos() - 1);
    for now in [NOW, just_before] {
        assert_eq!(schedule.next(now), Next::At(until));
        assert_eq!(schedule.why(now, behind), Some(Why::KeyRetrying { head: id, until }));
    }
    assert_eq!(schedule.next(until), Next::Start(id));
    // A second delay is its own, be it shorter.
    let again = until + Duration::from_nanos(1);
    assert!(schedule.retry(until, id, again, None));
    assert_eq!(schedule.next(until), Next::At(again));
    assert_eq!(schedule.next(again), Next::Start(id));
}

/// The delay of one item is not the delay of another.
#[test]
fn each_key_has_a_delay_of_its_own() {
    let mut schedule = schedule(4);
    let delays = [30, 10, 20];
    for (key, n) in ["a", "b", "c"].into_iter().zip(0..) {
        admit(&mut schedule, entry(key), n);
    }
    let at = |ms| NOW + Duration::from_millis(ms);
    for ((id, _), delay) in starts(&mut schedule, NOW).into_iter().zip(delays) {
        assert!(schedule.retry(NOW, id, at(delay), None));
    }
    for (ms, value) in [(10, 1), (20, 2), (30, 0)] {
        assert_eq!(schedule.next(at(ms - 1)), Next::At(at(ms)));
        assert!(matches!(starts(&mut schedule, at(ms))[..], [(_, started)] if started == value));
    }
}

/// An item that failed and is tried again keeps its place: the tail of its key never overtakes.
#[test]
fn the_tail_never_overtakes_a_head_that_failed() {
    let mut schedule = schedule(4);
    for n in 0..3 {
        admit(&mut schedule, entry("k"), n);
    }
    admit(&mut schedule, entry("k").class(Class::Low), 9);
    let mut now = NOW;
    let mut order = Vec::new();
    for step in 0..12 {
        let [(id, value)] = starts(&mut schedule, now)[..] else { panic!("one at a time") };
        order.push(value);
        if step % 3 == 2 {
            schedule.complete(id, None);
        } else {
            now += Duration::from_millis(10);
            assert!(schedule.retry(now, id, now + Duration::from_millis(step % 2), None));
            // What comes now, whatever its class, comes behind.
            if step == 0 {
                schedule.admit(now, entry("k").class(Class::System), 5).unwrap();
            }
            now += Duration::from_millis(1);
        }
    }
    assert_eq!(order, [0, 0, 0, 5, 5, 5, 1, 1, 1, 2, 2, 2]);
}
