//! Draining while callers wait and run: what waits is handed back by value, what runs is let be until the deadline.

use sluicegate_tasks::{
    Context, DrainReport, Entry, Interrupt, Overload, Refusal, Running, Sluice,
};
use tokio::time::Instant;

use crate::probe::{ByHand, Guard, ms, settle};
use crate::sluice::enter;

fn names(of: &[Running]) -> Vec<&str> {
    of.iter().map(|one| one.name.as_str()).collect()
}

/// Finished, handed back, cancelled, abandoned.
fn counts(report: &DrainReport) -> (u64, u64, usize, usize) {
    let DrainReport { handed_back, finished, cancelled, abandoned, .. } = report;
    (*finished, *handed_back, cancelled.len(), abandoned.len())
}

fn sluice<V: Send + 'static>(concurrency: u32) -> Sluice<V> {
    let overload = Overload::HandBack { retry_after: ms(7000) };
    Sluice::builder("agents", concurrency, 8).overload(overload).build().unwrap()
}

fn assert_zero<V>(sluice: &Sluice<V>) {
    let gauges = sluice.stats().gauges;
    assert_eq!((gauges.running, gauges.queued, gauges.oldest_wait), (0, 0, ms(0)));
    assert!(sluice.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_waits_comes_back_by_value_and_what_runs_finishes() {
    let sluice = sluice(1);
    let cx = Context::new();
    let runs = enter(&sluice, &cx, Entry::of("alice"), 1).unwrap().turn().await.unwrap();
    let mut waits = ByHand::new(enter(&sluice, &cx, Entry::of("bob"), 2).unwrap().turn());
    assert!(waits.poll().is_none());
    let idle = enter(&sluice, &cx, Entry::of("carol"), 3).unwrap();
    let mut drain = ByHand::new(sluice.drain(Instant::now() + ms(100)));
    assert!(drain.poll().is_none());
    assert_eq!(waits.wakes(), 1);
    let refused = waits.poll().unwrap().unwrap_err();
    let (why, work) = (refused.why, refused.work);
    assert_eq!((why, refused.retry_after, work), (Refusal::Draining, Some(ms(7000)), 2));
    let refused = idle.turn().await.unwrap_err();
    assert_eq!((refused.why, refused.work), (Refusal::Draining, 3));
    let refused = enter(&sluice, &cx, Entry::of("dave"), 4).unwrap_err();
    assert_eq!((refused.why, refused.work), (Refusal::Draining, 4));
    assert_eq!(runs.context().check(), Ok(()));
    assert_eq!(runs.finish(), 1);
    assert_eq!(drain.wakes(), 1);
    let report = drain.poll().unwrap();
    assert_eq!(counts(&report), (1, 2, 0, 0));
    assert_eq!(sluice.stats().handed_back, 2);
    assert_zero(&sluice);
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_contexts_are_cancelled_and_those_who_do_not_heed_are_named() {
    let sluice = Sluice::builder("agents", 3, 8).unwind(ms(20)).build().unwrap();
    let cx = Context::new();
    let entry = |key: &str| Entry::of("alice").key(key);
    let heeds = enter(&sluice, &cx, entry("1"), ()).unwrap().turn().await.unwrap();
    let ignores = enter(&sluice, &cx, entry("2"), ()).unwrap().turn().await.unwrap();
    let finishes = enter(&sluice, &cx, Entry::of("bob"), ()).unwrap().turn().await.unwrap();
    let begun = Instant::now();
    let heeding = tokio::spawn(async move {
        let why = heeds.context().cancelled().await;
        heeds.finish();
        (why, begun.elapsed())
    });
    let finishing = tokio::spawn(async move {
        tokio::time::sleep(ms(10)).await;
        finishes.finish();
    });
    let report = sluice.drain(begun + ms(50)).await;
    assert_eq!((counts(&report), report.took), ((1, 0, 1, 1), ms(70)), "{report}");
    assert_eq!(names(&report.cancelled), ["alice/1"]);
    assert_eq!(names(&report.abandoned), ["alice/2"]);
    assert_eq!(heeding.await.unwrap(), (Interrupt::Cancelled, ms(50)));
    finishing.await.unwrap();
    assert_eq!(sluice.stats().gauges.running, 1, "its place is taken while it runs");
    assert_eq!(ignores.context().check(), Err(Interrupt::Cancelled));
    drop(ignores);
    assert_zero(&sluice);
    assert!(sluice.drain(Instant::now()).await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_not_retried() {
    let sluice = sluice(1);
    let cx = Context::new();
    let (guard, dropped) = Guard::new();
    let turn = enter(&sluice, &cx, Entry::of("alice"), guard).unwrap().turn().await.unwrap();
    let mut drain = ByHand::new(sluice.drain(Instant::now() + ms(100)));
    assert!(drain.poll().is_none());
    let put_back = turn.wait_again(Instant::now());
    assert!(drain.poll().unwrap().is_clean());
    let refused = put_back.turn().await.unwrap_err();
    assert_eq!((refused.why, dropped.get()), (Refusal::Draining, 0), "back to its owner");
    assert_zero(&sluice);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_retry_is_handed_back() {
    let sluice = sluice(1);
    let cx = Context::new();
    let turn = enter(&sluice, &cx, Entry::of("alice").key("k"), 1).unwrap().turn().await.unwrap();
    let put_back = turn.wait_again(Instant::now() + ms(60_000));
    let behind = enter(&sluice, &cx, Entry::of("alice").key("k"), 2).unwrap();
    let report = sluice.drain(Instant::now() + ms(100)).await;
    assert_eq!((counts(&report), report.took), ((0, 2, 0, 0), ms(0)));
    assert_eq!(put_back.turn().await.unwrap_err().work, 1);
    assert_eq!(behind.turn().await.unwrap_err().work, 2);
    assert_zero(&sluice);
}

#[tokio::test(start_paused = true)]
async fn twice_at_once_midway_and_after_the_end() {
    let sluice = sluice(1);
    let cx = Context::new();
    let turn = enter(&sluice, &cx, Entry::of("alice"), ()).unwrap().turn().await.unwrap();
    let mut midway = ByHand::new(sluice.drain(Instant::now() + ms(1)));
    assert!(midway.poll().is_none());
    drop(midway);
    let finishing = tokio::spawn(async move {
        tokio::time::sleep(ms(30)).await;
        turn.finish();
    });
    let until = Instant::now() + ms(100);
    let (one, other) = tokio::join!(sluice.drain(until), sluice.drain(until));
    assert_eq!((counts(&one), counts(&other)), ((1, 0, 0, 0), (1, 0, 0, 0)));
    let quiet = |report: DrainReport| (counts(&report), report.took);
    assert_eq!(quiet(sluice.drain(Instant::now()).await), ((0, 0, 0, 0), ms(0)));
    finishing.await.unwrap();
    assert_zero(&sluice);
}

#[tokio::test(start_paused = true)]
async fn the_last_handles_drop_hands_back_what_waits_and_lets_what_runs_be() {
    let sluice = sluice(1);
    let cx = Context::new();
    let turn = enter(&sluice, &cx, Entry::of("alice"), 1).unwrap().turn().await.unwrap();
    let waits = enter(&sluice, &cx, Entry::of("bob"), 2).unwrap();
    let clone = sluice.clone();
    drop(sluice);
    assert_eq!(turn.context().check(), Ok(()), "a handle is left");
    drop(clone);
    let refused = waits.turn().await.unwrap_err();
    assert_eq!((refused.why, refused.work), (Refusal::Draining, 2));
    // A turn belongs to whoever runs it: only a drain, which has a deadline, cancels it.
    assert_eq!((turn.context().check(), cx.check()), (Ok(()), Ok(())));
    assert_eq!(turn.finish(), 1);
    settle().await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks, 0, "and its timer is gone");
}

#[tokio::test(start_paused = true)]
async fn a_turn_given_before_the_deadline_is_not_begun_after_it() {
    let sluice = sluice(1);
    let given = enter(&sluice, &Context::new(), Entry::of("alice"), 7).unwrap();
    let report = sluice.drain(Instant::now() + ms(10)).await;
    assert_eq!(names(&report.abandoned), ["alice"], "nobody came for it");
    let refused = given.turn().await.unwrap_err();
    assert_eq!(refused.why, Refusal::Interrupted(Interrupt::Cancelled));
    assert_eq!(refused.work, 7);
    assert_zero(&sluice);
}
