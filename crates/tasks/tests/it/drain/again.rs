//! Draining twice, at once, midway, and after the end.

use sluicegate_tasks::{Context, TaskError, TaskGroup};
use tokio::time::Instant;

use super::{assert_zero, counts, queueing};
use crate::probe::{Busy, ByHand, ms, settle};

#[tokio::test(start_paused = true)]
async fn twice_in_a_row_the_second_finds_nothing() {
    let group = queueing(1);
    let busy = Busy::all_of(&group).await;
    let queued = group.submit(Context::new(), |cx| async move { cx.check() }).await.unwrap();
    let (first, ()) = tokio::join!(group.drain(Instant::now() + ms(100)), busy.end());
    assert_eq!(counts(&first), (1, 1, 0, 0));
    let second = group.drain(Instant::now() + ms(100)).await;
    assert_eq!((counts(&second), second.took), ((0, 0, 0, 0), ms(0)));
    assert_eq!(queued.await, Err(TaskError::HandedBack));
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn two_at_once_end_together_and_the_sooner_deadline_counts() {
    let group = TaskGroup::builder("orders", 1).unwind(ms(10)).build().unwrap();
    let begun = Instant::now();
    let runs = group.submit(Context::new(), |cx| async move { cx.cancelled().await });
    let runs = runs.await.unwrap();
    settle().await;
    let clone = group.clone();
    let (late, soon) = tokio::join!(group.drain(begun + ms(5000)), clone.drain(begun + ms(40)));
    assert_eq!((late.took, soon.took), (ms(40), ms(40)));
    assert_eq!((soon.cancelled.len(), late.is_clean()), (1, true));
    assert!(runs.await.is_ok());
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn dropped_midway_admission_stays_closed_and_it_can_be_called_again() {
    let group = queueing(1);
    let busy = Busy::all_of(&group).await;
    let queued = group.submit(Context::new(), |cx| async move { cx.check() }).await.unwrap();
    let mut first = ByHand::new(group.drain(Instant::now() + ms(10)));
    assert!(first.poll().is_none());
    drop(first);
    tokio::time::advance(ms(50)).await;
    settle().await;
    assert!(group.try_submit(Context::new(), |cx| async move { cx.check() }).is_err());
    assert_eq!(queued.await, Err(TaskError::HandedBack));
    assert_eq!(group.running().len(), 1, "the deadline went with the drain");
    let (report, ()) = tokio::join!(group.drain(Instant::now() + ms(100)), busy.end());
    assert_eq!(counts(&report), (1, 0, 0, 0));
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn of_a_clone_after_another_was_dropped() {
    let group = queueing(1);
    let clone = group.clone();
    let task = group.submit(Context::new(), |cx| async move {
        cx.until_interrupted(tokio::time::sleep(ms(5))).await
    });
    let task = task.await.unwrap();
    drop(group);
    let report = clone.drain(Instant::now() + ms(100)).await;
    assert_eq!((counts(&report), task.await), ((1, 0, 0, 0), Ok(Ok(()))));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_group_while_another_drains_it_is_safe() {
    let group = TaskGroup::new("orders", 1).unwrap();
    let drained = group.clone();
    let task = group.submit(Context::new(), |cx| async move {
        cx.until_interrupted(tokio::time::sleep(ms(5))).await
    });
    let task = task.await.unwrap();
    let drains = tokio::spawn(async move { drained.drain(Instant::now() + ms(100)).await });
    settle().await;
    drop(group);
    assert_eq!(counts(&drains.await.unwrap()), (1, 0, 0, 0));
    assert_eq!(task.await, Ok(Ok(())));
}

#[tokio::test(start_paused = true)]
async fn of_a_group_with_many_in_each_state_everything_is_accounted_for() {
    let group = TaskGroup::builder("orders", 6)
        .overload(sluicegate_tasks::GroupOverload::Queue { capacity: 5 })
        .unwind(ms(10))
        .build()
        .unwrap();
    let mut tasks = Vec::new();
    for n in 0..11_u64 {
        let work = move |cx: Context| async move {
            if n < 3 {
                cx.until_interrupted(tokio::time::sleep(ms(n + 1))).await.unwrap();
            } else if n < 5 {
                cx.cancelled().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tasks.push(group.submit(Context::new(), work).await.unwrap());
    }
    settle().await;
    let report = group.drain(Instant::now() + ms(50)).await;
    assert_eq!(counts(&report), (3, 5, 3, 0), "{report}");
    let mut ends = [0; 3];
    for task in tasks {
        match task.await {
            Ok(()) => ends[0] += 1,
            Err(TaskError::HandedBack) => ends[1] += 1,
            Err(TaskError::Aborted) => ends[2] += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(ends, [5, 5, 1]);
    assert_zero(&group);
}
