//! Every interleaving of a few threads at a sluice's line: letting in, telling callers,
//! pulling, giving up, waiting at the door, putting back, closing. Run by `cargo xtask test`.

use super::callers::Heard;
use super::ledger::Ledger;
use super::line::{Line as LineOf, Pulled, Runner};
use super::watch::Until;
use super::workers::{Back, Ran};
use super::{Entry, Overload};
use loom::future::block_on;
use loom::sync::Arc as Shared;
use loom::thread;
use sluicegate_schedule::{ItemId, Limits, Moment};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

const RAN: Ran = Ran { time: Duration::ZERO, cost: 0 };
const NOW: Moment = Moment::ZERO;

type Line = LineOf<u32>;

fn line(concurrency: u32, capacity: u32) -> Shared<Line> {
    let limits = Limits::new(concurrency, capacity).build().unwrap();
    Shared::new(Line::new(limits, None, Ledger::new(false), NOW))
}

fn entry() -> Entry {
    Entry::of("tenant")
}

fn admit(line: &Line, value: u32) -> Option<ItemId> {
    line.admit(NOW, entry(), value, Overload::Queue).result.ok()
}

fn pull(line: &Line) -> Option<Pulled<u32>> {
    let mut puller = line.puller();
    block_on(poll_fn(|poller| puller.look(NOW, poller.waker()).result))
}

/// Waits for the next, and gives up before it is called again.
fn look_once(line: &Line) -> Option<Pulled<u32>> {
    match line.puller().look(NOW, Waker::noop()).result {
        Poll::Ready(pulled) => pulled,
        Poll::Pending => None,
    }
}

fn finish(line: &Line, id: ItemId) {
    let () = line.finish(NOW, id, RAN).result;
}

fn run(line: &Line) -> Option<u32> {
    let pulled = pull(line)?;
    finish(line, pulled.id);
    Some(pulled.value)
}

/// A caller's item that is let in at once.
fn enter(line: &Line) -> ItemId {
    let knocked = line.door().knock(NOW, &mut Some(entry()), Overload::Queue, Waker::noop());
    match knocked.result {
        Poll::Ready(Ok(entered)) => entered.id,
        other => panic!("{other:?}"),
    }
}

/// One that waits at the door until it is let in.
fn enter_waiting(line: &Line) -> Option<ItemId> {
    let (mut door, mut entry) = (line.door(), Some(entry()));
    let knock =
        poll_fn(|poller| door.knock(NOW, &mut entry, Overload::Wait, poller.waker()).result);
    block_on(knock).ok().map(|entered| entered.id)
}

/// Waits for the turn of a caller's item.
fn hear(line: &Line, id: ItemId) -> Heard {
    block_on(poll_fn(|poller| match line.hear(NOW, id, poller.waker()) {
        Heard::NotYet => Poll::Pending,
        heard => Poll::Ready(heard),
    }))
}

fn withdraw_caller(line: &Line, id: ItemId) -> bool {
    line.withdraw_caller(NOW, id).result
}

fn close(line: &Line) -> Vec<u32> {
    line.close(NOW).result.0
}

fn spawn<R: 'static>(
    line: &Shared<Line>,
    run: impl FnOnce(&Line) -> R + 'static,
) -> thread::JoinHandle<R> {
    let line = Shared::clone(line);
    thread::spawn(move || run(&line))
}

fn assert_empty(line: &Line) {
    let left = line.snapshot(NOW);
    assert_eq!((left.queued, left.running, left.lingering, left.keys), (0, 0, 0, 0));
    assert_eq!(line.view(|fair| fair.tenants().count()), 0);
    let waiting = line.attend(|state| (state.idle_workers.count(), state.door.is_empty()));
    assert_eq!(waiting, (0, true));
}

/// Three threads that all wait have too many interleavings to run them all: those in which threads
/// are interrupted up to so often, wherever that is.
fn model(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

#[test]
fn loom_each_value_reaches_exactly_one_worker() {
    model(3, || {
        let line = line(2, 10);
        let workers = [(); 2].map(|()| spawn(&line, |line| run(line).unwrap()));
        admit(&line, 1).unwrap();
        admit(&line, 2).unwrap();
        let mut pulled = workers.map(|worker| worker.join().unwrap());
        pulled.sort_unstable();
        assert_eq!(pulled, [1, 2]);
        assert_empty(&line);
    });
}

/// One call for two values: whoever looks calls the next.
#[test]
fn loom_a_batch_wakes_as_many_workers_as_it_has_values() {
    model(3, || {
        let line = line(2, 10);
        let workers = [(); 2].map(|()| spawn(&line, |line| pull(line).unwrap().id));
        let batch = vec![(entry(), 1), (entry(), 2)];
        line.admit_all(NOW, batch, Overload::Queue).result.unwrap();
        let ids = workers.map(|worker| worker.join().unwrap());
        assert_ne!(ids[0], ids[1]);
        ids.into_iter().for_each(|id| finish(&line, id));
        assert_empty(&line);
    });
}

#[test]
fn loom_a_worker_is_woken_when_a_place_is_free_again() {
    loom::model(|| {
        let line = line(1, 10);
        admit(&line, 1).unwrap();
        admit(&line, 2).unwrap();
        let first = pull(&line).unwrap();
        let other = spawn(&line, run);
        finish(&line, first.id);
        assert_eq!(other.join().unwrap(), Some(2));
        assert_empty(&line);
    });
}

/// Woken, dropped, and another who takes the next with the end of the last.
#[test]
fn loom_a_worker_that_gives_up_loses_nothing_for_the_others() {
    model(3, || {
        let line = line(1, 10);
        admit(&line, 1).unwrap();
        let first = pull(&line).unwrap();
        let stays = spawn(&line, run);
        let leaves = spawn(&line, |line| {
            let pulled = look_once(line)?;
            finish(line, pulled.id);
            Some(pulled.value)
        });
        admit(&line, 2).unwrap();
        let next = line.finish_and_pull(NOW, first.id, RAN).result;
        let mine = next.map(|next| {
            finish(&line, next.id);
            next.value
        });
        let left = leaves.join().unwrap();
        // If another has it, there is one more for the one that stays.
        if mine.or(left).is_some() {
            admit(&line, 3).unwrap();
        }
        let stayed = stays.join().unwrap();
        assert_eq!(stayed, Some(if mine.or(left).is_some() { 3 } else { 2 }));
        assert_empty(&line);
    });
}

#[test]
fn loom_a_caller_is_told_or_withdrawn_and_its_place_goes_on() {
    model(4, || {
        let line = line(1, 10);
        let first = enter(&line);
        assert!(matches!(hear(&line, first), Heard::Turn(_)));
        let (second, third) = (enter(&line), enter(&line));
        let leaves = spawn(&line, move |line| {
            // It may have been told by now: then it is revoked.
            assert!(withdraw_caller(line, second));
        });
        let stays = spawn(&line, move |line| {
            assert!(matches!(hear(line, third), Heard::Turn(_)));
            finish(line, third);
        });
        finish(&line, first);
        leaves.join().unwrap();
        stays.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_a_caller_hears_of_its_turn_or_of_the_close() {
    loom::model(|| {
        let line = line(1, 10);
        let first = enter(&line);
        assert!(matches!(hear(&line, first), Heard::Turn(_)));
        let second = enter(&line);
        let caller = spawn(&line, move |line| match hear(line, second) {
            Heard::Turn(_) => finish(line, second),
            heard => assert_eq!(heard, Heard::Closed),
        });
        let closer = spawn(&line, close);
        finish(&line, first);
        assert!(closer.join().unwrap().is_empty());
        caller.join().unwrap();
        assert_empty(&line);
    });
}

/// The end of a turn is only noted while nobody waits: whoever begins to wait just then hears of it.
#[test]
fn loom_an_end_that_is_noted_reaches_whoever_begins_to_wait() {
    model(3, || {
        let line = line(1, 10);
        let runs = enter(&line);
        assert_eq!(hear(&line, runs), Heard::Turn(NOW));
        let waits = spawn(&line, |line| {
            let id = enter(line);
            assert_eq!(hear(line, id), Heard::Turn(NOW));
            finish(line, id);
        });
        let drains = spawn(&line, |line| block_on(line.watch(Until::Empty)));
        finish(&line, runs);
        waits.join().unwrap();
        drains.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_a_caller_and_a_worker_share_a_place() {
    model(4, || {
        let line = line(1, 10);
        let worker = spawn(&line, |line| run(line).unwrap());
        let caller = spawn(&line, |line| {
            let id = enter(line);
            assert!(matches!(hear(line, id), Heard::Turn(_)));
            finish(line, id);
        });
        admit(&line, 1).unwrap();
        assert_eq!(worker.join().unwrap(), 1);
        caller.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_whoever_leaves_the_door_loses_no_room_for_the_next() {
    model(3, || {
        let line = line(1, 1);
        let first = enter(&line);
        let second = enter(&line);
        let stays = spawn(&line, |line| {
            let id = enter_waiting(line).unwrap();
            assert!(matches!(hear(line, id), Heard::Turn(_)));
            finish(line, id);
        });
        let leaves = spawn(&line, |line| {
            // Called in or not, it looks once and goes.
            let mut door = line.door();
            let knocked = door.knock(NOW, &mut Some(entry()), Overload::Wait, Waker::noop());
            drop(door);
            if let Poll::Ready(Ok(entered)) = knocked.result {
                assert!(withdraw_caller(line, entered.id));
            }
        });
        finish(&line, first);
        leaves.join().unwrap();
        assert!(matches!(hear(&line, second), Heard::Turn(_)));
        finish(&line, second);
        stays.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_those_at_the_door_hear_of_the_close() {
    loom::model(|| {
        let line = line(1, 1);
        let first = enter(&line);
        let second = enter(&line);
        let waits = spawn(&line, |line| match enter_waiting(line) {
            Some(id) => match hear(line, id) {
                Heard::Turn(_) => finish(line, id),
                heard => assert_eq!(heard, Heard::Closed),
            },
            None => assert!(line.attend(|state| state.closed)),
        });
        assert!(withdraw_caller(&line, second));
        assert!(close(&line).is_empty());
        finish(&line, first);
        waits.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_closing_returns_what_was_not_pulled() {
    model(3, || {
        let line = line(1, 10);
        admit(&line, 1).unwrap();
        let worker = spawn(&line, |line| [run(line), run(line)]);
        let source = spawn(&line, |line| admit(line, 2).is_some());
        let returned = close(&line);
        let admitted = source.join().unwrap();
        let pulled = worker.join().unwrap();
        let mut all: Vec<u32> = pulled.into_iter().flatten().chain(returned).collect();
        all.sort_unstable();
        assert_eq!(all, if admitted { vec![1, 2] } else { vec![1] });
        assert_eq!(run(&line), None);
        assert_empty(&line);
    });
}

#[test]
fn loom_closing_meets_a_value_that_comes_back() {
    loom::model(|| {
        let line = line(1, 10);
        admit(&line, 1).unwrap();
        let Pulled { id, value, .. } = pull(&line).unwrap();
        let closer = spawn(&line, close);
        let back = Back::Postpone { until: Moment::FAR };
        let put_back = line.put_back(NOW, id, back, Runner::Worker(Some(value)));
        let kept = match put_back.result {
            Ok(()) => None,
            Err(Runner::Worker(value)) => value,
            Err(other) => panic!("{other:?}"),
        };
        // Whoever comes second returns it, and only one of them does.
        let returned = closer.join().unwrap();
        assert_eq!(kept.into_iter().chain(returned).collect::<Vec<_>>(), [1]);
        assert_empty(&line);
    });
}

#[test]
fn loom_withdrawing_meets_a_worker() {
    loom::model(|| {
        let line = line(1, 10);
        let id = admit(&line, 1).unwrap();
        admit(&line, 2).unwrap();
        let worker = spawn(&line, |line| run(line).unwrap());
        let withdrawn = line.withdraw(NOW, id).result;
        let pulled = worker.join().unwrap();
        match withdrawn {
            Some(value) => assert_eq!((value, pulled), (1, 2)),
            None => assert_eq!((pulled, run(&line)), (1, Some(2))),
        }
        assert_empty(&line);
    });
}

#[test]
fn loom_whoever_waits_for_room_is_woken() {
    loom::model(|| {
        let line = line(1, 1);
        admit(&line, 1).unwrap();
        let source = spawn(&line, |line| {
            block_on(line.watch(Until::Room(1)));
            admit(line, 2).unwrap();
        });
        assert_eq!(run(&line), Some(1));
        source.join().unwrap();
        assert_eq!(run(&line), Some(2));
        assert_empty(&line);
    });
}

#[test]
fn loom_a_key_that_is_given_up_wakes_whoever_waits() {
    loom::model(|| {
        let line = line(1, 10);
        for value in [1, 2] {
            let entry = Entry::of("tenant").key("same");
            line.admit(NOW, entry, value, Overload::Queue).result.unwrap();
        }
        let first = pull(&line).unwrap();
        assert!(line.linger(NOW, first.id, RAN, false).result.is_none());
        let worker = spawn(&line, run);
        line.depart(NOW, first.id).result;
        block_on(line.watch(Until::Empty));
        assert_eq!(worker.join().unwrap(), Some(2));
        assert_empty(&line);
    });
}
