//! Draining a group from inside one of its own tasks: for all the others.

use std::future::{Future, pending, poll_fn};
use std::task::Poll;

use sluicegate_tasks::{Context, TaskError, TaskGroup};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{assert_zero, counts, names, orders};
use crate::probe::{Guard, ms, settle};

async fn sleeps(cx: Context, millis: u64) {
    cx.until_interrupted(tokio::time::sleep(ms(millis))).await.ok();
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_the_others_and_not_for_itself() {
    let group = orders(3);
    let other = group.submit(Context::new(), |cx| sleeps(cx, 300)).await.unwrap();
    let own = group.clone();
    let begun = Instant::now();
    let report = group.run(Context::new(), |cx| async move {
        let report = own.drain(Instant::now() + ms(60_000)).await;
        assert_eq!(cx.check(), Ok(()), "nothing ran into the deadline");
        report
    });
    let report = report.await.unwrap();
    assert_eq!((counts(&report), begun.elapsed()), ((1, 0, 0, 0), ms(300)), "{report}");
    assert!(other.await.is_ok());
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn past_the_deadline_the_others_are_ended_and_it_still_gets_the_report() {
    let group = TaskGroup::builder("orders", 3).unwind(ms(10)).build().unwrap();
    let (guard, dropped) = Guard::new();
    let stuck = group.submit_detached("stuck", |cx| async move {
        let _held = (guard, cx);
        pending::<()>().await;
    });
    let stuck = stuck.await.unwrap();
    let own = group.clone();
    let drains = group.submit_detached("drains", |cx| async move {
        let report = own.drain(Instant::now() + ms(20)).await;
        (report, cx.is_cancelled())
    });
    let (report, cancelled) = drains.await.unwrap().await.unwrap();
    assert_eq!((names(&report.cancelled), report.abandoned.len()), (vec!["stuck"], 0), "{report}");
    assert!(cancelled, "its context ended with the others'");
    assert_eq!((stuck.await, dropped.get()), (Err(TaskError::Aborted), 1));
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn after_its_report_it_is_ended_as_the_others_were() {
    let group = TaskGroup::builder("orders", 2).unwind(ms(10)).build().unwrap();
    let stuck = group.submit(Context::new(), |cx| async move {
        drop(cx);
        pending::<()>().await;
    });
    let stuck = stuck.await.unwrap();
    let own = group.clone();
    let drains = group.submit(Context::new(), |cx| async move {
        drop((own.drain(Instant::now() + ms(20)).await, cx));
        pending::<()>().await;
    });
    assert_eq!(drains.await.unwrap().await, Err(TaskError::Aborted));
    assert_eq!(stuck.await, Err(TaskError::Aborted));
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn from_a_child_or_through_another_group_it_does_not_wait_for_who_waits_for_it() {
    for through in ["a child", "another group"] {
        let group = orders(2);
        let other = TaskGroup::new("other", 1).unwrap();
        let own = group.clone();
        let begun = Instant::now();
        let report = group.run(Context::new(), move |cx| async move {
            let within = match through {
                "a child" => own.child("parts").unwrap(),
                _ => other,
            };
            let drains = |cx: Context| async move {
                drop(cx);
                own.drain(Instant::now() + ms(60_000)).await
            };
            within.run(&cx, drains).await
        });
        let report = report.await.unwrap().unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(begun.elapsed(), ms(0), "{through}");
        settle().await;
        assert_zero(&group);
    }
}

#[tokio::test(start_paused = true)]
async fn from_a_task_of_a_child_made_outside() {
    let group = orders(2);
    let child = group.child("share").unwrap();
    let own = group.clone();
    let report = child.run(Context::new(), |cx| async move {
        drop(cx);
        own.drain(Instant::now() + ms(60_000)).await
    });
    assert_eq!(report.await.unwrap().took, ms(0));
    assert_zero(&group);
}

/// The abort of its own group comes while it still waits there: the end of another drain in the same
/// poll is not the end of that one.
#[tokio::test(start_paused = true)]
async fn the_end_of_another_drain_leaves_it_in_its_own() {
    for first in [true, false] {
        let group = TaskGroup::builder("orders", 3).unwind(ms(500)).build().unwrap();
        let other = TaskGroup::new("other", 1).unwrap();
        let (release, released) = oneshot::channel::<()>();
        // Blocking work cannot be aborted.
        let (begin, begun) = std::sync::mpsc::channel();
        let stuck = group.submit_blocking(Context::new(), move |_| {
            begin.send(()).unwrap();
            drop(released.blocking_recv());
        });
        let stuck = stuck.await.unwrap();
        settle().await;
        begun.recv().unwrap();
        let ends = other.submit(Context::new(), |_| tokio::time::sleep(ms(850))).await.unwrap();
        let own = group.clone();
        let drains = group.submit(Context::new(), move |_| async move {
            let far = Instant::now() + ms(10_000);
            // Deadline at 100, abort at 600, the other ends at 850, report at 1100.
            let (mine, others) = (own.drain(Instant::now() + ms(100)), other.drain(far));
            let (mine, others) = if first {
                tokio::join!(biased; mine, others)
            } else {
                let (others, mine) = tokio::join!(biased; others, mine);
                (mine, others)
            };
            (mine.abandoned.len(), others.is_clean())
        });
        let drains = drains.await.unwrap();
        // The clock does not go on by itself while something blocks a thread.
        for _ in 0..120 {
            settle().await;
            tokio::time::advance(ms(10)).await;
        }
        settle().await;
        assert!(drains.is_finished());
        assert_eq!(drains.await, Ok((1, true)), "polled first: {first}");
        release.send(()).unwrap();
        stuck.await.unwrap();
        ends.await.unwrap();
    }
}

/// A drain that goes on elsewhere is not one that the task waits in.
#[tokio::test(start_paused = true)]
async fn a_drain_that_is_handed_on_no_longer_keeps_the_task() {
    let group = TaskGroup::builder("orders", 2).unwind(ms(10)).build().unwrap();
    let stuck = group.submit(Context::new(), |_| pending::<()>()).await.unwrap();
    let own = group.clone();
    let (hand_on, handed_on) = oneshot::channel();
    let task = group.submit(Context::new(), |_| async move {
        let mut drain = Box::pin(async move { own.drain(Instant::now() + ms(60_000)).await });
        let once = poll_fn(|poller| Poll::Ready(drain.as_mut().poll(poller)));
        assert!(once.await.is_pending());
        hand_on.send(drain).ok();
        pending::<()>().await;
    });
    let task = task.await.unwrap();
    drop(handed_on.await.unwrap());
    let report = group.drain(Instant::now()).await;
    assert_eq!((report.cancelled.len(), report.abandoned.len()), (2, 0), "{report}");
    assert_eq!((task.await, stuck.await), (Err(TaskError::Aborted), Err(TaskError::Aborted)));
}
