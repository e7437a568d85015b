//! Every interleaving of a few threads at the permits: taking, waiting, handing over, leaving,
//! resizing. Run by `cargo xtask test`, with loom's atomics and locks in place of the real ones.

use super::*;
use loom::future::block_on;
use loom::sync::Arc as Shared;
use loom::sync::atomic::{AtomicUsize, Ordering as Order};
use loom::thread;
use std::future::Future;
use std::pin::Pin;
use std::task::Context as Poller;

fn permits(limit: u32) -> Shared<Permits> {
    Shared::new(Permits::new(limit).unwrap())
}

/// Somebody in line already.
fn queued(permits: &Shared<Permits>, wanted: u32) -> Acquire<Shared<Permits>> {
    let mut acquire = Acquire::many(Shared::clone(permits), wanted);
    let poll = Pin::new(&mut acquire).poll(&mut Poller::from_waker(Waker::noop()));
    assert!(poll.is_pending());
    acquire
}

/// Nothing is left: nobody holds, nobody waits, and whoever comes next gets in.
fn assert_idle(permits: &Permits, limit: u32) {
    assert_eq!((permits.in_use(), permits.waiting(), permits.limit()), (0, 0, limit));
    assert!(permits.try_acquire().is_ok());
}

#[test]
fn loom_never_more_than_the_limit() {
    loom::model(|| {
        let (permits, inside) = (permits(1), Shared::new(AtomicUsize::new(0)));
        let enter = |permits: &Permits, inside: &AtomicUsize| match permits.try_acquire() {
            Ok(permit) => {
                assert_eq!(inside.fetch_add(1, Order::SeqCst), 0);
                inside.fetch_sub(1, Order::SeqCst);
                drop(permit);
            }
            Err(at_limit) => assert_eq!(at_limit, AtLimit { limit: 1, in_use: 1 }),
        };
        let other = thread::spawn({
            let (permits, inside) = (Shared::clone(&permits), Shared::clone(&inside));
            move || enter(&permits, &inside)
        });
        enter(&permits, &inside);
        other.join().unwrap();
        assert_idle(&permits, 1);
    });
}

#[test]
fn loom_what_one_writes_the_next_holder_sees() {
    loom::model(|| {
        let (permits, value) = (permits(1), Shared::new(AtomicUsize::new(0)));
        let held = permits.try_acquire().unwrap();
        let waiter = thread::spawn({
            let (permits, value) = (Shared::clone(&permits), Shared::clone(&value));
            move || {
                block_on(Acquire::one(Shared::clone(&permits)));
                // Relaxed: it is the permit that carries the order.
                assert_eq!(value.load(Order::Relaxed), 7);
                permits.give_back();
            }
        });
        value.store(7, Order::Relaxed);
        drop(held);
        waiter.join().unwrap();
        assert_idle(&permits, 1);
    });
}

#[test]
fn loom_a_returned_permit_reaches_whoever_waits() {
    loom::model(|| {
        let permits = permits(1);
        let held = permits.try_acquire().unwrap();
        let waiter = thread::spawn({
            let permits = Shared::clone(&permits);
            move || {
                block_on(Acquire::one(Shared::clone(&permits)));
                permits.give_back();
            }
        });
        drop(held);
        block_on(Acquire::one(Shared::clone(&permits)));
        permits.give_back();
        waiter.join().unwrap();
        assert_idle(&permits, 1);
    });
}

#[test]
fn loom_leaving_the_line_loses_no_permit() {
    loom::model(|| {
        let permits = permits(1);
        let held = permits.try_acquire().unwrap();
        // The first in line leaves while the permit may just be handed to it; the second must get
        // it either way.
        let first = queued(&permits, 1);
        let second = queued(&permits, 1);
        let leaver = thread::spawn(move || drop(first));
        drop(held);
        assert_eq!(block_on(second), Ok(()));
        permits.give_back();
        leaver.join().unwrap();
        assert_idle(&permits, 1);
    });
}

#[test]
fn loom_nobody_overtakes_the_line() {
    loom::model(|| {
        let permits = permits(1);
        let held = permits.try_acquire().unwrap();
        let waiter = queued(&permits, 1);
        let overtaker = thread::spawn({
            let permits = Shared::clone(&permits);
            move || permits.try_acquire().is_ok()
        });
        drop(held);
        // While somebody waits or was handed the permit, there is none to take.
        assert!(!overtaker.join().unwrap());
        assert_eq!(block_on(waiter), Ok(()));
        permits.give_back();
        assert_idle(&permits, 1);
    });
}

#[test]
fn loom_growing_lets_in_whoever_waits() {
    loom::model(|| {
        let permits = permits(1);
        let held = permits.try_acquire().unwrap();
        let waiter = thread::spawn({
            let permits = Shared::clone(&permits);
            move || {
                block_on(Acquire::one(Shared::clone(&permits)));
                permits.give_back();
            }
        });
        permits.resize(2).unwrap();
        // The first permit is still held: only the growth can have let it in.
        waiter.join().unwrap();
        drop(held);
        assert_idle(&permits, 2);
    });
}

#[test]
fn loom_shrinking_and_returning_meet_the_new_limit() {
    loom::model(|| {
        let permits = permits(2);
        let (one, two) = (permits.try_acquire().unwrap(), permits.try_acquire().unwrap());
        let waiter = queued(&permits, 1);
        let shrinker = thread::spawn({
            let permits = Shared::clone(&permits);
            move || permits.resize(1).unwrap()
        });
        drop(one);
        drop(two);
        assert_eq!(block_on(waiter), Ok(()));
        shrinker.join().unwrap();
        assert_eq!((permits.in_use(), permits.limit()), (1, 1));
        assert!(permits.try_acquire().is_err());
        permits.give_back();
        assert_idle(&permits, 1);
    });
}

#[test]
fn loom_who_wants_many_gets_all_of_them_however_they_come_back() {
    loom::model(|| {
        let permits = permits(2);
        let (one, two) = (permits.try_acquire().unwrap(), permits.try_acquire().unwrap());
        let many = queued(&permits, 2);
        let other = thread::spawn({
            let permits = Shared::clone(&permits);
            move || permits.try_acquire().is_ok()
        });
        drop(one);
        drop(two);
        // What is set aside is nobody else's.
        assert!(!other.join().unwrap());
        assert_eq!(block_on(many), Ok(()));
        assert_eq!(permits.in_use(), 2);
        permits.give_back_many(2);
        assert_idle(&permits, 2);
    });
}

#[test]
fn loom_who_wanted_many_and_leaves_loses_nothing_for_the_next() {
    loom::model(|| {
        let permits = permits(2);
        let held = permits.try_acquire().unwrap();
        let many = queued(&permits, 2);
        let next = queued(&permits, 1);
        let leaver = thread::spawn(move || drop(many));
        drop(held);
        assert_eq!(block_on(next), Ok(()));
        permits.give_back();
        leaver.join().unwrap();
        assert_idle(&permits, 2);
    });
}

#[test]
fn loom_a_lower_limit_turns_away_who_wants_more() {
    loom::model(|| {
        let permits = permits(2);
        let held = permits.try_acquire().unwrap();
        let many = queued(&permits, 2);
        let next = queued(&permits, 1);
        let shrinker = thread::spawn({
            let permits = Shared::clone(&permits);
            move || permits.resize(1).unwrap()
        });
        drop(held);
        if block_on(many).is_ok() {
            permits.give_back_many(2);
        }
        assert_eq!(block_on(next), Ok(()));
        permits.give_back();
        shrinker.join().unwrap();
        assert_idle(&permits, 1);
    });
}
