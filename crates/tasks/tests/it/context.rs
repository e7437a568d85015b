//! Contexts: what ends with what, and who is told.

use std::future::{Future, pending};
use std::task::Context as Poller;

use sluicegate_tasks::{Context, Interrupt, TaskGroup};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::probe::{ByHand, Guard, PanicsWhenWoken, ms, settle};

#[tokio::test(start_paused = true)]
async fn a_new_context_goes_on() {
    let cx = Context::new();
    assert_eq!(cx.check(), Ok(()));
    assert!(!cx.is_cancelled());
    assert_eq!((cx.deadline(), cx.remaining()), (None, None));
    assert!(ByHand::new(cx.cancelled()).poll().is_none());
    assert_eq!(Context::default().check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn children_end_with_their_parents_at_any_depth() {
    let parent = Context::new();
    let children = [
        parent.child(),
        parent.child().child(),
        parent.with_timeout(ms(1000)),
        parent.with_deadline(Instant::now() + ms(1000)).child().child(),
    ];
    let mut waits: Vec<_> = children.iter().map(|child| ByHand::new(child.cancelled())).collect();
    assert!(waits.iter_mut().all(|wait| wait.poll().is_none()));
    parent.cancel();
    for (child, wait) in children.iter().zip(&mut waits) {
        assert_eq!(child.check(), Err(Interrupt::Cancelled));
        assert_eq!(wait.wakes(), 1, "cancelled() wakes");
        assert_eq!(wait.poll(), Some(Interrupt::Cancelled));
    }
    assert_eq!(parent.child().check(), Err(Interrupt::Cancelled), "also those made afterwards");
    assert_eq!(parent.child().cancelled().await, Interrupt::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn parents_and_siblings_do_not_end_with_a_child() {
    let parent = Context::new();
    let (one, other) = (parent.child(), parent.child());
    one.cancel();
    assert!(one.is_cancelled());
    assert_eq!((parent.check(), other.check()), (Ok(()), Ok(())));
    assert!(ByHand::new(parent.cancelled()).poll().is_none());
    assert!(ByHand::new(other.cancelled()).poll().is_none());
}

#[test]
fn clones_are_one_context() {
    let cx = Context::new().child();
    let clone = cx.clone();
    let child_of_clone = clone.child();
    cx.cancel();
    assert_eq!(clone.check(), Err(Interrupt::Cancelled));
    assert_eq!(child_of_clone.check(), Err(Interrupt::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn deadlines_only_shrink() {
    let now = Instant::now();
    let outer = Context::new().with_deadline(now + ms(100));
    for (inner, at) in [
        (outer.with_timeout(ms(500)), 100),
        (outer.with_deadline(now + ms(101)), 100),
        (outer.with_timeout(ms(99)), 99),
        (outer.with_deadline(now), 0),
        (outer.child(), 100),
        (outer.with_timeout(ms(50)).with_timeout(ms(80)), 50),
    ] {
        assert_eq!(inner.deadline(), Some(now + ms(at)));
        assert_eq!(inner.remaining(), Some(ms(at)));
    }
    assert_eq!(outer.deadline(), Some(now + ms(100)));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_never_comes_is_none() {
    let cx = Context::new().with_timeout(std::time::Duration::MAX);
    assert_eq!((cx.deadline(), cx.check()), (None, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_it_to_the_moment() {
    let begun = Instant::now();
    let cx = Context::new().with_timeout(ms(250));
    let child = cx.child();
    assert_eq!(child.cancelled().await, Interrupt::TimedOut);
    assert_eq!(begun.elapsed(), ms(250));
    assert_eq!((cx.check(), cx.remaining()), (Err(Interrupt::TimedOut), Some(ms(0))));
    assert!(child.is_cancelled());
    child.cancel();
    assert_eq!(child.check(), Err(Interrupt::Cancelled), "cancellation says more than time");
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_until_interrupted() {
    let cx = Context::new().with_timeout(ms(10));
    assert_eq!(cx.until_interrupted(async { 7 }).await, Ok(7));
    let (guard, dropped) = Guard::new();
    let holds = async move {
        let _guard = guard;
        pending::<()>().await;
    };
    assert_eq!(cx.until_interrupted(holds).await, Err(Interrupt::TimedOut));
    assert_eq!(dropped.get(), 1, "dropped where it stood");
    assert_eq!(cx.until_interrupted(async { 8 }).await, Ok(8), "what is done is not taken away");

    let cx = Context::new();
    let mut cut = ByHand::new(cx.until_interrupted(pending::<()>()));
    assert!(cut.poll().is_none());
    cx.cancel();
    assert_eq!((cut.wakes(), cut.poll()), (1, Some(Err(Interrupt::Cancelled))));
}

#[test]
fn an_interrupt_says_which() {
    assert_eq!(Interrupt::Cancelled.to_string(), "cancelled");
    assert_eq!(Interrupt::TimedOut.to_string(), "timed out");
}

/// Starts a task of `inner` from within a task of `outer`; hands out the inner task's context.
async fn nested(outer: &TaskGroup, inner: &TaskGroup) -> Context {
    let (tell, told) = oneshot::channel();
    let inner = inner.clone();
    let task = outer.submit(Context::new(), |cx| async move {
        let within = inner.submit(&cx, |cx| async move {
            tell.send(cx.clone()).unwrap();
            cx.cancelled().await
        });
        within.await.unwrap().await.unwrap();
    });
    drop(task.await.unwrap());
    told.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_task_within_two_groups_ends_when_either_drain_deadline_passes() {
    for drains_outer in [true, false] {
        let outer = TaskGroup::new("outer", 2).unwrap();
        let inner = TaskGroup::new("inner", 2).unwrap();
        let cx = nested(&outer, &inner).await;
        assert_eq!(cx.check(), Ok(()));
        let begun = Instant::now();
        let drained = if drains_outer { &outer } else { &inner };
        let report = drained.drain(begun + ms(40)).await;
        assert_eq!(cx.check(), Err(Interrupt::Cancelled));
        assert_eq!(report.cancelled.len(), 1, "{report}");
        assert_eq!(cx.cancelled().await, Interrupt::Cancelled);
        settle().await;
        assert!(inner.running().is_empty() && outer.running().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_childs_task_ends_with_the_parents_drain_deadline_whatever_its_context() {
    let parent = TaskGroup::new("parent", 4).unwrap();
    let child = parent.child("child").unwrap();
    let (tell, told) = oneshot::channel();
    let task = child.submit(Context::new(), |cx| async move {
        tell.send(cx.clone()).unwrap();
        cx.cancelled().await;
        cx.check()
    });
    let task = task.await.unwrap();
    let hold = parent.submit(Context::new(), |cx| async move { cx.cancelled().await });
    let hold = hold.await.unwrap();
    let cx = told.await.unwrap();
    drop(parent.drain(Instant::now() + ms(5)).await);
    assert_eq!(cx.check(), Err(Interrupt::Cancelled), "to look at");
    assert_eq!(cx.cancelled().await, Interrupt::Cancelled, "and to wait for");
    assert_eq!(task.await, Ok(Err(Interrupt::Cancelled)));
    assert_eq!(hold.await, Ok(Interrupt::Cancelled));
}

/// Each task gives its context to the next. The stack of a test's thread would not hold a chain of all.
#[tokio::test]
async fn a_context_that_goes_from_task_to_task_does_not_grow() {
    let groups = ["a", "b", "c"].map(|name| TaskGroup::new(name, 1).unwrap());
    let mut cx = Context::new();
    for n in 0..100_000 {
        cx = groups[n % 3].run(&cx, |cx| async move { cx }).await.unwrap();
    }
    assert!(groups[2].drain(Instant::now()).await.is_clean());
    assert_eq!(cx.check(), Ok(()));
    // It is still a context of all three: whichever ends takes it along.
    drop(groups);
    assert_eq!(cx.check(), Err(Interrupt::Cancelled));
}

#[test]
fn a_waker_that_panics_keeps_no_other_asleep() {
    let cx = Context::new();
    let waker = PanicsWhenWoken::waker();
    let mut bad = Box::pin(cx.cancelled());
    assert!(bad.as_mut().poll(&mut Poller::from_waker(&waker)).is_pending());
    let mut good = ByHand::new(cx.cancelled());
    assert!(good.poll().is_none());
    cx.cancel();
    assert_eq!((good.wakes(), good.poll()), (1, Some(Interrupt::Cancelled)));
}

#[test]
fn a_chain_of_children_may_be_longer_than_the_stack() {
    let (first, mut last) = (Context::new(), Context::new());
    let mut wide = Vec::new();
    for n in 0..100_000 {
        last = if n == 0 { first.child() } else { last.child() };
        if n % 10_000 == 0 {
            wide.push(last.child());
        }
    }
    assert_eq!(last.check(), Ok(()));
    let mut waits = ByHand::new(last.cancelled());
    assert!(waits.poll().is_none());
    first.cancel();
    assert_eq!((last.check(), waits.wakes()), (Err(Interrupt::Cancelled), 1));
    drop(waits);
    drop((first, last));
    assert!(wide.iter().all(Context::is_cancelled));
}
