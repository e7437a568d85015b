//! Every interleaving of a few threads at the line: letting in, starting, withdrawing, finishing,
//! resizing, closing. Run by `cargo xtask test`.

use super::callers::{Callers, Standing};
use crate::Entry;
use crate::line::watch::Until;
use crate::line::{Back, Line as LineOf};
use loom::future::block_on;
use loom::sync::Arc as Shared;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sluicegate_schedule::{ItemId, Limits, Moment, Rate};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

const NOW: Moment = Moment::ZERO;

type Line = LineOf<Callers>;

fn line(concurrency: u32) -> Shared<Line> {
    Shared::new(Line::new(Limits::new(concurrency, 10).build().unwrap(), Callers, NOW))
}

fn admit(line: &Line, key: &str) -> Option<ItemId> {
    line.admit(NOW, Entry::of("tenant").key(key), false).result.ok()
}

fn turn(line: &Line, id: ItemId) -> Standing {
    block_on(poll_fn(|poller| match line.look(id, poller.waker()) {
        Standing::Waiting => Poll::Pending,
        told => Poll::Ready(told),
    }))
}

fn finish(line: &Line, id: ItemId) {
    line.finish(NOW, id, Duration::ZERO, false).result
}

fn withdraw(line: &Line, id: ItemId) {
    assert!(line.withdraw(NOW, id).result);
}

fn assert_empty(line: &Line) {
    let left = line.snapshot(NOW);
    assert_eq!((left.queued, left.running, left.keys), (0, 0, 0));
    assert_eq!(line.view(|fair| fair.tenants().count()), 0);
}

#[test]
fn loom_whoever_waits_is_woken() {
    loom::model(|| {
        let line = line(1);
        let first = admit(&line, "a").unwrap();
        let other = thread::spawn({
            let line = Shared::clone(&line);
            move || {
                let second = admit(&line, "b").unwrap();
                assert_eq!(turn(&line, second), Standing::Started);
                finish(&line, second);
            }
        });
        assert_eq!(turn(&line, first), Standing::Started);
        finish(&line, first);
        other.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_a_key_runs_one_at_a_time() {
    loom::model(|| {
        let (line, inside) = (line(2), Shared::new(AtomicUsize::new(0)));
        let run = |line: &Line, inside: &AtomicUsize| {
            let id = admit(line, "same").unwrap();
            assert_eq!(turn(line, id), Standing::Started);
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            inside.fetch_sub(1, Ordering::SeqCst);
            finish(line, id);
        };
        let other = thread::spawn({
            let (line, inside) = (Shared::clone(&line), Shared::clone(&inside));
            move || run(&line, &inside)
        });
        run(&line, &inside);
        other.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_withdrawing_what_was_just_started_passes_it_on() {
    loom::model(|| {
        let line = line(1);
        let ids = ["a", "b", "c"].map(|key| admit(&line, key).unwrap());
        // The second is withdrawn while the first ends: it may just have been told to start.
        let leaver = thread::spawn({
            let line = Shared::clone(&line);
            move || withdraw(&line, ids[1])
        });
        finish(&line, ids[0]);
        assert_eq!(turn(&line, ids[2]), Standing::Started);
        finish(&line, ids[2]);
        leaver.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_withdrawing_gives_the_token_back() {
    loom::model(|| {
        // One token, and no time passes: only a refund can let the second start.
        let rate = Rate::new(1, Duration::from_secs(1), 1).unwrap();
        let limits = Limits::new(1, 10).rate(rate).build().unwrap();
        let line = Shared::new(Line::new(limits, Callers, NOW));
        let (first, second) = (admit(&line, "a").unwrap(), admit(&line, "b").unwrap());
        let leaver = thread::spawn({
            let line = Shared::clone(&line);
            move || withdraw(&line, first)
        });
        assert_eq!(turn(&line, second), Standing::Started);
        finish(&line, second);
        leaver.join().unwrap();
        assert_empty(&line);
    });
}

#[test]
fn loom_closing_hands_back_or_lets_finish_but_loses_nothing() {
    loom::model(|| {
        let line = line(1);
        let running = admit(&line, "a").unwrap();
        let submitter = thread::spawn({
            let line = Shared::clone(&line);
            move || match admit(&line, "b") {
                None => 0,
                Some(id) => match turn(&line, id) {
                    Standing::Started => {
                        finish(&line, id);
                        0
                    }
                    _ => 1,
                },
            }
        });
        let finisher = thread::spawn({
            let line = Shared::clone(&line);
            move || finish(&line, running)
        });
        let handed_back = line.close(NOW);
        finisher.join().unwrap();
        assert_eq!(submitter.join().unwrap(), handed_back);
        assert_empty(&line);
        assert!(admit(&line, "c").is_none());
    });
}

#[test]
fn loom_closing_meets_a_retry() {
    loom::model(|| {
        let line = line(1);
        let id = admit(&line, "a").unwrap();
        let closer = thread::spawn({
            let line = Shared::clone(&line);
            move || line.close(NOW)
        });
        let later = NOW + Duration::from_secs(1);
        let back = Back::Retry { until: later, cost: Duration::ZERO };
        let put_back = line.retry(NOW, id, back).result;
        // Put back before the close or after it: handed back, never left to wait.
        assert_eq!(turn(&line, id), Standing::Gone);
        // Whoever hands it back counts it, and only one of them does.
        assert_eq!(closer.join().unwrap(), u64::from(put_back));
        assert_empty(&line);
    });
}

#[test]
fn loom_resizing_lets_in_whoever_waits() {
    loom::model(|| {
        let line = line(1);
        let (first, second) = (admit(&line, "a").unwrap(), admit(&line, "b").unwrap());
        let resizer = thread::spawn({
            let line = Shared::clone(&line);
            move || line.adjust(NOW, |fair| fair.set_concurrency(2).unwrap()).result
        });
        // The first is not over: only the new limit can let the second start.
        assert_eq!(turn(&line, second), Standing::Started);
        resizer.join().unwrap();
        finish(&line, first);
        finish(&line, second);
        assert_empty(&line);
    });
}

#[test]
fn loom_whoever_waits_for_all_to_leave_is_woken() {
    loom::model(|| {
        let line = line(2);
        let ids = ["a", "b"].map(|key| admit(&line, key).unwrap());
        let leavers = ids.map(|id| {
            let line = Shared::clone(&line);
            thread::spawn(move || finish(&line, id))
        });
        block_on(line.watch(Until::Empty));
        assert_empty(&line);
        leavers.into_iter().for_each(|leaver| leaver.join().unwrap());
    });
}
