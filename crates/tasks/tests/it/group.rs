//! Groups: work is let in, runs under its caller's context, and comes back as a value.
//!
//! `docs/rules.md#task-1`, `docs/rules.md#task-2`, `docs/rules.md#task-3`, `docs/rules.md#task-4`.

mod blocking;
mod cancelled;
mod child;
mod detached;
mod nested;
mod panics;

use std::sync::Arc;

use sluicegate_tasks::{
    AtLimit, Context, GroupOverload as Overload, Interrupt, Refusal, TaskError, TaskGroup,
};
use tokio::sync::oneshot;

use crate::probe::{Busy, Count, Guard, ms, settle};

fn group(limit: u32) -> TaskGroup {
    TaskGroup::new("group", limit).unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_way_in_gives_its_value_back() {
    let group = group(2);
    let cx = Context::new();
    let task = group.submit(&cx, |cx| async move { cx.check().map(|()| 1) }).await.unwrap();
    assert_eq!(task.await, Ok(Ok(1)));
    assert_eq!(group.run(&cx, |cx| async move { cx.check().map(|()| 2) }).await, Ok(Ok(2)));
    let task = group.try_submit(&cx, |cx| async move { cx.check().map(|()| 3) }).unwrap();
    assert_eq!(task.await, Ok(Ok(3)));
    let task = group.submit_blocking(&cx, |cx| cx.check().map(|()| 4)).await.unwrap();
    assert_eq!(task.await, Ok(Ok(4)));
    let task = group.submit_detached("five", |cx| async move { cx.check().map(|()| 5) });
    assert_eq!(task.await.unwrap().await, Ok(Ok(5)));
    let task = group.submit_fallible(&cx, |cx| async move { cx.check().map(|()| 6) });
    assert_eq!(task.await.unwrap().await, Ok(Ok(6)));
    let stats = group.stats();
    assert_eq!((stats.started, stats.completed, stats.failed), (6, 6, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_a_value_and_is_counted_once() {
    let group = group(1);
    let task = group.submit_fallible(Context::new(), |cx| async move {
        cx.check().map_err(|_| "interrupted")?;
        Err::<(), _>("no such file")
    });
    assert_eq!(task.await.unwrap().await, Ok(Err("no such file")));
    let plain = group
        .run(Context::new(), |cx| async move { cx.check().and(Err::<(), _>(Interrupt::TimedOut)) });
    assert_eq!(plain.await, Ok(Err(Interrupt::TimedOut)));
    let stats = group.stats();
    assert_eq!((stats.completed, stats.failed, stats.gauges.running), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_callers_context_passes_through() {
    let group = group(2);
    let cx = Context::new().with_timeout(ms(70));
    let (deadline, caller) = (cx.deadline(), cx.clone());
    let task = group.submit(&cx, move |cx| async move {
        assert_eq!(cx.deadline(), deadline);
        caller.cancel();
        cx.cancelled().await
    });
    assert_eq!(task.await.unwrap().await, Ok(Interrupt::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_task_sees_the_cancellation_at_its_blocking_points() {
    let group = group(3);
    let cx = Context::new();
    let waits = group.submit(&cx, |cx| async move { cx.cancelled().await }).await.unwrap();
    let sleeps = group.submit(&cx, |cx| async move {
        cx.until_interrupted(tokio::time::sleep(ms(60_000))).await
    });
    let sleeps = sleeps.await.unwrap();
    let (begins, begun) = oneshot::channel();
    let (asks, goes_on) = oneshot::channel();
    let blocks = group.submit_blocking(&cx, move |cx| {
        begins.send(()).unwrap();
        goes_on.blocking_recv().unwrap();
        cx.check()
    });
    let blocks = blocks.await.unwrap();
    begun.await.unwrap();
    cx.cancel();
    asks.send(()).unwrap();
    assert_eq!(waits.await, Ok(Interrupt::Cancelled));
    assert_eq!(sleeps.await, Ok(Err(Interrupt::Cancelled)));
    assert_eq!(blocks.await, Ok(Err(Interrupt::Cancelled)));
    assert_eq!(group.stats().completed, 3, "they ran: what they return is theirs to say");
}

#[tokio::test(start_paused = true)]
async fn no_more_run_at_once_than_the_limit_says_also_after_a_resize() {
    let group = group(3);
    let (inside, most) = (Arc::<Count>::default(), Arc::<Count>::default());
    let submit = || {
        let (inside, most, group) = (Arc::clone(&inside), Arc::clone(&most), group.clone());
        tokio::spawn(async move {
            let work = |cx: Context| async move {
                let now = inside.add();
                while most.get() < now {
                    most.add();
                }
                cx.until_interrupted(tokio::time::sleep(ms(10))).await.unwrap();
                inside.sub();
            };
            group.run(Context::new(), work).await
        })
    };
    let first: Vec<_> = (0..20).map(|_| submit()).collect();
    for one in first {
        one.await.unwrap().unwrap();
    }
    assert_eq!(most.get(), 3);
    group.resize(5).unwrap();
    let second: Vec<_> = (0..20).map(|_| submit()).collect();
    for one in second {
        one.await.unwrap().unwrap();
    }
    assert_eq!((most.get(), group.stats().gauges.running), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_task_handle_does_not_end_the_task() {
    let group = group(1);
    let (tell, told) = oneshot::channel();
    let task = group.submit(Context::new(), |cx| async move { tell.send(cx.check()) });
    drop(task.await.unwrap());
    assert_eq!(told.await, Ok(Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_is_dropped_before_it_is_let_in_does_not_run() {
    let group = group(1);
    let busy = Busy::all_of(&group).await;
    let (guard, dropped) = Guard::new();
    let mut waits = crate::probe::ByHand::new(group.submit(Context::new(), |cx| async move {
        drop((guard, cx));
        unreachable!("never let in");
    }));
    assert!(waits.poll().is_none());
    assert_eq!(group.stats().gauges.queued, 1);
    drop(waits);
    assert_eq!((dropped.get(), group.stats().gauges.queued), (1, 0));
    busy.end().await;
    settle().await;
    assert_eq!((group.stats().admitted, group.stats().gauges.running), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn refused_work_comes_back_by_value_with_its_guards_intact() {
    let group = TaskGroup::builder("group", 1).overload(Overload::FailFast).build().unwrap();
    let busy = Busy::all_of(&group).await;
    let (guard, dropped) = Guard::new();
    let work = |cx: Context| async move {
        drop(guard);
        cx.check()
    };
    let refused = group.submit(Context::new(), work).await.unwrap_err();
    assert_eq!(refused.why, Refusal::AtLimit(AtLimit { limit: 1, in_use: 1 }));
    let refused = group.try_submit(Context::new(), refused.work).unwrap_err();
    assert_eq!(dropped.get(), 0, "refused twice, and still there");
    busy.end().await;
    let task = group.submit(Context::new(), refused.work).await.unwrap();
    assert_eq!((task.await, dropped.get()), (Ok(Ok(())), 1), "and offered again it runs");
}

#[tokio::test(start_paused = true)]
async fn run_says_why_it_was_refused() {
    let group = TaskGroup::builder("group", 1).overload(Overload::FailFast).build().unwrap();
    let busy = Busy::all_of(&group).await;
    let refused = group.run(Context::new(), |cx| async move { cx.check() }).await.unwrap_err();
    let at_limit = AtLimit { limit: 1, in_use: 1 };
    assert_eq!(refused, TaskError::Refused(Refusal::AtLimit(at_limit)));
    assert_eq!(refused.to_string(), "at the limit: 1 of 1 in use");
    busy.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_handles_drop_ends_the_tasks_and_gives_everything_back() {
    let overload = Overload::Queue { capacity: 4 };
    let group = TaskGroup::builder("group", 2).overload(overload).build().unwrap();
    let (guard, dropped) = Guard::new();
    let heeds = group.submit(Context::new(), |cx| async move { cx.cancelled().await });
    let heeds = heeds.await.unwrap();
    let ignores = group.submit(Context::new(), |cx| async move {
        let _held = (guard, cx);
        std::future::pending::<()>().await;
    });
    let ignores = ignores.await.unwrap();
    let (queued_guard, queued_dropped) = Guard::new();
    let queued = group.submit(Context::new(), |cx| async move { drop((queued_guard, cx)) });
    let queued = queued.await.unwrap();
    settle().await;
    let clone = group.clone();
    drop(group);
    settle().await;
    assert!(!ignores.is_finished(), "a handle is left");
    drop(clone);
    assert_eq!(queued.await, Err(TaskError::HandedBack));
    assert_eq!(ignores.await, Err(TaskError::Aborted));
    assert!(matches!(heeds.await, Ok(Interrupt::Cancelled) | Err(TaskError::Aborted)));
    assert_eq!((dropped.get(), queued_dropped.get()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn running_tasks_are_listed_by_the_place_they_were_submitted_from_longest_first() {
    let group = group(3);
    let first = group.submit(Context::new(), |cx| async move { cx.cancelled().await });
    let line = line!() - 1;
    let first = first.await.unwrap();
    tokio::time::advance(ms(20)).await;
    let second = group.submit_detached("sweeper", |cx| async move { cx.cancelled().await });
    let second = second.await.unwrap();
    tokio::time::advance(ms(5)).await;
    let running: Vec<_> =
        group.running().into_iter().map(|one| (one.name, one.running_for)).collect();
    let here = format!("{}:{line}", file!());
    assert_eq!(running, [(here, ms(25)), ("sweeper".to_owned(), ms(5))]);
    drop(group);
    assert_eq!((first.await, second.await), (Ok(Interrupt::Cancelled), Ok(Interrupt::Cancelled)));
}
