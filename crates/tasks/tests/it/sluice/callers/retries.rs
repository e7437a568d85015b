//! Items put back: at the front of their key, and not before their time.

use std::sync::{Arc, Mutex};
use std::task::{Context as Poller, Poll, Wake, Waker};

use sluicegate_tasks::{Admitted, Context, Entry, Sluice, TenantLimits, Turn};
use tokio::time::Instant;

use super::sluice;
use crate::probe::{ByHand, ms, settle};
use crate::sluice::{ROOM, enter, in_line, turn_now};

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_the_front_of_its_key_and_comes_at_its_time() {
    let sluice = sluice(3);
    let entry = || Entry::of("alice").key("cart");
    let begun = Instant::now();
    let first = turn_now(&sluice, entry(), 1);
    let mut second = in_line(&sluice, entry(), 2);
    let again = first.wait_again(begun + ms(250));
    assert_eq!(*again.value(), 1);
    let other = turn_now(&sluice, Entry::of("alice").key("other"), 3);
    assert_eq!(other.finish(), 3, "other keys go on");
    assert_eq!((second.wakes(), sluice.stats().gauges.running), (0, 0));
    let again = again.turn().await.unwrap();
    assert_eq!(begun.elapsed(), ms(250));
    assert!(second.poll().is_none());
    assert_eq!(again.finish(), 1);
    assert_eq!(second.poll().unwrap().unwrap().finish(), 2);
    let stats = sluice.stats();
    assert_eq!((stats.admitted, stats.started, stats.completed), (3, 4, 4), "each attempt counts");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_due_goes_before_those_behind_it() {
    let sluice = sluice(1);
    let entry = || Entry::of("alice").key("cart");
    let first = turn_now(&sluice, entry(), 1);
    let mut second = in_line(&sluice, entry(), 2);
    let mut again = ByHand::new(first.wait_again(Instant::now()).turn());
    assert!(second.poll().is_none());
    assert_eq!(again.poll().unwrap().unwrap().finish(), 1);
    assert_eq!(second.poll().unwrap().unwrap().finish(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_given_up_lets_its_key_go_on_at_once() {
    let sluice = sluice(1);
    let entry = || Entry::of("alice").key("cart");
    let again = turn_now(&sluice, entry(), 1).wait_again(Instant::now() + ms(60_000));
    let mut second = in_line(&sluice, entry(), 2);
    drop(again);
    assert_eq!(second.wakes(), 1);
    assert_eq!(second.poll().unwrap().unwrap().finish(), 2);
    assert_eq!(sluice.stats().gauges.queued, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_under_a_context_that_ends_gives_the_item_back() {
    let sluice = sluice(1);
    let (begun, cx) = (Instant::now(), Context::new().with_timeout(ms(100)));
    let turn = enter(&sluice, &cx, Entry::of("alice"), 1).unwrap().turn().await.unwrap();
    let refused = turn.wait_again(begun + ms(500)).turn().await.unwrap_err();
    assert_eq!((refused.work, begun.elapsed()), (1, ms(100)));
    assert_eq!(sluice.stats().gauges.queued, 0);
}

#[tokio::test(start_paused = true)]
async fn many_retries_come_each_at_its_own_time() {
    let sluice = sluice(10);
    let begun = Instant::now();
    let mut waits = Vec::new();
    for after in [700, 100, 400, 900, 100, 50] {
        let turn = turn_now(&sluice, Entry::of("alice"), ());
        let again = turn.wait_again(begun + ms(after));
        waits.push(tokio::spawn(async move {
            again.turn().await.unwrap().finish();
            assert_eq!(begun.elapsed(), ms(after));
        }));
    }
    for wait in waits {
        wait.await.unwrap();
    }
    assert_eq!(sluice.stats().gauges.running, 0);
}

/// A waker that, when called, puts back the item it holds.
struct PutsBack {
    turn: Mutex<Option<Turn<&'static str>>>,
    again: Mutex<Option<Admitted<&'static str>>>,
    at: Instant,
}

impl Wake for PutsBack {
    fn wake(self: Arc<Self>) {
        let turn = self.turn.lock().unwrap().take();
        *self.again.lock().unwrap() = turn.map(|turn| turn.wait_again(self.at));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_overtaken_does_not_put_off_the_one_that_overtook_it() {
    let sluice = Sluice::builder("sluice", 3, ROOM)
        .tenant("alice", TenantLimits::new().max_running(1))
        .build()
        .unwrap();
    let begun = Instant::now();
    let slow = turn_now(&sluice, Entry::of("alice").key("slow"), "slow");
    let soon = turn_now(&sluice, Entry::of("bob").key("soon"), "soon");
    let waits = enter(&sluice, &Context::new(), Entry::of("alice"), "waits").unwrap();
    let mut waits = Box::pin(waits.turn());
    let (turn, again) = (Mutex::new(Some(soon)), Mutex::new(None));
    let overtakes = Arc::new(PutsBack { turn, again, at: begun + ms(1000) });
    let waker = Waker::from(Arc::clone(&overtakes));
    assert!(matches!(waits.as_mut().poll(&mut Poller::from_waker(&waker)), Poll::Pending));
    // This lets the other item of its tenant start, whose waker makes the later, sooner change
    // while this one is not over yet.
    let slow = slow.wait_again(begun + ms(3_600_000));
    settle().await;
    let again = overtakes.again.lock().unwrap().take().unwrap();
    assert_eq!(again.turn().await.unwrap().finish(), "soon");
    assert_eq!(begun.elapsed(), ms(1000));
    drop(waits);
    assert_eq!(slow.turn().await.unwrap().finish(), "slow");
    assert_eq!(begun.elapsed(), ms(3_600_000));
}
