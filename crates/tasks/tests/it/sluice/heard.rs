//! Nobody waits for word that does not come, whoever else is slow, and whatever panics.
//!
//! `docs/rules.md#sluice-1`, `docs/rules.md#sluice-5`, `docs/rules.md#sluice-6`.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Wake, Waker};

use sluicegate_tasks::{Class, Context, Entry, Overload, Sluice};
use tokio::time::Instant;

use crate::probe::{ByHand, ms, settle};

/// What is next is a worker's, and the only worker is busy: the caller's moment comes all the same.
#[tokio::test(start_paused = true)]
async fn a_caller_hears_at_its_moment_though_a_value_waits_for_a_worker() {
    let sluice = Sluice::<u32>::builder("heard", 2, 10).build().unwrap();
    sluice.admit(Entry::of("w"), 1).unwrap();
    let busy = sluice.try_next().unwrap();
    let urgent = Entry::of("ops").class(Class::System);
    let turn = sluice.turn(&Context::new(), urgent, 2).await.unwrap();
    sluice.admit(Entry::of("w"), 3).unwrap();
    let (began, waits) = (Instant::now(), turn.wait_again(Instant::now() + ms(1_000)));
    let again = tokio::time::timeout(ms(10_000), waits.turn()).await.expect("its moment came");
    assert_eq!((again.unwrap().finish(), began.elapsed()), (2, ms(1_000)));
    busy.finish();
}

/// While somebody is at the door there is no room for others: who waits for room does not ask in vain.
#[tokio::test(start_paused = true)]
async fn who_waits_for_room_waits_behind_the_door() {
    let builder = Sluice::<u32>::builder("heard", 4, 1).overload(Overload::Wait);
    let sluice = builder.build().unwrap();
    sluice.admit(Entry::of("a"), 1).unwrap();
    let cx = Context::new();
    let mut door = ByHand::new(sluice.enter(&cx, Entry::of("a"), 2));
    assert!(door.poll().is_none());
    sluice.try_next().unwrap().finish();
    let mut room = ByHand::new(sluice.room_for(1));
    assert!(room.poll().is_none(), "the room is promised");
    drop(door.poll().unwrap());
    assert!(room.poll().is_some());
    sluice.admit(Entry::of("a"), 3).unwrap();
}

/// A worker that was called and does not look keeps the others from nothing.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_slow_to_look_stops_nobody_else() {
    let sluice = Sluice::<u32>::builder("heard", 8, 100).build().unwrap();
    let mut slow = ByHand::new(sluice.next());
    assert!(slow.poll().is_none());
    let mut quick = ByHand::new(sluice.next());
    assert!(quick.poll().is_none());
    sluice.admit(Entry::of("a"), 1).unwrap();
    assert_eq!((slow.wakes(), quick.wakes()), (1, 0));
    sluice.admit(Entry::of("a"), 2).unwrap();
    assert_eq!((slow.wakes(), quick.wakes()), (1, 1), "there is something for it too");
    assert_eq!(quick.poll().unwrap().unwrap().finish(), 1);
    settle().await;
}

/// What it was called for another took: what comes next is not for it to take.
#[tokio::test(start_paused = true)]
async fn a_worker_that_was_called_for_what_is_gone_stops_nobody_else() {
    let sluice = Sluice::<u32>::builder("heard", 8, 100).build().unwrap();
    let mut slow = ByHand::new(sluice.next());
    assert!(slow.poll().is_none());
    sluice.admit(Entry::of("a"), 1).unwrap();
    assert_eq!((slow.wakes(), sluice.try_next().unwrap().finish()), (1, 1));
    let mut quick = ByHand::new(sluice.next());
    assert!(quick.poll().is_none());
    sluice.admit(Entry::of("a"), 2).unwrap();
    assert_eq!(quick.wakes(), 1, "it may start, and a worker is idle");
    assert_eq!(quick.poll().unwrap().unwrap().finish(), 2);
    assert!(slow.poll().is_none());
}

/// The same for what comes only later: the timer is set though somebody was called and does not look.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_slow_to_look_stops_no_timer() {
    let sluice = Sluice::<u32>::builder("heard", 8, 100).build().unwrap();
    let mut slow = ByHand::new(sluice.next());
    assert!(slow.poll().is_none());
    sluice.admit(Entry::of("a"), 1).unwrap();
    let again = Instant::now() + ms(50);
    sluice.try_next().unwrap().retry_at(Some(again)).unwrap();
    let mut quick = ByHand::new(sluice.next());
    assert!(quick.poll().is_none());
    tokio::time::sleep(ms(60)).await;
    assert_eq!(quick.wakes(), 1, "its moment came, and a worker is idle");
}

/// A waker that panics, as no executor's should.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker");
    }
}

fn poll_badly<F: Future>(future: Pin<&mut F>) {
    let waker = Waker::from(Arc::new(Panics));
    assert!(future.poll(&mut std::task::Context::from_waker(&waker)).is_pending());
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_no_other_from_hearing() {
    let sluice = Sluice::<u32>::builder("heard", 8, 100).build().unwrap();
    let mut bad = pin!(sluice.next());
    poll_badly(bad.as_mut());
    let mut good = ByHand::new(sluice.next());
    assert!(good.poll().is_none());
    assert_eq!((sluice.close(), good.wakes()), (vec![], 1));
}

/// Neither does the timer end over it, nor is what was pulled in the same step lost.
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_costs_neither_the_turn_nor_the_timer() {
    let sluice = Sluice::<u32>::builder("heard", 8, 100).build().unwrap();
    let due = Instant::now() + ms(10);
    for n in 0..2 {
        sluice.admit(Entry::of("a").key(format!("k{n}")), n).unwrap();
        sluice.try_next().unwrap().retry_at(Some(due)).unwrap();
    }
    let mut bad = Box::pin(sluice.next());
    poll_badly(bad.as_mut());
    tokio::time::sleep_until(due + ms(1)).await;
    let first = sluice.try_next().unwrap();
    drop(bad);
    first.retry_at(Some(due + ms(20))).unwrap();
    assert_eq!(sluice.try_next().unwrap().finish(), 1);
    assert_eq!(sluice.next().await.unwrap().finish(), 0);
    assert_eq!(Instant::now(), due + ms(20));
}

#[tokio::test]
async fn an_owner_that_panics_while_a_turn_unwinds_ends_nothing_but_that() {
    let builder = Sluice::<u32>::builder("heard", 1, 10).on_dropped(|_| panic!("the owner"));
    let sluice = builder.build().unwrap();
    sluice.admit(Entry::of("a").key("k"), 1).unwrap();
    let turn = sluice.try_next().unwrap();
    let ended = tokio::spawn(async move {
        let _held = turn;
        panic!("the work");
    });
    assert!(ended.await.is_err());
    assert_eq!((sluice.stats().gauges.running, sluice.stats().panicked), (0, 1));
}

/// However a turn ends, it has cost what was said.
#[tokio::test(start_paused = true)]
async fn a_said_cost_holds_for_turns_that_are_given_up() {
    let sluice = Sluice::<u32>::builder("heard", 1, 500).build().unwrap();
    for n in 0..400 {
        let tenant = if n % 2 == 0 { "steady" } else { "gives up" };
        sluice.admit(Entry::of(tenant).cost(4_000), n % 2).unwrap();
    }
    let mut given_up = 0;
    for _ in 0..100 {
        let mut turn = sluice.try_next().unwrap();
        tokio::time::advance(ms(2)).await;
        turn.set_cost(4_000);
        match *turn.value() {
            0 => drop(turn.finish()),
            _ => {
                given_up += 1;
                drop(turn);
            }
        }
    }
    assert_eq!(given_up, 50);
}

/// What a drain says adds up: an item is finished, handed back or dropped, and a kept key is named.
#[tokio::test(start_paused = true)]
async fn a_drain_counts_each_item_once_and_names_kept_keys() {
    let sluice = Sluice::<u32>::builder("heard", 9, 10).build().unwrap();
    for n in 0..4 {
        sluice.admit(Entry::of("a").key(format!("k{n}")), n).unwrap();
    }
    let mut turns: Vec<_> = (0..4).map(|_| sluice.try_next().unwrap()).collect();
    let (_, kept) = turns.pop().unwrap().linger();
    let mut drain = ByHand::new(sluice.drain(Instant::now() + ms(1_000)));
    assert!(drain.poll().is_none());
    assert_eq!(turns.pop().unwrap().retry_at(None), Err(2));
    drop(turns.pop());
    turns.pop().unwrap().finish();
    tokio::time::advance(ms(1_001)).await;
    assert!(drain.poll().is_none());
    tokio::time::advance(ms(101)).await;
    let report = drain.poll().unwrap();
    assert_eq!((report.finished, report.handed_back, report.dropped), (1, 1, 1), "{report}");
    assert!(!report.is_clean());
    assert_eq!(report.abandoned[0].name, "key k3, kept");
    drop(kept);
}
