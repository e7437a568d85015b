//! At the door: with the policy to wait a full queue holds callers up, first come, first served.
//!
//! `docs/rules.md#overload-1`, `docs/rules.md#sluice-5`.

mod model;

use sluicegate_tasks::{Context, Entry, Interrupt, Overload, Refusal, Sluice, TenantLimits};
use tokio::time::Instant;

use super::{batch, cart, enter, gauges, in_line, pull, turn_now};
use crate::probe::{ByHand, ms};

fn sluice(concurrency: u32, capacity: u32) -> Sluice<u32> {
    let builder = Sluice::builder("sluice", concurrency, capacity);
    builder.overload(Overload::Wait).build().unwrap()
}

fn alice() -> Entry {
    Entry::of("alice")
}

/// Somebody who wants in, and is not let in yet.
macro_rules! at_door {
    ($sluice:expr, $cx:expr, $value:expr) => {{
        let mut waits = ByHand::new($sluice.enter($cx, alice(), $value));
        assert!(waits.poll().is_none(), "there is no room for {}", $value);
        waits
    }};
}

#[tokio::test(start_paused = true)]
async fn callers_are_let_in_one_by_one_in_the_order_they_came() {
    let (sluice, cx) = (sluice(1, 1), Context::new());
    let held = turn_now(&sluice, alice(), 0);
    let mut queued = in_line(&sluice, alice(), 1);
    let [mut first, mut second, mut third] = [2, 3, 4].map(|n| at_door!(sluice, &cx, n));
    assert_eq!((gauges(&sluice), sluice.stats().admitted), ((1, 1), 2), "the queue is bounded");
    held.finish();
    assert_eq!((first.wakes(), second.wakes(), third.wakes()), (1, 0, 0));
    // There is room for one, and it is the first one's, whoever asks before it does.
    assert!(third.poll().is_none() && second.poll().is_none());
    let mut late = at_door!(sluice, &cx, 5);
    let first = first.poll().unwrap().unwrap();
    assert!(second.poll().is_none(), "full again");
    assert_eq!(queued.poll().unwrap().unwrap().finish(), 1);
    assert_eq!((second.wakes(), third.wakes(), late.wakes()), (1, 0, 0));
    let second = second.poll().unwrap().unwrap();
    assert_eq!(first.turn().await.unwrap().finish(), 2);
    assert_eq!(second.turn().await.unwrap().finish(), 3);
    assert_eq!((third.wakes(), late.wakes()), (1, 0), "one calls the next in");
    let third = third.poll().unwrap().unwrap();
    assert_eq!(third.turn().await.unwrap().finish(), 4);
    assert_eq!(late.poll().unwrap().unwrap().turn().await.unwrap().finish(), 5);
    assert_eq!(gauges(&sluice), (0, 0));
}

/// As a `select!` or `join!` does, whose other branches have something to do.
#[tokio::test(start_paused = true)]
async fn whoever_is_polled_for_nothing_keeps_its_place() {
    let (sluice, cx) = (sluice(1, 1), Context::new());
    let held = turn_now(&sluice, alice(), 0);
    let _queued = in_line(&sluice, alice(), 1);
    let [mut first, mut second] = [2, 3].map(|n| at_door!(sluice, &cx, n));
    for _ in 0..3 {
        assert!(first.poll().is_none());
    }
    held.finish();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    assert!(second.poll().is_none());
    assert!(first.poll().unwrap().is_ok());
}

/// What comes back has always room, so the room one was called in for can be gone again.
#[tokio::test(start_paused = true)]
async fn whoever_was_called_in_for_nothing_keeps_its_place() {
    let (sluice, cx) = (sluice(2, 1), Context::new());
    let held = [(); 2].map(|()| turn_now(&sluice, alice(), 0));
    let mut queued = in_line(&sluice, alice(), 1);
    let [mut first, mut second] = [2, 3].map(|n| at_door!(sluice, &cx, n));
    let [ends, returns] = held;
    ends.finish();
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    let again = returns.retry_at(None).unwrap();
    assert!(first.poll().is_none() && second.poll().is_none());
    assert_eq!(sluice.withdraw(again), Some(0));
    assert_eq!((first.wakes(), second.wakes()), (2, 0), "it is the first one still");
    assert!(second.poll().is_none());
    assert!(first.poll().unwrap().is_ok());
    assert!(queued.poll().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn values_that_do_not_wait_do_not_overtake_those_who_do() {
    let (sluice, cx) = (sluice(1, 1), Context::new());
    sluice.admit(cart(), 0).unwrap();
    let full = Refusal::QueueFull { queued: 1, capacity: 1 };
    assert_eq!(sluice.admit(cart(), 9).unwrap_err().why, full, "there is no caller to wait");
    let mut first = at_door!(sluice, &cx, 1);
    let turn = pull(&sluice);
    assert_eq!(first.wakes(), 1);
    let refused = sluice.admit(cart(), 7).unwrap_err();
    assert_eq!((refused.why.label(), refused.work), ("queue_full", 7), "the room is promised");
    let refused = sluice.admit_all(batch(cart, [8])).unwrap_err();
    assert_eq!((refused.why.label(), refused.work.len()), ("queue_full", 1));
    drop(first.poll().unwrap().unwrap());
    assert!(sluice.admit(cart(), 10).is_ok(), "nobody waits any more");
    turn.finish();
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_the_door_at_any_moment_loses_no_room_for_the_others() {
    for leaves_at in 0..4 {
        let (sluice, cx) = (sluice(1, 1), Context::new());
        let held = turn_now(&sluice, alice(), 0);
        let queued = in_line(&sluice, alice(), 1);
        let unpolled = sluice.enter(&cx, alice(), 2);
        let leaves = at_door!(sluice, &cx, 3);
        let request = Context::new();
        let mut cancelled = ByHand::new(sluice.enter(&request, alice(), 4));
        assert!(cancelled.poll().is_none());
        let mut stays = at_door!(sluice, &cx, 5);
        match leaves_at {
            // Before there is room.
            0 => {
                drop((unpolled, leaves));
                request.cancel();
                assert!(cancelled.poll().unwrap().is_err());
                held.finish();
            }
            // Just after it was called in, the next too.
            1 => {
                held.finish();
                assert_eq!(leaves.wakes(), 1);
                drop(leaves);
                assert_eq!(cancelled.wakes(), 1);
                drop(cancelled);
            }
            // Let in, and gone before it heard of its turn.
            2 => {
                held.finish();
                let mut leaves = leaves;
                drop(leaves.poll().unwrap().unwrap());
                drop(cancelled);
            }
            // Everybody who was before it.
            _ => drop((leaves, cancelled, queued)),
        }
        assert_eq!(stays.wakes(), 1, "left at {leaves_at}");
        assert!(stays.poll().unwrap().is_ok(), "left at {leaves_at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_that_ends_at_the_door_gives_the_value_back() {
    let sluice = sluice(1, 1);
    let _held = turn_now(&sluice, alice(), 0);
    let _queued = in_line(&sluice, alice(), 1);
    let (begun, cx) = (Instant::now(), Context::new().with_timeout(ms(70)));
    let refused = sluice.enter(&cx, alice(), 2).await.unwrap_err();
    assert_eq!((refused.why, refused.work), (Refusal::Interrupted(Interrupt::TimedOut), 2));
    assert_eq!(begun.elapsed(), ms(70));
    let stats = sluice.stats();
    assert_eq!((stats.rejected, stats.admitted), (vec![("timed_out", 1)], 2));
}

#[tokio::test(start_paused = true)]
async fn closing_and_draining_tell_those_at_the_door() {
    for drains in [false, true] {
        let (sluice, cx) = (sluice(1, 1), Context::new());
        let held = turn_now(&sluice, alice(), 0);
        let mut queued = in_line(&sluice, alice(), 1);
        let mut at_door = [2, 3].map(|n| at_door!(sluice, &cx, n));
        let mut drain = ByHand::new(sluice.drain(Instant::now() + ms(100)));
        if drains {
            assert!(drain.poll().is_none());
        } else {
            assert!(sluice.close().is_empty(), "callers keep their values");
        }
        assert_eq!((queued.wakes(), at_door[0].wakes(), at_door[1].wakes()), (1, 1, 1));
        assert_eq!(queued.poll().unwrap().unwrap_err().work, 1);
        for (n, waits) in (2..).zip(&mut at_door) {
            let refused = waits.poll().unwrap().unwrap_err();
            assert_eq!((refused.why, refused.work), (Refusal::Draining, n));
        }
        assert_eq!(enter(&sluice, &cx, alice(), 4).unwrap_err().why, Refusal::Draining);
        held.finish();
        assert_eq!(sluice.stats().handed_back, 1, "of what was let in");
        if drains {
            assert_eq!(drain.poll().unwrap().handed_back, 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn more_room_is_filled_by_those_who_wait_for_it() {
    let (sluice, cx) = (sluice(1, 1), Context::new());
    let _held = turn_now(&sluice, alice(), 0);
    let _queued = in_line(&sluice, alice(), 1);
    let mut at_door = [2, 3, 4].map(|n| at_door!(sluice, &cx, n));
    sluice.resize(1, 3).unwrap();
    let let_in: Vec<_> = at_door.iter_mut().filter_map(|waits| waits.poll()).collect();
    assert_eq!((let_in.len(), gauges(&sluice)), (2, (3, 1)));
    drop(let_in);
    assert!(at_door[2].wakes() == 1 && at_door[2].poll().unwrap().is_ok());
}

/// Only the room for all is waited for: a tenant that has its share of it is told so at once.
#[tokio::test(start_paused = true)]
async fn a_tenants_own_limit_is_not_waited_for() {
    let sluice = sluice(1, 10);
    sluice.set_each_tenant(TenantLimits::new().max_queued(1)).unwrap();
    let _held = turn_now(&sluice, alice(), 0);
    let _queued = in_line(&sluice, alice(), 1);
    let refused = enter(&sluice, &Context::new(), alice(), 2).unwrap_err();
    assert_eq!(refused.why, Refusal::TenantQueueFull { queued: 1, max: 1 });
}
