//! Every interleaving of a timer that waits and changes that set it. Run by `cargo xtask test`.

use super::NextMoment;
use loom::future::block_on;
use loom::sync::{Arc as Shared, Mutex};
use loom::thread;
use sluicegate_schedule::Moment;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The interleavings in which threads are interrupted up to so often, wherever that is.
fn model(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

/// Two changes set moments, and the timer waits: it learns of the earliest before it sleeps, or is
/// woken.
#[test]
fn loom_the_timer_misses_no_earlier_moment() {
    model(3, || {
        let next = Shared::new(NextMoment::new());
        let setters = [7, 5].map(|at| {
            let next = Shared::clone(&next);
            thread::spawn(move || next.set(Moment::from_nanos(at)))
        });
        // Until it knows of the earliest: else it would sleep for too long, without end here.
        block_on(poll_fn(|poller| match next.wait(poller.waker()).as_nanos() {
            5 => Poll::Ready(()),
            _ => Poll::Pending,
        }));
        setters.into_iter().for_each(|setter| setter.join().unwrap());
    });
}

/// A moment has come, and an earlier or a later one is set meanwhile, of which the line knows first.
#[test]
fn loom_the_timer_spends_only_the_moment_that_has_come() {
    loom::model(|| {
        let next = Shared::new(NextMoment::new());
        let due = Shared::new(Mutex::new(Some(5)));
        next.set(Moment::from_nanos(5));
        let setter = {
            let (next, due) = (Shared::clone(&next), Shared::clone(&due));
            thread::spawn(move || {
                *due.lock().unwrap() = Some(9);
                next.set(Moment::from_nanos(9));
            })
        };
        let at = next.wait(Waker::noop());
        assert_eq!(at.as_nanos(), 5);
        next.spend(at);
        // As the timer does when it rings: asks the line, and sets what that says.
        let said = *due.lock().unwrap();
        if let Some(said) = said {
            next.set(Moment::from_nanos(said));
        }
        setter.join().unwrap();
        let left = next.wait(Waker::noop()).as_nanos();
        assert!(left <= 9, "the later moment is not lost: {left}");
    });
}
