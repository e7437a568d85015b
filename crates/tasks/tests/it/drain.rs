//! Drain: one deadline, everything accounted for, nothing left.
//!
//! `docs/rules.md#drain-1`, `docs/rules.md#drain-2`, `docs/rules.md#drain-3`.

mod again;
mod own;
mod race;
mod report;

use std::future::pending;
use std::sync::{Arc, mpsc};

use sluicegate_tasks::{Context, DrainReport, Interrupt, Refusal, TaskError, TaskGroup};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::probe::{Busy, ByHand, Count, Guard, ms, settle};

fn orders(limit: u32) -> TaskGroup {
    TaskGroup::new("orders", limit).unwrap()
}

/// After a drain with nothing abandoned, nothing is left.
fn assert_zero(group: &TaskGroup) {
    let gauges = group.stats().gauges;
    assert_eq!((gauges.running, gauges.queued, gauges.oldest_wait), (0, 0, ms(0)));
    assert!(group.running().is_empty());
}

fn names(of: &[sluicegate_tasks::Running]) -> Vec<&str> {
    of.iter().map(|one| one.name.as_str()).collect()
}

fn counts(report: &DrainReport) -> (u64, u64, usize, usize) {
    let DrainReport { handed_back, finished, cancelled, abandoned, .. } = report;
    (*finished, *handed_back, cancelled.len(), abandoned.len())
}

#[tokio::test(start_paused = true)]
async fn an_idle_group_is_drained_at_once() {
    let group = orders(1);
    group.run(Context::new(), |cx| async move { cx.check() }).await.unwrap().unwrap();
    let report = group.drain(Instant::now() + ms(1000)).await;
    assert_eq!((counts(&report), report.took), ((0, 0, 0, 0), ms(0)), "what ended before is past");
    assert!(report.is_clean());
    assert_eq!(report.to_string(), "orders drained in 0.0ns: 0 finished, 0 handed back");
}

#[tokio::test(start_paused = true)]
async fn what_runs_finishes_and_who_waits_to_submit_keeps_its_work() {
    let group = orders(2);
    let ran = Arc::<Count>::default();
    let mut running = Vec::new();
    for _ in 0..2 {
        let ran = Arc::clone(&ran);
        let task = group.submit(Context::new(), |cx| async move {
            ran.add();
            cx.until_interrupted(tokio::time::sleep(ms(300))).await
        });
        running.push(task.await.unwrap());
    }
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (group, ran) = (group.clone(), Arc::clone(&ran));
            let work = |cx: Context| async move {
                ran.add();
                drop(cx);
            };
            tokio::spawn(async move { group.submit(Context::new(), work).await })
        })
        .collect();
    settle().await;
    let report = group.drain(Instant::now() + ms(1000)).await;
    assert_eq!((counts(&report), report.took), ((2, 0, 0, 0), ms(300)));
    assert_eq!(report.to_string(), "orders drained in 300.0ms: 2 finished, 0 handed back");
    for submitter in waiting {
        let refused = submitter.await.unwrap().unwrap_err();
        assert_eq!(refused.why, Refusal::Draining, "told");
    }
    for task in running {
        assert_eq!(task.await, Ok(Ok(())), "not interrupted");
    }
    assert_eq!(ran.get(), 2, "nothing ran twice");
    assert_zero(&group);
    assert_eq!(group.stats().rejected, [("draining", 3)]);
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_contexts_are_cancelled_then_futures_dropped() {
    let group = TaskGroup::builder("orders", 4).unwind(ms(50)).build().unwrap();
    let begun = Instant::now();
    let heeds = group.submit_detached("heeds", move |cx| async move {
        let why = cx.cancelled().await;
        tokio::time::sleep(ms(20)).await;
        (why, begun.elapsed())
    });
    let heeds = heeds.await.unwrap();
    let (guard, dropped) = Guard::new();
    let ignores = group.submit_detached("ignores", |cx| async move {
        let _held = (guard, cx);
        pending::<()>().await;
    });
    let ignores = ignores.await.unwrap();
    let finishes = group.submit_detached("finishes", |cx| async move {
        cx.until_interrupted(tokio::time::sleep(ms(10))).await
    });
    let finishes = finishes.await.unwrap();
    settle().await;
    let report = group.drain(begun + ms(100)).await;
    assert_eq!((counts(&report), report.took), ((1, 0, 2, 0), ms(150)), "{report}");
    assert_eq!(names(&report.cancelled), ["heeds", "ignores"]);
    assert!(report.cancelled.iter().all(|one| one.running_for == ms(100)), "as at the deadline");
    assert_eq!(
        report.to_string(),
        "orders drained in 150.0ms: 1 finished, 0 handed back, 2 cancelled (heeds, ignores)"
    );
    assert!(!report.is_clean());
    assert_eq!(finishes.await, Ok(Ok(())));
    assert_eq!(heeds.await, Ok((Interrupt::Cancelled, ms(120))), "had its time to unwind");
    assert_eq!((ignores.await, dropped.get()), (Err(TaskError::Aborted), 1));
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_yield_is_named_as_abandoned() {
    let group = orders(3);
    let (release, released) = mpsc::channel::<()>();
    let (begins, begun) = oneshot::channel();
    let task = group.submit_blocking(Context::new(), move |cx| {
        begins.send(()).unwrap();
        released.recv().unwrap();
        cx.check()
    });
    let line = line!() - 5;
    let task = task.await.unwrap();
    let ends = group.submit_detached("ends", |cx| async move { cx.cancelled().await });
    let ends = ends.await.unwrap();
    begun.await.unwrap();
    let mut drain = ByHand::new(group.drain(Instant::now() + ms(5)));
    // By hand, since a paused clock does not go on by itself while a thread is blocked.
    for unwinds in [ms(5), ms(100), ms(100)] {
        assert!(drain.poll().is_none());
        tokio::time::advance(unwinds).await;
        settle().await;
    }
    let report = drain.poll().unwrap();
    assert_eq!(counts(&report), (0, 0, 1, 1), "{report}");
    assert_eq!(names(&report.abandoned), [format!("{}:{line}", file!())]);
    assert_eq!(names(&report.cancelled), ["ends"]);
    assert!(
        report
            .to_string()
            .ends_with(&format!("1 cancelled (ends), 1 abandoned ({}:{line})", file!()))
    );
    assert_eq!(group.stats().gauges.running, 1, "it holds its permit for as long as it runs");
    release.send(()).unwrap();
    assert_eq!(task.await, Ok(Err(Interrupt::Cancelled)), "told by its context");
    assert_eq!(ends.await, Ok(Interrupt::Cancelled));
    assert!(group.drain(Instant::now() + ms(5)).await.is_clean());
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_to_submit_are_told_and_keep_their_work() {
    let group = TaskGroup::new("orders", 1).unwrap();
    let busy = Busy::all_of(&group).await;
    let (guard, dropped) = Guard::new();
    let mut waits = ByHand::new(group.submit(Context::new(), |cx| async move {
        drop((guard, cx));
    }));
    assert!(waits.poll().is_none());
    let mut drain = ByHand::new(group.drain(Instant::now() + ms(60_000)));
    assert!(drain.poll().is_none());
    assert_eq!(waits.wakes(), 1);
    let refused = waits.poll().unwrap().unwrap_err();
    assert_eq!((refused.why.clone(), dropped.get()), (Refusal::Draining, 0));
    drop(refused);
    busy.end().await;
    assert_eq!(counts(&drain.poll().unwrap()), (1, 0, 0, 0));
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_let_in_once_a_drain_has_begun() {
    let group = orders(4);
    let hold = group.submit(Context::new(), |cx| async move { cx.cancelled().await });
    let hold = hold.await.unwrap();
    let mut drain = ByHand::new(group.drain(Instant::now() + ms(20)));
    assert!(drain.poll().is_none());
    let cx = Context::new();
    let refused = |when: &str| {
        let refused = group.try_submit(&cx, |cx| async move { cx.check() }).unwrap_err();
        assert_eq!(refused.why, Refusal::Draining, "{when}");
    };
    refused("while it drains");
    let detached = group.submit_detached("sweeper", |cx| async move { cx.check() }).await;
    assert_eq!(detached.unwrap_err().why, Refusal::Draining);
    settle().await;
    tokio::time::advance(ms(21)).await;
    settle().await;
    assert!(drain.poll().is_none() || hold.is_finished());
    refused("after the deadline");
    assert_eq!(hold.await, Ok(Interrupt::Cancelled));
    settle().await;
    refused("when it is over");
    assert_zero(&group);
    assert_eq!(group.stats().rejected, [("draining", 4)]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_during_a_drain_is_told_and_counted_as_an_end() {
    let group = orders(2);
    let panics = group.submit(Context::new(), |cx| async move {
        cx.until_interrupted(tokio::time::sleep(ms(10))).await.unwrap();
        panic!("at the worst moment")
    });
    let panics = panics.await.unwrap();
    settle().await;
    let report = group.drain(Instant::now() + ms(100)).await;
    assert_eq!((counts(&report), report.took), ((1, 0, 0, 0), ms(10)));
    let panics: Result<(), _> = panics.await;
    assert!(matches!(panics, Err(TaskError::Panicked(_))));
    assert_zero(&group);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_past_cancels_at_once() {
    let group = orders(1);
    let runs = group.submit(Context::new(), |cx| async move { cx.cancelled().await });
    let runs = runs.await.unwrap();
    settle().await;
    let report = group.drain(Instant::now()).await;
    assert_eq!((counts(&report), report.took), ((0, 0, 1, 0), ms(0)), "{report}");
    assert_eq!(runs.await, Ok(Interrupt::Cancelled));
    assert_zero(&group);
}

/// When dropped, looks at the roster: is the task still listed while this is held?
struct Watch(TaskGroup, Arc<Count>);

impl Drop for Watch {
    fn drop(&mut self) {
        if self.0.running().is_empty() {
            self.1.add();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_not_over_before_what_never_started_is_given_up() {
    let group = orders(1);
    let (early, cx) = (Arc::<Count>::default(), Context::new());
    let watch = Watch(group.clone(), Arc::clone(&early));
    let task = group.submit(&cx, |cx| async move { drop((watch, cx)) }).await.unwrap();
    cx.cancel();
    assert!(group.drain(Instant::now() + ms(100)).await.is_clean());
    assert_eq!(task.await, Err(TaskError::Interrupted(Interrupt::Cancelled)));
    assert_eq!(early.get(), 0);
}

/// A drain that looked through all places at each of them took forty seconds.
#[tokio::test(start_paused = true)]
async fn a_crowd_that_leaves_one_by_one_is_not_looked_through_each_time() {
    const CROWD: u32 = 40_000;
    let group = orders(CROWD);
    let mut ends = Vec::new();
    for _ in 0..CROWD {
        let (end, ended) = oneshot::channel::<()>();
        drop(group.submit(Context::new(), |_| async { drop(ended.await) }).await.unwrap());
        ends.push(end);
    }
    let mut drain = ByHand::new(group.drain(Instant::now() + ms(60_000)));
    assert!(drain.poll().is_none());
    let begun = std::time::Instant::now();
    for end in ends {
        end.send(()).unwrap();
        tokio::task::yield_now().await;
        if let Some(report) = drain.poll() {
            assert_eq!(counts(&report), (u64::from(CROWD), 0, 0, 0), "{report}");
        }
    }
    let took = begun.elapsed();
    assert!(took < ms(5_000), "{took:?}");
}
