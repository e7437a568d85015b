//! Every interleaving of a few threads at a sluice's line: letting in, pulling, giving up, putting
//! back, making room, closing. Run by `cargo xtask test`.

use super::crew::{Crew, Pulled};
use crate::Entry;
use crate::line::watch::Until;
use crate::line::{Back, Line as LineOf};
use loom::future::block_on;
use loom::sync::Arc as Shared;
use loom::thread;
use sluicegate_schedule::{ItemId, Limits, Moment};
use std::future::poll_fn;
use std::task::Waker;
use std::time::Duration;

const NOW: Moment = Moment::ZERO;

type Line = LineOf<Crew<u32>>;

fn line(concurrency: u32, capacity: u32) -> Shared<Line> {
    let limits = Limits::new(concurrency, capacity).build().unwrap();
    Shared::new(Line::new(limits, Crew::new(), NOW))
}

fn admit(line: &Line, value: u32) -> Option<ItemId> {
    line.admit(NOW, Entry::of("tenant"), value).result.ok()
}

fn pull(line: &Line) -> Option<Pulled<u32>> {
    let mut place = line.place();
    block_on(poll_fn(|poller| place.look(NOW, poller.waker()).result))
}

/// Waits for the next, and gives up before it is called again.
fn look_once(line: &Line) -> Option<Pulled<u32>> {
    let seen = line.place().look(NOW, Waker::noop()).result;
    if let std::task::Poll::Ready(pulled) = seen { pulled } else { None }
}

fn finish(line: &Line, pulled: &Pulled<u32>) {
    line.finish(NOW, pulled.id, Duration::ZERO, false).result
}

fn run(line: &Line) -> Option<u32> {
    let pulled = pull(line)?;
    finish(line, &pulled);
    Some(pulled.value)
}

fn assert_empty(line: &Line) {
    let left = line.snapshot(NOW);
    assert_eq!((left.queued, left.running, left.lingering, left.keys), (0, 0, 0, 0));
    assert_eq!(line.view(|fair| fair.tenants().count()), 0);
}

/// Three threads that all wait have too many interleavings to run them all: those in which threads
/// are interrupted up to so often, wherever that is.
fn model(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

#[test]
fn loom_each_value_reaches_exactly_one_puller() {
    model(4, || {
        let line = line(2, 10);
        let pullers = [(); 2].map(|()| {
            let line = Shared::clone(&line);
            thread::spawn(move || run(&line).unwrap())
        });
        admit(&line, 1).unwrap();
        admit(&line, 2).unwrap();
        let mut pulled = pullers.map(|puller| puller.join().unwrap());
        pulled.sort_unstable();
        assert_eq!(pulled, [1, 2]);
        assert_empty(&line);
    });
}

#[test]
fn loom_a_puller_is_woken_when_a_place_is_free_again() {
    loom::model(|| {
        let line = line(1, 10);
        admit(&line, 1).unwrap();
        admit(&line, 2).unwrap();
        let first = pull(&line).unwrap();
        let other = thread::spawn({
            let line = Shared::clone(&line);
            move || run(&line)
        });
        finish(&line, &first);
        assert_eq!(other.join().unwrap(), Some(2));
        assert_empty(&line);
    });
}

#[test]
fn loom_one_that_gives_up_passes_its_call_on() {
    model(4, || {
        let line = line(1, 10);
        let stays = thread::spawn({
            let line = Shared::clone(&line);
            move || run(&line)
        });
        // It may be called for the value, and is gone by then, or takes it.
        let leaves = thread::spawn({
            let line = Shared::clone(&line);
            move || {
                if let Some(pulled) = look_once(&line) {
                    finish(&line, &pulled);
                    admit(&line, pulled.value).unwrap();
                }
            }
        });
        admit(&line, 1).unwrap();
        assert_eq!(stays.join().unwrap(), Some(1));
        leaves.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_closing_returns_what_was_not_pulled() {
    model(4, || {
        let line = line(1, 10);
        admit(&line, 1).unwrap();
        let puller = thread::spawn({
            let line = Shared::clone(&line);
            move || [run(&line), run(&line)]
        });
        let source = thread::spawn({
            let line = Shared::clone(&line);
            move || admit(&line, 2).is_some()
        });
        let returned = line.close(NOW);
        let admitted = source.join().unwrap();
        let pulled = puller.join().unwrap();
        let mut all: Vec<u32> = pulled.into_iter().flatten().chain(returned).collect();
        all.sort_unstable();
        assert_eq!(all, if admitted { vec![1, 2] } else { vec![1] });
        assert_eq!(run(&line), None);
        assert_empty(&line);
    });
}

#[test]
fn loom_pulling_giving_up_and_closing_lose_nothing() {
    model(4, || {
        let line = line(1, 10);
        let leaves = thread::spawn({
            let line = Shared::clone(&line);
            move || {
                let pulled = look_once(&line)?;
                finish(&line, &pulled);
                Some(pulled.value)
            }
        });
        let stays = thread::spawn({
            let line = Shared::clone(&line);
            move || run(&line)
        });
        admit(&line, 1).unwrap();
        let returned = line.close(NOW);
        let pulled = [leaves.join().unwrap(), stays.join().unwrap()];
        let all: Vec<u32> = pulled.into_iter().flatten().chain(returned).collect();
        assert_eq!(all, [1]);
        assert_empty(&line);
    });
}

#[test]
fn loom_closing_meets_a_value_that_comes_back() {
    loom::model(|| {
        let line = line(1, 10);
        admit(&line, 1).unwrap();
        let Pulled { id, value, .. } = pull(&line).unwrap();
        let closer = thread::spawn({
            let line = Shared::clone(&line);
            move || line.close(NOW)
        });
        let back = Back::Postpone { until: Moment::FAR };
        let put_back = line.put_back(NOW, id, back, value, |slot, value| slot.refill(value, NOW));
        let kept = put_back.result.err();
        // Whoever comes second returns it, and only one of them does.
        let returned = closer.join().unwrap();
        assert_eq!(kept.into_iter().chain(returned).collect::<Vec<_>>(), [1]);
        assert_empty(&line);
    });
}

#[test]
fn loom_withdrawing_meets_a_puller() {
    loom::model(|| {
        let line = line(1, 10);
        let id = admit(&line, 1).unwrap();
        admit(&line, 2).unwrap();
        let puller = thread::spawn({
            let line = Shared::clone(&line);
            move || run(&line).unwrap()
        });
        let withdrawn = line.withdraw(NOW, id).result;
        let pulled = puller.join().unwrap();
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
        admit(&line, 2).unwrap();
        let source = thread::spawn({
            let line = Shared::clone(&line);
            move || {
                block_on(line.watch(Until::Room(1)));
                admit(&line, 3).unwrap();
            }
        });
        assert_eq!(run(&line), Some(1));
        source.join().unwrap();
        assert_eq!([run(&line), run(&line)], [Some(2), Some(3)]);
        assert_empty(&line);
    });
}

#[test]
fn loom_a_key_that_is_given_up_wakes_whoever_waits() {
    loom::model(|| {
        let line = line(1, 10);
        let entry = || Entry::of("tenant").key("same");
        line.admit(NOW, entry(), 1).result.unwrap();
        line.admit(NOW, entry(), 2).result.unwrap();
        let first = pull(&line).unwrap();
        line.linger(NOW, first.id, Duration::ZERO).result;
        let puller = thread::spawn({
            let line = Shared::clone(&line);
            move || run(&line)
        });
        line.depart(NOW, first.id).result;
        block_on(line.watch(Until::Empty));
        assert_eq!(puller.join().unwrap(), Some(2));
        assert_empty(&line);
    });
}
