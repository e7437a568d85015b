//! The end: everything that nobody has pulled is returned, once and in order.
//!
//! `docs/rules.md#sluice-4`.

use sluicegate_tasks::{Class, Entry, Refusal};
use tokio::time::Instant;

use super::{batch, cart, gauges, pull, sluice};
use crate::probe::{ByHand, Guard, ms, settle};

#[tokio::test(start_paused = true)]
async fn closing_returns_all_in_the_order_of_admission() {
    let sluice = sluice(4, 20);
    let other = || Entry::of("bob").key("other");
    let values = |value| (if value % 2 == 0 { cart() } else { other() }, value);
    sluice.admit_all((0..8).map(values).collect()).unwrap();
    sluice.admit(cart().class(Class::System), 8).unwrap();
    let (first, second) = (pull(&sluice), pull(&sluice));
    // Of what is returned, one was put back, one is blocked, the rest waits.
    first.retry_at(Some(Instant::now() + ms(100))).unwrap();
    let third = match second.retry_at(None) {
        Ok(_) => sluice.admit(Entry::of("carol"), 9).unwrap(),
        Err(_) => panic!("it is open"),
    };
    assert_eq!(gauges(&sluice), (10, 0));
    assert!(sluice.why(third).is_some());
    assert_eq!(sluice.close(), (0..10).collect::<Vec<_>>());
    assert_eq!((gauges(&sluice), sluice.tenants().len()), ((0, 0), 0));
    assert_eq!((sluice.close(), sluice.stats().handed_back), (vec![], 10));
    assert_eq!(sluice.why(third), None);
}

#[tokio::test(start_paused = true)]
async fn once_closed_nothing_enters_and_nobody_waits() {
    let sluice = sluice(1, 1);
    sluice.admit_all(batch(cart, [1])).unwrap();
    let out = pull(&sluice);
    sluice.admit(cart(), 2).unwrap();
    let mut pullers = [(); 2].map(|()| ByHand::new(sluice.next()));
    assert!(pullers.iter_mut().all(|puller| puller.poll().is_none()));
    let mut room = ByHand::new(sluice.room_for(1));
    assert!(room.poll().is_none());
    assert_eq!(sluice.close(), [2]);
    assert_eq!(pullers.each_ref().map(ByHand::wakes), [1, 1]);
    assert!(pullers.iter_mut().all(|puller| puller.poll().expect("told").is_none()));
    assert!(room.poll().is_some());
    assert!(sluice.next().await.is_none() && sluice.try_next().is_none());
    let refused = sluice.admit(cart(), 3).unwrap_err();
    assert_eq!((refused.why, refused.work), (Refusal::Draining, 3));
    let refused = sluice.admit_all(batch(cart, [4, 5])).unwrap_err();
    assert_eq!((refused.why, refused.work.len()), (Refusal::Draining, 2));
    assert_eq!(out.finish(), 1);
    assert_eq!(gauges(&sluice), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_too_late_is_returned_to_whoever_brings_it() {
    let sluice = sluice(5, 10);
    sluice.admit_all(batch(|| Entry::of("alice"), 0..5)).unwrap();
    let out: Vec<_> = (0..5).map(|_| pull(&sluice)).collect();
    assert!(sluice.close().is_empty());
    let mut emptied = ByHand::new(sluice.emptied());
    let mut out = out.into_iter();
    let mut next = || out.next().unwrap();
    assert!(emptied.poll().is_none());
    assert_eq!(next().retry_at(None), Err(0));
    assert_eq!(next().retry_at(Some(Instant::now())), Err(1));
    assert_eq!(next().postpone(Instant::now()), Err(2));
    assert_eq!(next().fail(), 3);
    let (value, hold) = next().linger();
    assert_eq!((value, emptied.wakes(), gauges(&sluice)), (4, 0, (0, 0)));
    drop(hold);
    assert_eq!(emptied.wakes(), 1);
    assert!(emptied.poll().is_some());
    let stats = sluice.stats();
    // What was handed back ran, but is not done.
    assert_eq!((stats.handed_back, stats.completed, stats.failed), (3, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_out_is_told_before_a_close_too() {
    let sluice = sluice(2, 10);
    assert!(ByHand::new(sluice.emptied()).poll().is_some());
    sluice.admit_all(batch(|| Entry::of("alice"), 0..4)).unwrap();
    assert!(ByHand::new(sluice.emptied()).poll().is_some(), "nobody has pulled anything");
    let (first, second) = (pull(&sluice), pull(&sluice));
    let mut emptied = ByHand::new(sluice.emptied());
    assert!(emptied.poll().is_none());
    first.finish();
    assert_eq!(emptied.wakes(), 0);
    second.retry_at(None).unwrap();
    assert_eq!(emptied.wakes(), 1);
    assert!(emptied.poll().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_closes_it_and_what_waits_is_dropped() {
    let sluice = sluice(1, 10);
    let same = sluice.clone();
    let mut dropped = Vec::new();
    for _ in 0..3 {
        let (guard, count) = Guard::new();
        sluice.admit(cart(), guard).unwrap();
        dropped.push(count);
    }
    let out = pull(&sluice);
    drop(sluice);
    assert_eq!(same.stats().gauges.queued, 2, "another handle is left");
    drop(same);
    let count = |at: usize| dropped[at].get();
    assert_eq!([count(0), count(1), count(2)], [0, 1, 1], "what is out is not touched");
    assert!(out.retry_at(None).is_err(), "it is closed");
    assert_eq!(count(0), 1);
}

/// Its timer ends with it: nothing of a sluice outlives its handles and what they gave out.
#[tokio::test(start_paused = true)]
async fn nothing_of_it_stays() {
    let value = std::sync::Arc::new(());
    for closes in [true, false] {
        let sluice = sluice(1, 10);
        for _ in 0..3 {
            sluice.admit(cart(), std::sync::Arc::clone(&value)).unwrap();
        }
        pull(&sluice).retry_at(Some(Instant::now() + ms(10_000))).unwrap();
        let (shared, hold) = {
            sluice.admit(Entry::of("bob"), std::sync::Arc::clone(&value)).unwrap();
            pull(&sluice).linger()
        };
        if closes {
            assert_eq!(sluice.close().len(), 3);
        }
        drop((sluice, shared, hold));
        settle().await;
        assert_eq!(std::sync::Arc::strong_count(&value), 1, "closed first: {closes}");
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks, 0, "closed first: {closes}");
    }
}
