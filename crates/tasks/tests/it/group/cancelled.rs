//! Work whose context ends before its start: it never runs, and its caller is told.

use sluicegate_tasks::{
    Context, GroupOverload as Overload, Interrupt, Refusal, TaskError, TaskGroup,
};
use tokio::time::Instant;

use crate::probe::{Busy, ByHand, Guard, ms, settle};

const POLICIES: [Overload; 4] = [
    Overload::Wait,
    Overload::HandBack { capacity: 2, retry_after: ms(30_000) },
    Overload::Queue { capacity: 2 },
    Overload::FailFast,
];

fn group(overload: Overload) -> TaskGroup {
    TaskGroup::builder("group", 1).overload(overload).build().unwrap()
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
    for overload in POLICIES {
        for (cx, why) in ended() {
            let group = group(overload);
            let (guard, dropped) = Guard::new();
            let refused = group.submit(&cx, |cx| async move { drop((guard, cx)) });
            let refused = refused.await.unwrap_err();
            assert_eq!(refused.why, Refusal::Interrupted(why), "{overload:?}");
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
}

const fn refused_label(why: Interrupt) -> &'static str {
    match why {
        Interrupt::Cancelled => "cancelled",
        Interrupt::TimedOut => "timed_out",
    }
}

#[tokio::test(start_paused = true)]
async fn ended_between_being_let_in_and_the_start() {
    for overload in POLICIES {
        let group = group(overload);
        let cx = Context::new();
        let (guard, dropped) = Guard::new();
        let task = group.submit(&cx, |cx| async move { drop((guard, cx)) }).await.unwrap();
        cx.cancel();
        assert_eq!(task.await, Err(TaskError::Interrupted(Interrupt::Cancelled)), "{overload:?}");
        let stats = group.stats();
        assert_eq!((stats.admitted, stats.started, stats.cancelled), (1, 0, 1));
        assert_eq!((stats.gauges.running, dropped.get()), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn ended_while_the_submitter_waited() {
    let group = group(Overload::Wait);
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
async fn ended_in_the_queue() {
    for overload in [POLICIES[1], POLICIES[2]] {
        let group = group(overload);
        let busy = Busy::all_of(&group).await;
        let (cx, begun) = (Context::new(), Instant::now());
        let (guard, dropped) = Guard::new();
        let cancelled = group.submit(&cx, |cx| async move { drop((guard, cx)) }).await.unwrap();
        let late = cx.child().with_timeout(ms(40));
        let late = group.submit_blocking(&late, |cx| cx.check()).await.unwrap();
        assert_eq!(late.await, Err(TaskError::Interrupted(Interrupt::TimedOut)));
        assert_eq!(begun.elapsed(), ms(40));
        cx.cancel();
        assert_eq!(cancelled.await, Err(TaskError::Interrupted(Interrupt::Cancelled)));
        let stats = group.stats();
        assert_eq!((stats.cancelled, stats.timed_out, stats.gauges.queued), (1, 1, 0));
        assert_eq!(dropped.get(), 1);
        busy.end().await;
        settle().await;
        assert_eq!((group.stats().started, group.stats().gauges.running), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn ended_in_the_queue_just_as_the_permit_was_handed_over() {
    let group = group(Overload::Queue { capacity: 2 });
    let busy = Busy::all_of(&group).await;
    let cx = Context::new();
    let first = group.submit(&cx, |cx| async move { cx.check() }).await.unwrap();
    let second = group.submit(Context::new(), |cx| async move { cx.check() }).await.unwrap();
    settle().await;
    let ends = busy.end();
    cx.cancel();
    ends.await;
    assert_eq!(first.await, Err(TaskError::Interrupted(Interrupt::Cancelled)));
    assert_eq!(second.await, Ok(Ok(())));
    assert_eq!(group.stats().gauges.running, 0);
}

#[tokio::test(start_paused = true)]
async fn one_deadline_covers_the_wait_and_the_run() {
    let group = group(Overload::Wait);
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
