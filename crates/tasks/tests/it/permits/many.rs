//! Several permits in one guard: all of them or none, and nobody overtakes.
//!
//! `docs/rules.md#permit-5`.

use sluicegate_tasks::{AcquireManyError, AtLimit, Context, Interrupt, Permits};

use super::{counts, permits, waiter};
use crate::probe::ByHand;

fn too_many(wanted: u32, limit: u32) -> AcquireManyError {
    AcquireManyError::TooMany { wanted, limit }
}

#[test]
fn all_or_none_with_the_true_counts() {
    let permits = permits(4);
    let three = permits.try_acquire_many(3).unwrap();
    assert_eq!((three.count(), counts(&permits)), (3, (3, 4, 0)));
    let at_limit = AcquireManyError::AtLimit(AtLimit { limit: 4, in_use: 3 });
    assert_eq!(permits.try_acquire_many_owned(2).unwrap_err(), at_limit);
    let one = permits.try_acquire_many_owned(1).unwrap();
    drop((three, one));
    assert_eq!(counts(&permits), (0, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn more_than_there_are_is_an_error_at_once() {
    let (permits, cx) = (permits(4), Context::new());
    assert_eq!(permits.try_acquire_many(5).unwrap_err(), too_many(5, 4));
    assert_eq!(permits.acquire_many(&cx, 5).await.unwrap_err(), too_many(5, 4));
    assert_eq!(
        permits.acquire_many_owned(&cx, u32::MAX).await.unwrap_err().to_string(),
        "4294967295 permits wanted, and there are only 4"
    );
    let none = permits.try_acquire_many(0).unwrap_err();
    assert_eq!(none.to_string(), "permits: must be at least 1");
    assert_eq!(permits.acquire_many(&cx, 0).await.unwrap_err(), none);
    assert_eq!(counts(&permits), (0, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn who_wants_many_is_not_starved_by_those_who_want_few() {
    let (permits, cx) = (permits(3), Context::new());
    let held: Vec<_> = (0..3).map(|_| permits.try_acquire().unwrap()).collect();
    let mut many = ByHand::new(permits.acquire_many(&cx, 3));
    assert!(many.poll().is_none());
    let mut few = waiter(&permits, &cx);
    for one in held {
        assert!(many.poll().is_none() && few.poll().is_none());
        drop(one);
        assert!(permits.try_acquire().is_err(), "set aside");
        assert_eq!(permits.in_use(), 3);
    }
    assert_eq!(many.wakes(), 1, "woken once, when all are there");
    let many = many.poll().unwrap().unwrap();
    assert!(few.poll().is_none());
    drop(many);
    drop(few.poll().unwrap().unwrap());
    assert_eq!(counts(&permits), (0, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_gives_what_was_set_aside_to_the_next() {
    for cancels in [false, true] {
        let (permits, cx) = (permits(3), Context::new());
        let held = permits.try_acquire().unwrap();
        let mut many = ByHand::new(permits.acquire_many(&cx, 3));
        assert!(many.poll().is_none());
        assert_eq!(counts(&permits), (3, 3, 1), "two are set aside");
        let mut line = [waiter(&permits, &Context::new()), waiter(&permits, &Context::new())];
        if cancels {
            cx.cancel();
            let why = AcquireManyError::Interrupted(Interrupt::Cancelled);
            assert_eq!(many.poll().unwrap().unwrap_err(), why);
        } else {
            drop(many);
        }
        let next: Vec<_> = line.iter_mut().map(|one| one.poll().unwrap().unwrap()).collect();
        assert_eq!(counts(&permits), (3, 3, 0));
        drop((held, next));
        assert_eq!(counts(&permits), (0, 3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn granted_and_dropped_unseen_they_all_come_back() {
    let (permits, cx) = (permits(2), Context::new());
    let held = permits.try_acquire_many(2).unwrap();
    let mut many = ByHand::new(permits.acquire_many(&cx, 2));
    assert!(many.poll().is_none());
    drop(held);
    assert_eq!((many.wakes(), permits.in_use()), (1, 2));
    drop(many);
    assert_eq!(counts(&permits), (0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_what_is_waited_for_turns_its_waiter_away() {
    let (permits, cx) = (permits(4), Context::new());
    let held = permits.try_acquire_many(2).unwrap();
    let mut first = ByHand::new(permits.acquire_many(&cx, 3));
    let mut second = ByHand::new(permits.acquire_many(&cx, 4));
    let mut third = ByHand::new(permits.acquire_many(&cx, 2));
    assert!(first.poll().is_none() && second.poll().is_none() && third.poll().is_none());
    permits.resize(3).unwrap();
    assert_eq!((first.wakes(), second.wakes(), third.wakes()), (0, 1, 0));
    assert_eq!(second.poll().unwrap().unwrap_err(), too_many(4, 3));
    permits.resize(2).unwrap();
    assert_eq!(first.poll().unwrap().unwrap_err(), too_many(3, 2));
    assert_eq!(counts(&permits), (2, 2, 1), "what was set aside came back");
    drop(held);
    let third = third.poll().unwrap().unwrap();
    assert_eq!((third.count(), counts(&permits)), (2, (2, 2, 0)));
    drop(third);
    assert_eq!(counts(&permits), (0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn growth_goes_to_the_front_first() {
    let (permits, cx) = (permits(3), Context::new());
    let held = permits.try_acquire_many(3).unwrap();
    let mut many = ByHand::new(permits.acquire_many(&cx, 3));
    assert!(many.poll().is_none());
    let mut few = waiter(&permits, &cx);
    permits.resize(5).unwrap();
    assert!(many.poll().is_none() && few.poll().is_none());
    permits.resize(7).unwrap();
    let many = many.poll().unwrap().unwrap();
    let few = few.poll().unwrap().unwrap();
    assert_eq!(counts(&permits), (7, 7, 0));
    drop((held, many, few));
    assert_eq!(counts(&permits), (0, 7, 0));
}

#[test]
fn the_greatest_number_of_permits_is_counted_right() {
    let permits = Permits::new(Permits::MAX).unwrap();
    let all = permits.try_acquire_many(Permits::MAX).unwrap();
    assert!(permits.try_acquire().is_err());
    drop(all);
    assert_eq!(permits.in_use(), 0);
}
