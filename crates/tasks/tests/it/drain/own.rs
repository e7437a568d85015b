//! Draining a group from inside one of its own tasks: for all the others.

use std::future::pending;

use sluicegate_tasks::{Context, TaskError, TaskGroup};
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
