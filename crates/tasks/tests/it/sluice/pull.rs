//! Pulling: one puller for each value, called once, and no call is lost.
//!
//! `docs/rules.md#sluice-1`.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Poller, Poll, Wake, Waker};

use sluicegate_tasks::{Entry, Rate, Sluice, TenantLimits, Why};
use tokio::time::Instant;

use super::{batch, cart, gauges, pull, run_all, sluice};
use crate::probe::{ByHand, Guard, ms, settle};

fn free() -> Entry {
    Entry::of("alice")
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_in_order_and_one_at_a_time() {
    let sluice = sluice(4, 10);
    sluice.admit_all(batch(cart, [1, 2])).unwrap();
    sluice.admit(cart(), 3).unwrap();
    sluice.admit(Entry::of("alice").key("other"), 4).unwrap();
    let (first, other) = (pull(&sluice), pull(&sluice));
    assert_eq!((*first.value(), *other.value()), (1, 4));
    assert!(sluice.try_next().is_none());
    assert_eq!(first.finish(), 1);
    let second = pull(&sluice);
    assert!(sluice.try_next().is_none());
    drop(second);
    assert_eq!((pull(&sluice).finish(), other.finish()), (3, 4));
    assert_eq!(gauges(&sluice), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_puller_is_called_for_each_value_in_the_order_they_came() {
    let sluice = sluice(4, 10);
    let mut pullers = [(); 3].map(|()| ByHand::new(sluice.next()));
    assert!(pullers.iter_mut().all(|puller| puller.poll().is_none()));
    sluice.admit(free(), 1).unwrap();
    assert_eq!(pullers.each_ref().map(ByHand::wakes), [1, 0, 0]);
    sluice.admit(free(), 2).unwrap();
    assert_eq!(pullers.each_ref().map(ByHand::wakes), [1, 1, 0]);
    let [first, second, third] = &mut pullers;
    // Whoever looks first takes the first; nobody is called twice for one value.
    let one = second.poll().unwrap().unwrap();
    let two = first.poll().unwrap().unwrap();
    assert_eq!((*one.value(), *two.value()), (1, 2));
    assert!(third.poll().is_none());
    sluice.admit_all(batch(free, 3..9)).unwrap();
    assert_eq!(third.wakes(), 1);
    assert_eq!(*third.poll().unwrap().unwrap().value(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_gives_up_passes_its_call_on() {
    let sluice = sluice(4, 10);
    let mut pullers = [(); 4].map(|()| ByHand::new(sluice.next()));
    assert!(pullers.iter_mut().all(|puller| puller.poll().is_none()));
    let [first, second, mut third, mut fourth] = pullers;
    drop(second); // not called: nothing to pass on
    sluice.admit(free(), 1).unwrap();
    assert_eq!((first.wakes(), third.wakes()), (1, 0));
    drop(first);
    assert_eq!((third.wakes(), fourth.wakes()), (1, 0));
    drop(third.poll().unwrap().unwrap());
    assert!(fourth.poll().is_none());
    sluice.admit(free(), 2).unwrap();
    drop(fourth); // the last one: the value waits for whoever asks next
    assert_eq!(pull(&sluice).finish(), 2);
}

/// Called for a value that another then takes, a puller waits on and is called for the next.
#[tokio::test(start_paused = true)]
async fn one_that_is_forestalled_is_called_again() {
    let sluice = sluice(1, 10);
    let mut waits = ByHand::new(sluice.next());
    assert!(waits.poll().is_none());
    sluice.admit_all(batch(free, [1, 2])).unwrap();
    let first = pull(&sluice);
    assert!(waits.poll().is_none());
    assert_eq!((waits.wakes(), first.finish()), (1, 1));
    assert_eq!(waits.wakes(), 2);
    assert_eq!(waits.poll().unwrap().unwrap().finish(), 2);
    // And one that was called and has not looked yet is not called twice.
    let mut waits = ByHand::new(sluice.next());
    assert!(waits.poll().is_none());
    for value in [3, 4] {
        sluice.admit(free(), value).unwrap();
        assert_eq!((waits.wakes(), pull(&sluice).finish()), (1, value));
    }
    sluice.admit(free(), 5).unwrap();
    assert_eq!(waits.wakes(), 1);
    assert_eq!(waits.poll().unwrap().unwrap().finish(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_poll_by_another_task_wakes_that_one() {
    let sluice = sluice(1, 10);
    let mut next = Box::pin(sluice.next());
    let [old, new] = [(); 2].map(|()| Arc::<crate::probe::Count>::default());
    for task in [&old, &new] {
        let waker = Waker::from(Arc::clone(task));
        assert!(next.as_mut().poll(&mut Poller::from_waker(&waker)).is_pending());
    }
    sluice.admit(free(), 1).unwrap();
    assert_eq!((old.get(), new.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn pullers_are_woken_at_the_right_moment_of_a_rate() {
    let rate = Rate::new(2, ms(1000), 1).unwrap();
    let sluice = Sluice::<u32>::builder("sluice", 9, 10).rate(rate).build().unwrap();
    let begun = Instant::now();
    sluice.admit_all(batch(free, 0..3)).unwrap();
    let mut came = Vec::new();
    for _ in 0..3 {
        let value = sluice.next().await.unwrap().finish();
        came.push((value, begun.elapsed()));
    }
    assert_eq!(came, [(0, ms(0)), (1, ms(500)), (2, ms(1000))]);
    // Two wait; the rate is raised, then removed.
    sluice.admit_all(batch(free, 3..6)).unwrap();
    let mut waits = ByHand::new(sluice.next());
    assert!(waits.poll().is_none());
    sluice.set_rate(Some(Rate::new(20, ms(1000), 1).unwrap()));
    tokio::time::advance(ms(50)).await;
    settle().await;
    assert_eq!(waits.wakes(), 1);
    assert_eq!(waits.poll().unwrap().unwrap().finish(), 3);
    sluice.set_rate(None);
    assert_eq!(run_all(&sluice), [4, 5]);
}

/// The clock alone may have let something start that nobody was told of yet.
#[tokio::test(start_paused = true)]
async fn whoever_looks_sees_what_the_clock_has_let_go() {
    let sluice = sluice(1, 10);
    sluice.admit(free(), 1).unwrap();
    pull(&sluice).retry_at(Some(Instant::now() + ms(10))).unwrap();
    assert!(sluice.try_next().is_none());
    tokio::time::advance(ms(10)).await;
    assert_eq!(pull(&sluice).finish(), 1);
}

#[tokio::test(start_paused = true)]
async fn tenants_share_by_weight_and_stay_below_their_limits() {
    let limits = TenantLimits::new().max_running(2);
    let sluice = Sluice::<u8>::builder("sluice", 3, 1000)
        .each_tenant(limits)
        .tenant("gold", limits.weight(2))
        .build()
        .unwrap();
    sluice.admit_all(batch(|| Entry::of("gold"), [2; 60])).unwrap();
    sluice.admit_all(batch(|| Entry::of("silver"), [1; 60])).unwrap();
    let mut out = std::collections::VecDeque::new();
    let mut came = Vec::new();
    while came.len() < 60 {
        while let Some(turn) = sluice.try_next() {
            came.push(*turn.value());
            out.push_back(turn);
        }
        assert!(sluice.tenants().iter().all(|tenant| tenant.running <= 2));
        drop(out.pop_front());
    }
    let gold = came.iter().filter(|value| **value == 2).count();
    assert!((38..=42).contains(&gold), "{gold} of {}", came.len());
}

#[tokio::test(start_paused = true)]
async fn everything_is_counted() {
    let sluice = sluice(2, 4);
    assert_eq!(sluice.name(), "sluice");
    (0..4).for_each(|n| assert!(sluice.admit(free(), n).is_ok()));
    assert!(sluice.admit(free(), 4).is_err());
    tokio::time::advance(ms(30)).await;
    let (finished, failed) = (pull(&sluice), pull(&sluice));
    assert_eq!(sluice.stats().gauges.oldest_wait, ms(30));
    assert_eq!(sluice.why(finished.id()).unwrap().why, Why::Running);
    tokio::time::advance(ms(70)).await;
    assert_eq!((finished.finish(), failed.fail()), (0, 1));
    let panics = pull(&sluice);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _held = panics;
        panic!("as a worker may");
    }));
    assert!(caught.is_err());
    sluice.close();
    let stats = sluice.stats();
    assert_eq!((stats.admitted, stats.started, stats.completed), (4, 3, 2));
    assert_eq!((stats.failed, stats.panicked, stats.handed_back), (1, 1, 1));
    assert_eq!(stats.rejected, [("queue_full", 1)]);
    assert_eq!((stats.wait_time.count(), stats.run_time.count()), (3, 2));
    assert!((ms(30)..ms(40)).contains(&stats.wait_time.quantile(0.5)));
    assert!((ms(70)..ms(90)).contains(&stats.run_time.quantile(0.5)));
    assert_eq!((stats.gauges.queued, stats.gauges.running, stats.gauges.limit), (0, 0, 2));
}

/// A task that looks into the sluice whenever its waker is called or dropped: under a lock of ours
/// it would never return.
struct Nosy(Sluice<Guard>);

impl Nosy {
    /// Polls twice, so that the second waker displaces the first.
    fn poll<F: Future>(sluice: &Sluice<Guard>, mut future: Pin<&mut F>) -> Poll<F::Output> {
        let mut poll = || {
            let waker = Waker::from(Arc::new(Self(sluice.clone())));
            future.as_mut().poll(&mut Poller::from_waker(&waker))
        };
        match poll() {
            Poll::Pending => poll(),
            ready => ready,
        }
    }
}

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.0.stats().gauges.limit, 1);
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        assert_eq!(self.0.stats().gauges.limit, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn wakers_are_called_and_dropped_with_no_lock_held() {
    let sluice = sluice(1, 1);
    let (guard, dropped) = Guard::new();
    let (mut called, mut waits) = (pin!(sluice.next()), Box::pin(sluice.next()));
    assert!(Nosy::poll(&sluice, called.as_mut()).is_pending());
    assert!(Nosy::poll(&sluice, waits.as_mut()).is_pending());
    sluice.admit(free(), guard).unwrap();
    drop(waits);
    let Poll::Ready(turn) = Nosy::poll(&sluice, called.as_mut()) else { panic!("called") };
    sluice.admit(free(), Guard::new().0).unwrap();
    let (mut room, mut emptied) = (pin!(sluice.room_for(1)), pin!(sluice.emptied()));
    let mut given_up = Box::pin(sluice.room_for(1));
    assert!(Nosy::poll(&sluice, room.as_mut()).is_pending());
    assert!(Nosy::poll(&sluice, emptied.as_mut()).is_pending());
    assert!(Nosy::poll(&sluice, given_up.as_mut()).is_pending());
    drop(given_up);
    drop(turn);
    assert_eq!(dropped.get(), 1);
    assert!(Nosy::poll(&sluice, emptied.as_mut()).is_ready(), "nobody has pulled the other");
    let mut waits = pin!(sluice.next());
    drop(pull(&sluice));
    assert!(Nosy::poll(&sluice, room.as_mut()).is_ready());
    assert!(Nosy::poll(&sluice, waits.as_mut()).is_pending());
    drop(sluice.close());
    assert!(Nosy::poll(&sluice, waits.as_mut()).is_ready());
}
