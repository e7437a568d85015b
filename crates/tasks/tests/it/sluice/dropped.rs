//! Turns that are dropped are not done: the value first, then the key and the permit.
//!
//! `docs/rules.md#sluice-6`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use sluicegate_tasks::{Entry, Sluice, SluiceBuilder, Turn};
use tokio::time::Instant;

use super::{batch, cart, gauges, pull, run_all, sluice, turn_now};
use crate::probe::{ByHand, ms, settle};

type Values = Arc<Mutex<Vec<u32>>>;

/// One whose dropped values are kept.
fn keeping(concurrency: u32) -> (SluiceBuilder<u32>, Values) {
    let kept = Values::default();
    let keep = Arc::clone(&kept);
    let builder = Sluice::builder("sluice", concurrency, 100);
    (builder.on_dropped(move |value| keep.lock().unwrap().push(value)), kept)
}

fn taken(kept: &Values) -> Vec<u32> {
    std::mem::take(&mut kept.lock().unwrap())
}

/// Ends a turn by a panic of whoever holds it.
fn panic_with<V>(turn: Turn<V>) {
    let caught = catch_unwind(AssertUnwindSafe(move || {
        let _held = turn;
        panic!("as a worker may");
    }));
    assert!(caught.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_turn_is_counted_as_that_and_its_value_goes_to_its_owner() {
    let (builder, kept) = keeping(1);
    let sluice = builder.build().unwrap();
    sluice.admit_all(batch(cart, [1, 2])).unwrap();
    drop(pull(&sluice));
    assert_eq!(taken(&kept), [1]);
    panic_with(pull(&sluice));
    assert_eq!(taken(&kept), [2]);
    drop(turn_now(&sluice, cart(), 3));
    panic_with(turn_now(&sluice, cart(), 4));
    assert_eq!(taken(&kept), [3, 4], "a caller's too");
    let stats = sluice.stats();
    assert_eq!((stats.dropped, stats.panicked), (2, 2));
    assert_eq!((stats.started, stats.completed, stats.failed), (4, 0, 0));
    assert_eq!((stats.run_time.count(), stats.handed_back, gauges(&sluice)), (0, 0, (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_a_turn_otherwise_drops_no_value() {
    let (builder, kept) = keeping(3);
    let sluice = builder.build().unwrap();
    sluice.admit_all(batch(cart, 0..7)).unwrap();
    assert_eq!((pull(&sluice).finish(), pull(&sluice).fail()), (0, 1));
    assert_eq!(pull(&sluice).finish_with_cost(9), 2);
    let (third, fourth) = pull(&sluice).finish_and_next();
    let (fourth, hold) = fourth.unwrap().linger();
    drop(hold);
    assert_eq!((third, fourth), (3, 4));
    let id = pull(&sluice).retry_at(Some(Instant::now())).unwrap();
    let again = pull(&sluice);
    assert_eq!((again.id(), again.postpone(Instant::now())), (id, Ok(id)));
    assert_eq!(run_all(&sluice), [5, 6]);
    assert_eq!((taken(&kept), sluice.stats().dropped), (vec![], 0));
}

/// It cost what it took, though it is not done.
#[tokio::test(start_paused = true)]
async fn a_dropped_turn_is_charged_for_its_time() {
    let sluice = sluice(1, 10);
    sluice.admit_all(batch(|| Entry::of("alice"), [1, 1])).unwrap();
    sluice.admit_all(batch(|| Entry::of("bob"), [2, 2])).unwrap();
    let turn = pull(&sluice);
    tokio::time::advance(ms(500)).await;
    drop(turn);
    assert_eq!(run_all(&sluice), [2, 2, 1]);
}

/// How many ran, and whether the next of the key could start.
type Seen = Arc<Mutex<Vec<(u32, bool)>>>;

/// A process handle, say: whoever is next in its session must not meet it.
struct Handle {
    sluice: Sluice<Self>,
    seen: Seen,
    panics: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // While it is still there: how many run, and whether the next of its key may start.
        let running = self.sluice.stats().gauges.running;
        let next = self.sluice.try_next();
        self.seen.lock().unwrap().push((running, next.is_some()));
        next.map(Turn::linger);
        if self.panics {
            panic!("in the drop of a value");
        }
    }
}

/// Two handles of one key, the first of which is out.
fn two_handles(panics: bool) -> (Sluice<Handle>, Turn<Handle>, Seen) {
    let (sluice, seen) = (sluice(1, 10), Arc::default());
    let handle =
        |panics| Handle { sluice: Sluice::clone(&sluice), seen: Arc::clone(&seen), panics };
    for panics in [panics, false] {
        assert!(sluice.admit(cart(), handle(panics)).is_ok());
    }
    let turn = pull(&sluice);
    (sluice, turn, seen)
}

#[tokio::test(start_paused = true)]
async fn the_value_is_gone_before_the_next_of_its_key_may_start() {
    for panics in [false, true] {
        let (sluice, turn, seen) = two_handles(false);
        let mut waits = ByHand::new(sluice.next());
        assert!(waits.poll().is_none());
        if panics {
            panic_with(turn);
        } else {
            drop(turn);
        }
        assert_eq!(*seen.lock().unwrap(), [(1, false)], "its turn was not over yet");
        assert_eq!(waits.wakes(), 1);
        drop(waits.poll().unwrap().unwrap().finish());
        assert_eq!(gauges(&sluice), (0, 0));
        sluice.close();
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_whose_drop_panics_leaves_neither_permit_nor_key_taken() {
    let (sluice, turn, seen) = two_handles(true);
    assert!(catch_unwind(AssertUnwindSafe(move || drop(turn))).is_err());
    assert_eq!(*seen.lock().unwrap(), [(1, false)]);
    assert_eq!((gauges(&sluice), sluice.stats().panicked), ((1, 0), 1));
    drop(pull(&sluice).finish());
    assert_eq!(gauges(&sluice), (0, 0));
    sluice.close();
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_panics_leaves_neither_permit_nor_key_taken() {
    let sluice = Sluice::builder("sluice", 1, 10).on_dropped(|_: u32| panic!("not mine"));
    let sluice = sluice.build().unwrap();
    sluice.admit_all(batch(cart, [1, 2])).unwrap();
    let turn = pull(&sluice);
    assert!(catch_unwind(AssertUnwindSafe(move || drop(turn))).is_err());
    assert_eq!((pull(&sluice).finish(), gauges(&sluice)), (2, (0, 0)));
}

/// One that panics at 1, and keeps the others.
fn moody() -> (SluiceBuilder<u32>, Values) {
    let kept = Values::default();
    let keep = Arc::clone(&kept);
    let builder = Sluice::builder("sluice", 1, 10).on_dropped(move |value| {
        assert_ne!(value, 1, "as an owner may");
        keep.lock().unwrap().push(value);
    });
    (builder, kept)
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_panics_stops_neither_the_timer_nor_the_others_values() {
    let (builder, kept) = moody();
    let sluice = builder.queue_timeout(ms(100)).build().unwrap();
    sluice.admit_all(batch(cart, [0, 1, 2])).unwrap();
    tokio::time::advance(ms(100)).await;
    settle().await;
    assert_eq!((taken(&kept), sluice.stats().queue_timeouts), (vec![0, 2], 3));
    sluice.admit_all(batch(cart, [3])).unwrap();
    tokio::time::advance(ms(100)).await;
    settle().await;
    assert_eq!(taken(&kept), [3], "time goes on");
}

#[tokio::test(start_paused = true)]
async fn what_waits_goes_to_its_owner_at_the_end_even_if_that_panics() {
    for drains in [true, false] {
        let (builder, kept) = moody();
        let sluice = builder.build().unwrap();
        sluice.admit_all(batch(cart, [0, 1, 2])).unwrap();
        if drains {
            let report = sluice.drain(Instant::now() + ms(100)).await;
            assert_eq!((report.handed_back, report.is_clean()), (3, true));
        } else {
            drop(sluice);
        }
        settle().await;
        assert_eq!(taken(&kept), [0, 2], "drains: {drains}");
    }
}
