//! Permits: guards that come back, in order, under a limit that changes live.
//!
//! `docs/rules.md#permit-1`, `docs/rules.md#permit-2`, `docs/rules.md#permit-3`, `docs/rules.md#permit-4`.

mod many;
mod many_model;
mod model;
mod stress;
mod wakers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sluicegate_tasks::{AtLimit, Context, Interrupt, OwnedPermit, Permits};
use tokio::time::Instant;

use crate::probe::{ByHand, ms, settle};

fn permits(limit: u32) -> Arc<Permits> {
    Arc::new(Permits::new(limit).unwrap())
}

/// Someone in line, polled by hand.
fn waiter(
    permits: &Arc<Permits>,
    cx: &Context,
) -> ByHand<impl Future<Output = Result<OwnedPermit, Interrupt>> + use<>> {
    let (permits, cx) = (Arc::clone(permits), cx.clone());
    let mut waiter = ByHand::new(async move { permits.acquire_owned(&cx).await });
    assert!(waiter.poll().is_none());
    waiter
}

fn counts(permits: &Permits) -> (u32, u32, u32) {
    (permits.in_use(), permits.limit(), permits.waiting())
}

#[test]
fn at_the_limit_the_refusal_has_the_true_counts() {
    let permits = permits(2);
    let held = [permits.try_acquire().unwrap(), permits.try_acquire().unwrap()];
    let refused = permits.try_acquire().unwrap_err();
    assert_eq!(refused, AtLimit { limit: 2, in_use: 2 });
    assert_eq!(refused.to_string(), "at the limit: 2 of 2 in use");
    permits.resize(1).unwrap();
    assert_eq!(permits.try_acquire_owned().unwrap_err(), AtLimit { limit: 1, in_use: 2 });
    drop(held);
    assert_eq!(counts(&permits), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_those_who_wait() {
    let permits = permits(1);
    let held = permits.try_acquire().unwrap();
    let cx = Context::new();
    let mut line: Vec<_> = (0..4).map(|_| waiter(&permits, &cx)).collect();
    drop(held);
    assert_eq!(permits.try_acquire().unwrap_err(), AtLimit { limit: 1, in_use: 1 });
    let mut latecomer = waiter(&permits, &cx);
    for next in 0..4 {
        assert!(line.iter_mut().skip(next + 1).all(|waiter| waiter.poll().is_none()));
        assert_eq!(line[next].wakes(), 1, "woken once, by the hand-over");
        drop(line[next].poll().unwrap().unwrap());
    }
    drop(latecomer.poll().unwrap().unwrap());
    assert_eq!(counts(&permits), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn growth_lets_those_who_wait_in_at_once_and_in_order() {
    let permits = permits(1);
    let held = permits.try_acquire().unwrap();
    let cx = Context::new();
    let mut line: Vec<_> = (0..3).map(|_| waiter(&permits, &cx)).collect();
    permits.resize(3).unwrap();
    assert_eq!(counts(&permits), (3, 3, 1));
    let woken: Vec<u32> = line.iter().map(ByHand::wakes).collect();
    assert_eq!(woken, [1, 1, 0]);
    let entered: Vec<_> = line.iter_mut().filter_map(ByHand::poll).collect();
    assert_eq!(entered.len(), 2);
    permits.resize(10).unwrap();
    let last = line[2].poll().unwrap();
    assert_eq!(counts(&permits), (4, 10, 0));
    drop((held, entered, last));
    assert_eq!(counts(&permits), (0, 10, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_takes_nothing_and_lets_nobody_in_until_it_is_met() {
    let permits = permits(4);
    let mut held: Vec<_> = (0..4).map(|_| permits.try_acquire().unwrap()).collect();
    let mut next = waiter(&permits, &Context::new());
    permits.resize(2).unwrap();
    assert_eq!(counts(&permits), (4, 2, 1));
    for in_use in [3, 2] {
        held.pop();
        assert_eq!(counts(&permits), (in_use, 2, 1), "the holders' permits are not passed on");
        assert!(next.poll().is_none());
        assert_eq!(permits.try_acquire().unwrap_err(), AtLimit { limit: 2, in_use });
    }
    assert_eq!(next.wakes(), 0);
    held.pop();
    drop(next.poll().unwrap().unwrap());
    held.pop();
    assert_eq!(counts(&permits), (0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_raised_again_before_it_was_met_lets_in_what_fits() {
    let permits = permits(3);
    let held: Vec<_> = (0..3).map(|_| permits.try_acquire().unwrap()).collect();
    let mut line = [waiter(&permits, &Context::new()), waiter(&permits, &Context::new())];
    permits.resize(1).unwrap();
    permits.resize(4).unwrap();
    assert_eq!(counts(&permits), (4, 4, 1));
    drop(line[0].poll().unwrap().unwrap());
    let second = line[1].poll().unwrap();
    assert_eq!(counts(&permits), (4, 4, 0));
    drop((held, second));
    assert_eq!(counts(&permits), (0, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_context_that_ended_gets_no_permit_even_if_one_is_free() {
    let permits = permits(1);
    let cancelled = Context::new();
    cancelled.cancel();
    assert_eq!(permits.acquire(&cancelled).await.unwrap_err(), Interrupt::Cancelled);
    let late = Context::new().with_deadline(Instant::now());
    assert_eq!(permits.acquire_owned(&late).await.unwrap_err(), Interrupt::TimedOut);
    assert_eq!(counts(&permits), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_context_that_ends_takes_its_waiter_out_of_line() {
    let permits = permits(1);
    let held = permits.try_acquire().unwrap();
    let (first, second) = (Context::new(), Context::new().with_timeout(ms(30)));
    let mut line =
        [waiter(&permits, &first), waiter(&permits, &second), waiter(&permits, &Context::new())];
    first.cancel();
    assert_eq!(line[0].poll().unwrap().unwrap_err(), Interrupt::Cancelled);
    assert_eq!(permits.waiting(), 2);
    tokio::time::advance(ms(31)).await;
    settle().await;
    assert_eq!(line[1].poll().unwrap().unwrap_err(), Interrupt::TimedOut);
    assert_eq!((permits.waiting(), permits.oldest_wait()), (1, ms(31)));
    drop(held);
    drop(line[2].poll().unwrap().unwrap());
    assert_eq!((counts(&permits), permits.oldest_wait()), ((0, 1, 0), ms(0)));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_just_handed_over_goes_on_when_its_waiter_is_dropped() {
    for takes_last in [false, true] {
        let permits = permits(1);
        let held = permits.try_acquire().unwrap();
        let handed = waiter(&permits, &Context::new());
        let mut next = (!takes_last).then(|| waiter(&permits, &Context::new()));
        drop(held);
        assert_eq!(handed.wakes(), 1);
        assert_eq!(permits.in_use(), 1, "it is the waiter's already");
        drop(handed);
        if let Some(next) = &mut next {
            assert_eq!((next.wakes(), permits.in_use()), (1, 1));
            drop(next.poll().unwrap().unwrap());
        }
        assert_eq!(counts(&permits), (0, 1, 0));
        assert!(permits.try_acquire().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_was_handed_over_to_a_waiter_cancelled_meanwhile_is_not_lost() {
    let permits = permits(1);
    let held = permits.try_acquire().unwrap();
    let cx = Context::new();
    let mut handed = waiter(&permits, &cx);
    let mut next = waiter(&permits, &Context::new());
    drop(held);
    cx.cancel();
    // It may have it or not; either way somebody has it, and one only.
    drop(handed.poll().unwrap());
    drop(next.poll().unwrap().unwrap());
    assert_eq!(counts(&permits), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn waiters_dropped_from_the_front_the_middle_and_the_end_leave_no_gap() {
    for gone in 0..3 {
        let permits = permits(1);
        let held = permits.try_acquire().unwrap();
        let mut line: Vec<_> = (0..3).map(|_| waiter(&permits, &Context::new())).collect();
        drop(line.remove(gone));
        assert_eq!(permits.waiting(), 2);
        drop(held);
        for next in &mut line {
            drop(next.poll().unwrap().unwrap());
        }
        assert_eq!(counts(&permits), (0, 1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_last_waiter_left_a_permit_is_free_to_try() {
    let permits = permits(2);
    let held = permits.try_acquire().unwrap();
    let other = permits.try_acquire().unwrap();
    drop(waiter(&permits, &Context::new()));
    drop(other);
    assert!(permits.try_acquire().is_ok());
    drop(held);
    assert_eq!(counts(&permits), (0, 2, 0));
}

#[test]
fn a_panic_gives_the_permit_back() {
    let permits = permits(1);
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _permit = permits.try_acquire().unwrap();
        std::panic::resume_unwind(Box::new("while holding"));
    }));
    assert!(panics.is_err());
    assert_eq!(counts(&permits), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_holding_lets_the_next_in() {
    let permits = permits(1);
    let held = permits.try_acquire_owned().unwrap();
    let mut next = waiter(&permits, &Context::new());
    let holder = tokio::spawn(async move {
        let _held = held;
        panic!("while holding");
    });
    assert!(holder.await.unwrap_err().is_panic());
    drop(next.poll().unwrap().unwrap());
    assert_eq!(counts(&permits), (0, 1, 0));
}

#[test]
fn a_permit_can_outlive_every_other_handle() {
    let permits = permits(1);
    let owned = permits.try_acquire_owned().unwrap();
    drop(permits);
    drop(owned);
}
