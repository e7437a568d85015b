//! Coming back: tried again later, postponed, blocked, lingering, withdrawn.
//!
//! `docs/rules.md#sluice-3`, `docs/rules.md#schedule-8`.

use sluicegate_tasks::{Entry, ItemId, Rate, Sluice, Turn, Why};
use tokio::time::Instant;

use super::{batch, cart, gauges, pull, run_all, sluice};
use crate::probe::{ByHand, ms, settle};

fn other() -> Entry {
    Entry::of("alice").key("other")
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_goes_first_in_its_key_at_its_time() {
    let sluice = sluice(1, 10);
    let begun = Instant::now();
    type Back = fn(Turn<u32>, Instant) -> Result<ItemId, u32>;
    let ways: [Back; 2] = [|turn, at| turn.retry_at(Some(at)), Turn::postpone];
    for back in ways {
        let begun_here = Instant::now();
        sluice.admit_all(batch(cart, [1, 2])).unwrap();
        sluice.admit(other(), 3).unwrap();
        let turn = pull(&sluice);
        let (id, since) = (turn.id(), turn.since());
        tokio::time::advance(ms(50)).await;
        assert_eq!(back(turn, begun_here + ms(250)), Ok(id));
        assert_eq!(run_all(&sluice), [3], "other keys go on");
        let why = sluice.why(id).unwrap();
        assert!(matches!(why.why, Why::KeyRetrying { head, .. } if head == id));
        assert_eq!(why.until, Some(begun_here + ms(250)));
        assert_eq!(gauges(&sluice), (2, 0));
        let again = sluice.next().await.unwrap();
        assert_eq!((begun_here.elapsed(), again.id(), again.since()), (ms(250), id, since));
        assert_eq!((since, again.finish()), (begun_here, 1));
        assert_eq!(run_all(&sluice), [2]);
    }
    assert_eq!(begun.elapsed(), ms(500));
}

#[tokio::test(start_paused = true)]
async fn one_without_a_key_comes_back_too() {
    let sluice = sluice(1, 10);
    let free = || Entry::of("alice");
    sluice.admit_all(batch(free, [1, 2])).unwrap();
    pull(&sluice).retry_at(Some(Instant::now() + ms(10))).unwrap();
    pull(&sluice).postpone(Instant::now() + ms(20)).unwrap();
    assert!(sluice.try_next().is_none());
    assert_eq!(sluice.next().await.unwrap().finish(), 1);
    assert_eq!(sluice.next().await.unwrap().finish(), 2);
    sluice.admit_all(batch(free, [3])).unwrap();
    let blocked = pull(&sluice).retry_at(None).unwrap();
    assert!(sluice.release(blocked));
    assert_eq!(pull(&sluice).finish(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_due_comes_back_at_once() {
    let sluice = sluice(1, 10);
    sluice.admit_all(batch(cart, [1, 2])).unwrap();
    pull(&sluice).retry_at(Some(Instant::now())).unwrap();
    pull(&sluice).postpone(Instant::now() - ms(0)).unwrap();
    assert_eq!(run_all(&sluice), [1, 2]);
}

/// Each at its time, though nobody looks in between.
#[tokio::test(start_paused = true)]
async fn pullers_are_woken_when_the_time_has_come() {
    let sluice = sluice(4, 10);
    sluice.admit_all(vec![(cart(), 1), (other(), 2)]).unwrap();
    let (first, second) = (pull(&sluice), pull(&sluice));
    first.retry_at(Some(Instant::now() + ms(900))).unwrap();
    second.postpone(Instant::now() + ms(500)).unwrap();
    let mut waits = [(); 2].map(|()| ByHand::new(sluice.next()));
    assert!(waits.iter_mut().all(|puller| puller.poll().is_none()));
    for (after, wakes) in [(499, [0, 0]), (1, [1, 0]), (399, [1, 0])] {
        tokio::time::advance(ms(after)).await;
        settle().await;
        assert_eq!(waits.each_ref().map(ByHand::wakes), wakes);
    }
    let [first, second] = &mut waits;
    assert_eq!(first.poll().unwrap().unwrap().finish(), 2);
    tokio::time::advance(ms(1)).await;
    settle().await;
    assert_eq!(second.wakes(), 1);
    assert_eq!(second.poll().unwrap().unwrap().finish(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_one_waits_until_it_is_released() {
    let sluice = sluice(1, 10);
    let ids = sluice.admit_all(batch(cart, [1, 2])).unwrap();
    assert!(!sluice.release(ids[0]), "it waits for a worker only");
    let turn = pull(&sluice);
    assert!(!sluice.release(ids[0]), "it runs");
    let blocked = turn.retry_at(None).unwrap();
    assert_eq!(sluice.why(blocked).unwrap().until, None);
    tokio::time::advance(ms(1_000_000_000)).await;
    settle().await;
    assert!(sluice.try_next().is_none());
    assert!(!sluice.release(ids[1]), "it does not wait for that itself");
    let mut waits = ByHand::new(sluice.next());
    assert!(waits.poll().is_none());
    assert!(sluice.release(blocked));
    assert_eq!(waits.wakes(), 1);
    assert_eq!(waits.poll().unwrap().unwrap().finish(), 1);
    assert!(!sluice.release(blocked), "it is gone");
    // One that waits for its time may be let go before it.
    let later = pull(&sluice).retry_at(Some(Instant::now() + ms(60_000))).unwrap();
    assert!(sluice.release(later) && !sluice.release(later));
    assert_eq!(pull(&sluice).finish(), 2);
}

/// A rate of one a minute, two tenants, and what is left of both after one item came back.
#[tokio::test(start_paused = true)]
async fn a_postponed_one_has_cost_nothing() {
    let rate = Rate::new(1, ms(60_000), 1).unwrap();
    let sluice = || Sluice::<u32>::builder("sluice", 1, 10).rate(rate).build().unwrap();
    let at = || Instant::now() + ms(1_000);

    let retried = sluice();
    retried.admit_all(batch(cart, [1, 2])).unwrap();
    pull(&retried).retry_at(Some(at())).unwrap();
    retried.admit(Entry::of("bob"), 3).unwrap();
    assert!(retried.try_next().is_none(), "the token is spent");
    assert_eq!((retried.stats().started, retried.stats().completed), (1, 1));

    let postponed = sluice();
    postponed.admit_all(batch(cart, [1, 2])).unwrap();
    tokio::time::advance(ms(100)).await;
    let turn = pull(&postponed);
    tokio::time::advance(ms(500)).await;
    turn.postpone(at()).unwrap();
    postponed.admit(Entry::of("bob"), 3).unwrap();
    assert_eq!(pull(&postponed).finish(), 3, "with the token that came back");
    assert_eq!((postponed.stats().started, postponed.stats().completed), (2, 1));
    assert_eq!(postponed.stats().run_time.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_postponed_ones_tenant_is_charged_nothing() {
    // Of four starts after one item of alice's came back: bob has them all where it cost her share.
    for (postpones, hers) in [(true, 2), (false, 0)] {
        let sluice = sluice(1, 20);
        sluice.admit_all(batch(cart, ["alice"; 5])).unwrap();
        sluice.admit_all(batch(|| Entry::of("bob"), ["bob"; 5])).unwrap();
        let turn = pull(&sluice);
        assert_eq!(*turn.value(), "alice");
        tokio::time::advance(ms(5_000)).await;
        if postpones {
            turn.postpone(Instant::now()).unwrap();
        } else {
            turn.retry_at(Some(Instant::now())).unwrap();
        }
        let came = [(); 4].map(|()| pull(&sluice).finish_with_cost(100));
        assert_eq!(came.iter().filter(|name| **name == "alice").count(), hers, "{came:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lingering_one_frees_its_place_and_keeps_its_key() {
    let sluice = sluice(1, 1);
    sluice.admit(cart(), 1).unwrap();
    let turn = pull(&sluice);
    let waits = sluice.admit(cart(), 2).unwrap();
    tokio::time::advance(ms(40)).await;
    let (value, hold) = turn.linger();
    let lingers = match sluice.why(waits).unwrap().why {
        Why::KeyBusy { head } => head,
        other => panic!("{other:?}"),
    };
    assert_eq!((value, sluice.why(lingers).unwrap().why), (1, Why::Lingering));
    assert_eq!(gauges(&sluice), (1, 0), "neither queued nor running");
    assert_eq!((sluice.stats().completed, sluice.tenants()[0].served), (1, 1));
    assert!(!sluice.release(lingers) && sluice.withdraw(lingers).is_none());
    assert_eq!(sluice.withdraw(waits), Some(2));
    assert!(sluice.tenants().is_empty(), "its tenant is idle");
    sluice.admit(cart(), 3).unwrap();
    assert!(sluice.try_next().is_none());
    sluice.resize(1, 2).unwrap();
    sluice.admit(Entry::of("bob"), 4).unwrap();
    assert_eq!(run_all(&sluice), [4], "its place is free");
    let mut next = ByHand::new(sluice.next());
    assert!(next.poll().is_none());
    drop(hold);
    assert_eq!(next.wakes(), 1);
    assert_eq!(next.poll().unwrap().unwrap().finish(), 3);
    assert_eq!(sluice.why(lingers), None);
}

#[tokio::test(start_paused = true)]
async fn many_linger_at_once_and_take_no_room() {
    let sluice = sluice(1, 2);
    let holds: Vec<_> = (0..50)
        .map(|n: u32| {
            sluice.admit(Entry::of("alice").key(n.to_string()), n).unwrap();
            pull(&sluice).linger().1
        })
        .collect();
    assert_eq!(gauges(&sluice), (0, 0));
    assert!(ByHand::new(sluice.room_for(2)).poll().is_some());
    let mut emptied = ByHand::new(sluice.emptied());
    assert!(emptied.poll().is_none(), "what lingers is out");
    assert!(sluice.close().is_empty());
    drop(holds);
    assert_eq!(emptied.wakes(), 1);
    assert!(emptied.poll().is_some());
}

#[tokio::test(start_paused = true)]
async fn whatever_it_waits_for_it_can_be_withdrawn() {
    let sluice = sluice(2, 10);
    let ids = sluice.admit_all(batch(cart, [1, 2, 3])).unwrap();
    let pulled = pull(&sluice);
    assert_eq!(sluice.withdraw(ids[0]), None, "it is out");
    assert_eq!(sluice.withdraw(ids[1]), Some(2), "queued");
    assert_eq!(sluice.withdraw(ids[1]), None);
    let retrying = pulled.retry_at(Some(Instant::now() + ms(1_000))).unwrap();
    assert!(sluice.try_next().is_none());
    assert_eq!(sluice.withdraw(retrying), Some(1));
    assert_eq!(sluice.why(ids[2]).unwrap().why, Why::NoWorker, "its key went on at once");
    let blocked = pull(&sluice).retry_at(None).unwrap();
    assert_eq!(sluice.withdraw(blocked), Some(3));
    assert_eq!((gauges(&sluice), sluice.stats().cancelled), ((0, 0), 3));
}

/// A worker was called for it and has not come yet: it gets the next.
#[tokio::test(start_paused = true)]
async fn one_that_a_worker_was_called_for_can_be_withdrawn() {
    let rate = Rate::new(1, ms(60_000), 1).unwrap();
    let sluice = Sluice::<u32>::builder("sluice", 1, 10).rate(rate).build().unwrap();
    let mut waits = ByHand::new(sluice.next());
    assert!(waits.poll().is_none());
    let ids = sluice.admit_all(batch(cart, [1, 2])).unwrap();
    assert_eq!(waits.wakes(), 1);
    assert_eq!(sluice.withdraw(ids[0]), Some(1));
    assert_eq!(waits.poll().unwrap().unwrap().finish(), 2);
    assert_eq!(sluice.stats().started, 1);
    // Over and over with nobody there.
    sluice.set_rate(None);
    for n in 0..1_000 {
        let id = sluice.admit(cart(), n).unwrap();
        assert_eq!(sluice.withdraw(id), Some(n));
    }
    assert!(sluice.try_next().is_none());
    assert_eq!(gauges(&sluice), (0, 0));
}
