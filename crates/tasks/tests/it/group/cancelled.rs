//! Work whose context ends before its start: it never runs, and its caller is told.

use sluicegate_tasks::{Context, Interrupt, Refusal, TaskError, TaskGroup};
use tokio::time::Instant;

use crate::probe::{Busy, ByHand, Guard, ms};

fn group() -> TaskGroup {
    TaskGroup::new("group", 1).unwrap()
}

/// The two ways for a context to end, and what each is called.
fn ended() -> [(Context, Interrupt); 2] {
    let cancelled = Context::new();
    cancelled.cancel();
    let late = Context::new().with_deadline(Instant::now());
    [(cancelled, Interrupt::Cancelled), (late, Interrupt::TimedOut)]
}

#[tokio::test(start_paused = true)]
async fn ended_before_it_was_offered() {
    for (cx, why) in ended() {
        let group = group();
        let (guard, dropped) = Guard::new();
        let refused = group.submit(&cx, |cx| async move { drop((guard, cx)) });
        let refused = refused.await.unwrap_err();
        assert_eq!(refused.why, Refusal::Interrupted(why));
        assert_eq!(dropped.get(), 0, "the work comes back");
        let refused = group.try_submit(&cx, |cx| async move { cx.check() }).unwrap_err();
        assert_eq!(refused.why, Refusal::Interrupted(why));
        let refused = group.submit_blocking(&cx, |cx| cx.check()).await.unwrap_err();
        assert_eq!(refused.why, Refusal::Interrupted(why));
        let refused = group.run(&cx, |cx| async move { cx.check() }).await.unwrap_err();
        assert_eq!(refused, TaskError::Refused(Refusal::Interrupted(why)));
        let stats = group.stats();
        assert_eq!((stats.admitted, stats.gauges.running), (0, 0));
        assert_eq!(stats.rejected, [(refused_label(why), 4)]);
    }
}

const fn refused_label(why: Interrupt) -> &'static str {
    match why {
        Interrupt::Cancelled => "cancelled",
        Interrupt::TimedOut => "timed_out",
    }
}

#[tokio::test(start_paused = true)]
async fn ended_between_being_let_in_and_the_start() {
    let group = group();
    let cx = Context::new();
    let (guard, dropped) = Guard::new();
    let task = group.submit(&cx, |cx| async move { drop((guard, cx)) }).await.unwrap();
    cx.cancel();
    assert_eq!(task.await, Err(TaskError::Interrupted(Interrupt::Cancelled)));
    let stats = group.stats();
    assert_eq!((stats.admitted, stats.started, stats.cancelled), (1, 0, 1));
    assert_eq!((stats.gauges.running, dropped.get()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn ended_while_the_submitter_waited() {
    let group = group();
    let busy = Busy::all_of(&group).await;
    let cx = Context::new();
    let mut cancelled = ByHand::new(group.submit(&cx, |cx| async move { cx.check() }));
    assert!(cancelled.poll().is_none());
    cx.cancel();
    let refused = cancelled.poll().unwrap().unwrap_err();
    assert_eq!(refused.why, Refusal::Interrupted(Interrupt::Cancelled));

    let (begun, late) = (Instant::now(), Context::new().with_timeout(ms(250)));
    let refused = group.submit(&late, |cx| async move { cx.check() }).await.unwrap_err();
    assert_eq!(refused.why, Refusal::Interrupted(Interrupt::TimedOut));
    assert_eq!(begun.elapsed(), ms(250), "told to the moment");
    assert_eq!(group.stats().gauges.queued, 0);
    busy.end().await;
    assert_eq!(group.run(Context::new(), |cx| async move { cx.check() }).await, Ok(Ok(())));
}

#[tokio::test(start_paused = true)]
async fn ended_just_as_the_permit_was_handed_over() {
    let group = group();
    let busy = Busy::all_of(&group).await;
    let cx = Context::new();
    let work = |cx: Context| async move { cx.check() };
    let mut first = ByHand::new(group.submit(&cx, work));
    let mut second = ByHand::new(group.submit(Context::new(), work));
    assert!(first.poll().is_none() && second.poll().is_none());
    busy.end().await;
    cx.cancel();
    // It has the permit or not; either way it does not run, and the next one gets in.
    match first.poll().unwrap() {
        Ok(task) => {
            assert_eq!(task.await, Err(TaskError::Interrupted(Interrupt::Cancelled)));
        }
        Err(refused) => assert_eq!(refused.why, Refusal::Interrupted(Interrupt::Cancelled)),
    }
    assert_eq!(second.poll().unwrap().unwrap().await, Ok(Ok(())));
    assert_eq!(group.stats().gauges.running, 0);
}

#[tokio::test(start_paused = true)]
async fn one_deadline_covers_the_wait_and_the_run() {
    let group = group();
    let busy = Busy::all_of(&group).await;
    let (begun, cx) = (Instant::now(), Context::new().with_timeout(ms(100)));
    let ends = async {
        tokio::time::sleep(ms(60)).await;
        busy.end().await;
    };
    let runs = group.run(&cx, |cx| async move { (cx.remaining(), cx.cancelled().await) });
    let ((), ran) = tokio::join!(ends, runs);
    assert_eq!(ran, Ok((Some(ms(40)), Interrupt::TimedOut)));
    assert_eq!(begun.elapsed(), ms(100));
}
