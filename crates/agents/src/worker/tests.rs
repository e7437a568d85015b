//! The table of workers: each rule of it, without a process.

use super::*;
use crate::settings::Settings;

fn workers(change: impl FnOnce(&mut Settings)) -> Workers {
    let mut settings =
        Settings { mode: Mode::Persistent, max_workers: 2, min_workers: 0, ..Settings::default() };
    change(&mut settings);
    Workers::new(Bounds::of(&settings.check().unwrap(), 0))
}

fn of(session: &str) -> Served {
    Served { request: "r".into(), tenant: "web:1".into(), session: session.into(), begun: false }
}

fn state(workers: &Workers, number: WorkerNumber) -> Option<WorkerState> {
    let id = format!("worker-{number}");
    workers.views().into_iter().find(|view| *view.id == *id).map(|view| view.state)
}

/// A worker that served a session and is idle.
fn idle(workers: &mut Workers, now: Instant, session: &str) -> WorkerNumber {
    let Assigned::Start(number) = workers.assign(now, &of(session), true) else { panic!() };
    workers.started(now, number, 1);
    assert_eq!(workers.turn_ended(now, number, true, true), AfterTurn::Idle);
    number
}

/// Paper 001, section 1: `WorkerState`.
#[test]
fn every_state_is_reached() {
    let (mut workers, now) = (workers(|_| {}), Instant::now());
    let Assigned::Start(one) = workers.assign(now, &of("s"), true) else { panic!() };
    assert_eq!(state(&workers, one), Some(WorkerState::Starting));
    workers.started(now, one, 7);
    assert_eq!(state(&workers, one), Some(WorkerState::Busy));
    workers.turn_ended(now, one, true, true);
    assert_eq!(state(&workers, one), Some(WorkerState::Idle));
    assert!(workers.retire(one));
    assert_eq!(state(&workers, one), Some(WorkerState::Draining));
    workers.stuck(one);
    assert_eq!(state(&workers, one), Some(WorkerState::Stuck));
    assert_eq!(workers.gone(one).map(|view| view.state), Some(WorkerState::Terminated));
    assert!(workers.is_empty());
}

/// `docs/rules.md#agents-4`
#[test]
fn a_session_has_its_worker() {
    let (mut workers, now) = (workers(|_| {}), Instant::now());
    let one = idle(&mut workers, now, "a");
    assert_eq!(workers.assign(now, &of("a"), true), Assigned::Reuse(one));
    workers.draining(one);
    // Two on one session's files would spoil them: even with room it waits.
    assert_eq!(workers.assign(now, &of("a"), true), Assigned::Wait(None));
    workers.gone(one);
    assert!(matches!(workers.assign(now, &of("a"), true), Assigned::Start(_)));
}

/// `docs/rules.md#agents-1`
#[test]
fn a_full_pool_ends_the_worker_that_was_idle_for_longest() {
    let (mut workers, now) = (workers(|_| {}), Instant::now());
    let one = idle(&mut workers, now, "a");
    let two = idle(&mut workers, now + Duration::from_secs(1), "b");
    let evicted = Assigned::Wait(Some((one, Recycled::Evicted)));
    assert_eq!(workers.assign(now, &of("c"), true), evicted);
    assert!(workers.retire(one));
    assert_eq!(workers.assign(now, &of("c"), false), Assigned::Wait(None));
    workers.gone(one);
    assert!(matches!(workers.assign(now, &of("c"), false), Assigned::Start(_)));
    assert_eq!(state(&workers, two), Some(WorkerState::Idle));
}

/// Paper 001, section 4.7. `docs/rules.md#agents-5`
#[test]
fn a_worker_is_replaced() {
    let now = Instant::now();
    type Case = (fn(&mut Settings), &'static [bool], AfterTurn);
    let cases: [Case; 4] = [
        (|_| {}, &[true], AfterTurn::Idle),
        (
            |s| s.max_requests_per_worker = 2,
            &[true, true],
            AfterTurn::Recycle(Recycled::MaxRequests),
        ),
        (|_| {}, &[false, false, false], AfterTurn::Recycle(Recycled::ErrorThreshold)),
        (|_| {}, &[false, false, true, false, false], AfterTurn::Idle),
    ];
    for (change, turns, expected) in cases {
        let mut workers = workers(change);
        let Assigned::Start(one) = workers.assign(now, &of("s"), true) else { panic!() };
        workers.started(now, one, 1);
        let (last, before) = turns.split_last().unwrap();
        for ok in before {
            assert_eq!(workers.turn_ended(now, one, *ok, true), AfterTurn::Idle);
            assert_eq!(workers.assign(now, &of("s"), true), Assigned::Reuse(one));
        }
        assert_eq!(workers.turn_ended(now, one, *last, true), expected);
    }
}

/// Paper 001, section 4.7: "on idle timeout (and worker count > minWorkers)". `docs/rules.md#agents-5`
#[test]
fn idle_workers_end_but_for_the_least() {
    let (mut workers, now) = (workers(|s| s.min_workers = 1), Instant::now());
    let one = idle(&mut workers, now, "a");
    let two = idle(&mut workers, now + Duration::from_secs(9), "b");
    let timeout = Duration::from_secs(300);
    assert_eq!(workers.due(now), (vec![], Some(now + timeout)));
    assert_eq!(workers.due(now + timeout), (vec![(one, Recycled::IdleTimeout)], None));
    assert!(workers.retire(one) && workers.gone(one).is_some());
    assert_eq!(workers.due(now + 9 * timeout), (vec![], None));
    assert_eq!(state(&workers, two), Some(WorkerState::Idle));
}

/// `docs/rules.md#agents-5`
#[test]
fn another_command_line_replaces_workers() {
    let (mut workers, now) = (workers(|_| {}), Instant::now());
    let one = idle(&mut workers, now, "a");
    let settings = Settings { mode: Mode::Persistent, ..Settings::default() }.check().unwrap();
    workers.set_bounds(Bounds::of(&settings, 1));
    assert_eq!(workers.due(now).0, [(one, Recycled::CommandChanged)]);
    let asked = workers.assign(now, &of("a"), true);
    assert_eq!(asked, Assigned::Wait(Some((one, Recycled::CommandChanged))));
}

/// One that ends already is still there when the turn of another ends.
///
/// `docs/rules.md#agents-5`
#[test]
fn one_place_less_ends_one_worker() {
    let (mut workers, now) = (workers(|s| s.max_workers = 2), Instant::now());
    let one = idle(&mut workers, now, "a");
    let two = idle(&mut workers, now, "b");
    assert_eq!(workers.assign(now, &of("b"), true), Assigned::Reuse(two));
    let fewer = Settings { mode: Mode::Persistent, max_workers: 1, ..Settings::default() };
    workers.set_bounds(Bounds::of(&fewer.check().unwrap(), 0));
    assert_eq!(workers.due(now).0, [(one, Recycled::Stopped)]);
    assert!(workers.retire(one));
    assert_eq!(workers.turn_ended(now, two, true, true), AfterTurn::Idle);
}

#[test]
fn workers_are_started_ahead_and_not_too_eagerly() {
    let (mut workers, now) = (workers(|s| s.min_workers = 1), Instant::now());
    let one = workers.start_ahead(now).unwrap().unwrap();
    assert_eq!(workers.start_ahead(now), Ok(None));
    workers.not_started(now);
    workers.gone(one);
    let again = workers.start_ahead(now).unwrap_err();
    assert_eq!(again, now + Duration::from_secs(2));
    // One that comes up and ends before its first turn is no better, and the pause grows.
    let two = workers.start_ahead(again).unwrap().unwrap();
    workers.started(again, two, 1);
    workers.ended(again, two);
    workers.gone(two);
    let later = workers.start_ahead(again).unwrap_err();
    assert_eq!(later, again + Duration::from_secs(4));
    // A turn ends that; the end of a worker that had one is no failed start.
    let one = idle(&mut workers, again, "a");
    workers.ended(again, one);
    workers.gone(one);
    assert!(workers.start_ahead(again).unwrap().is_some());
}

/// `docs/rules.md#agents-1`
#[test]
fn a_place_that_a_turn_waits_for_is_not_taken_ahead() {
    let (mut workers, now) = (workers(|s| s.min_workers = 2), Instant::now());
    for _ in 0..2 {
        let ahead = workers.start_ahead(now).unwrap().unwrap();
        workers.reserve(ahead, format!("spare {ahead}").into());
        workers.started(now, ahead, 1);
    }
    let Assigned::Wait(Some((evicted, _))) = workers.assign(now, &of("s"), true) else { panic!() };
    workers.set_waiting(true);
    assert!(workers.retire(evicted) && workers.gone(evicted).is_some());
    assert_eq!(workers.start_ahead(now), Ok(None));
    assert!(matches!(workers.assign(now, &of("s"), false), Assigned::Start(_)));
    workers.set_waiting(false);
}

#[test]
fn what_was_started_ahead_serves_a_new_session() {
    let (mut workers, now) = (workers(|s| s.min_workers = 1), Instant::now());
    let one = workers.start_ahead(now).unwrap().unwrap();
    workers.started(now, one, 1);
    let begun = Served { begun: true, ..of("old") };
    assert!(matches!(workers.assign(now, &begun, true), Assigned::Start(_)));
    assert_eq!(workers.assign(now, &of("new"), true), Assigned::Reuse(one));
}

#[test]
fn a_session_that_was_started_ahead_is_given_once() {
    let (mut workers, now) = (workers(|s| s.min_workers = 1), Instant::now());
    let one = workers.start_ahead(now).unwrap().unwrap();
    workers.reserve(one, "spare".into());
    workers.started(now, one, 1);
    assert_eq!(workers.take_spare().as_deref(), Some("spare"));
    assert_eq!(workers.take_spare(), None);
    workers.give_back_spare("spare");
    assert_eq!(workers.take_spare().as_deref(), Some("spare"));
    assert_eq!(workers.assign(now, &of("spare"), true), Assigned::Reuse(one));
}

/// It may come up, answer, or give its turn back before it is gone.
#[test]
fn a_worker_that_is_killed_takes_no_more_turns() {
    let now = Instant::now();
    type Meanwhile = fn(&mut Workers, Instant, WorkerNumber);
    let cases: [Meanwhile; 3] = [
        |_, _, _| {},
        |workers, now, one| {
            let after = workers.turn_ended(now, one, true, true);
            assert_eq!(after, AfterTurn::Recycle(Recycled::Stopped));
        },
        |workers, _, one| workers.not_asked(one),
    ];
    for (case, meanwhile) in cases.into_iter().enumerate() {
        let mut workers = workers(|_| {});
        let one = idle(&mut workers, now, "a");
        if case > 0 {
            assert_eq!(workers.assign(now, &of("a"), true), Assigned::Reuse(one));
        }
        workers.killed(one);
        meanwhile(&mut workers, now, one);
        assert_eq!(workers.assign(now, &of("a"), true), Assigned::Wait(None), "{case}");
        assert!(workers.leaves(one));
    }
    let mut workers = workers(|s| s.min_workers = 1);
    let ahead = workers.start_ahead(now).unwrap().unwrap();
    workers.killed(ahead);
    workers.started(now, ahead, 1);
    assert_eq!(state(&workers, ahead), Some(WorkerState::Draining));
}
