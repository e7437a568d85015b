//! What is counted: every gauge, counter and histogram through one scripted day, and what must add up.
//!
//! `docs/rules.md#count-1`.

use std::future::pending;
use std::time::Duration;

use sluicegate_tasks::{Context, HistogramSnapshot, Stats, TaskGroup};
use tokio::time::Instant;

use crate::probe::{Busy, ByHand, ms, settle};

async fn pass(millis: u64) {
    tokio::time::advance(ms(millis)).await;
    settle().await;
}

/// Queued, running, limit, oldest wait.
fn gauges(stats: &Stats) -> (u32, u32, u32, Duration) {
    let gauges = stats.gauges;
    (gauges.queued, gauges.running, gauges.limit, gauges.oldest_wait)
}

/// Started, completed, failed, panicked, cancelled, timed out, handed back.
fn counters(stats: &Stats) -> [u64; 7] {
    let Stats { started, completed, failed, panicked, cancelled, timed_out, handed_back, .. } =
        stats;
    [*started, *completed, *failed, *panicked, *cancelled, *timed_out, *handed_back]
}

/// While nothing is dropped by force, what was let in is somewhere, and what started too.
fn assert_balanced(stats: &Stats) {
    let [started, completed, _, panicked, cancelled, timed_out, handed_back] = counters(stats);
    let waiting = u64::from(stats.gauges.queued);
    let never_ran = cancelled + timed_out + handed_back;
    assert_eq!(stats.admitted, started + waiting + never_ran, "{stats:?}");
    assert_eq!(started, completed + panicked + u64::from(stats.gauges.running), "{stats:?}");
    assert_eq!(stats.wait_time.count(), started, "{stats:?}");
    assert_eq!(stats.run_time.count(), completed, "{stats:?}");
}

/// The durations that a histogram holds, known to within a fifth.
fn assert_holds(histogram: &HistogramSnapshot, zeros: u64, others: &[u64]) {
    assert_eq!(histogram.count(), zeros + others.len() as u64);
    assert_eq!(histogram.sum(), ms(others.iter().sum()));
    let mut at_most = histogram.buckets();
    if zeros > 0 {
        assert_eq!(at_most.next(), Some((Duration::from_micros(1), zeros)));
    }
    for (millis, (bound, count)) in others.iter().zip(at_most) {
        let (exact, bound) = (*millis as f64, bound.as_secs_f64() * 1000.0);
        assert!(exact <= bound && bound <= exact * 1.25 && count == 1, "{millis}: {bound}");
    }
}

fn group() -> TaskGroup {
    TaskGroup::builder("day", 2).unwind(ms(10)).build().unwrap()
}

async fn sleeps(cx: Context, millis: u64) {
    cx.until_interrupted(tokio::time::sleep(ms(millis))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_counts_each_thing_once_where_it_happens() {
    let group = group();
    let seen = || {
        let stats = group.stats();
        assert_balanced(&stats);
        (gauges(&stats), counters(&stats))
    };
    let cx = Context::new();
    assert_eq!(seen(), ((0, 0, 2, ms(0)), [0; 7]));
    let ends = group.submit(&cx, |cx| sleeps(cx, 100)).await.unwrap();
    let fails = group.submit_fallible(&cx, |cx| async move {
        sleeps(cx, 300).await;
        Err::<(), _>("at last")
    });
    let fails = fails.await.unwrap();
    let mut panics = ByHand::new(group.submit(&cx, |cx| async move {
        sleeps(cx, 50).await;
        panic!("in between")
    }));
    let request = Context::new();
    let mut cancelled = ByHand::new(group.submit(&request, |cx| sleeps(cx, 1)));
    assert!(panics.poll().is_none() && cancelled.poll().is_none());
    let refused = group.try_submit(&cx, |cx| sleeps(cx, 1)).unwrap_err();
    assert_eq!(refused.why.label(), "at_limit");
    settle().await;
    let waiting = |queued, oldest, counted| ((queued, 2, 2, ms(oldest)), counted);
    assert_eq!(raw(&group), waiting(2, 0, [2, 0, 0, 0, 0, 0, 0]));
    pass(40).await;
    assert_eq!(raw(&group), waiting(2, 40, [2, 0, 0, 0, 0, 0, 0]));
    request.cancel();
    assert_eq!(cancelled.poll().unwrap().unwrap_err().why.label(), "cancelled");
    assert_eq!(raw(&group), waiting(1, 40, [2, 0, 0, 0, 0, 0, 0]), "never let in");
    pass(60).await;
    let panics = panics.poll().unwrap().unwrap();
    settle().await;
    assert_eq!(seen(), ((0, 2, 2, ms(0)), [3, 1, 0, 0, 0, 0, 0]), "one ends, the next starts");
    pass(51).await;
    assert_eq!(seen(), ((0, 1, 2, ms(0)), [3, 1, 0, 1, 0, 0, 0]));
    let request = Context::new();
    let too_late = group.submit(&request, |cx| sleeps(cx, 1)).await.unwrap();
    request.cancel();
    assert!(too_late.await.is_err());
    assert_eq!(seen(), ((0, 1, 2, ms(0)), [3, 1, 0, 1, 1, 0, 0]), "let in, and never ran");
    pass(150).await;
    assert_eq!(seen(), ((0, 0, 2, ms(0)), [3, 2, 1, 1, 1, 0, 0]));
    let stats = group.stats();
    assert_eq!((stats.admitted, stats.rejected), (4, vec![("at_limit", 1), ("cancelled", 1)]));
    assert_holds(&stats.wait_time, 2, &[100]);
    assert_eq!(stats.run_time.count(), 2);
    assert!(ends.is_finished() && fails.is_finished() && panics.is_finished());
}

/// Gauges and counters while submitters wait, whom nobody has let in.
fn raw(group: &TaskGroup) -> ((u32, u32, u32, Duration), [u64; 7]) {
    let stats = group.stats();
    (gauges(&stats), counters(&stats))
}

#[tokio::test(start_paused = true)]
async fn a_group_counts_what_its_drain_does() {
    let group = group();
    let cx = Context::new();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let ignores = |cx: Context| async move {
            drop(cx);
            pending::<()>().await;
        };
        tasks.push(group.submit(&cx, ignores).await.unwrap());
    }
    settle().await;
    let report = group.drain(Instant::now() + ms(5)).await;
    assert_eq!((report.cancelled.len(), report.handed_back, report.finished), (2, 0, 0));
    let stats = group.stats();
    assert_eq!((gauges(&stats), stats.admitted), ((0, 0, 2, ms(0)), 2));
    assert_eq!(counters(&stats), [2, 0, 0, 0, 2, 0, 0]);
    assert_eq!(stats.run_time.count(), 0, "of what completed only");
    for task in tasks {
        assert!(task.await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn run_times_are_those_of_the_permit() {
    let group = group();
    for millis in [3, 20, 160] {
        group.run(Context::new(), move |cx| sleeps(cx, millis)).await.unwrap();
    }
    let stats = group.stats();
    assert_holds(&stats.run_time, 0, &[3, 20, 160]);
    assert_holds(&stats.wait_time, 3, &[]);
    assert!(stats.run_time.quantile(0.5) >= ms(20) && stats.run_time.quantile(0.5) <= ms(25));
}

#[tokio::test(start_paused = true)]
async fn every_refusal_is_counted_by_its_reason() {
    let group = TaskGroup::new("day", 1).unwrap();
    let ended = Context::new();
    ended.cancel();
    let late = Context::new().with_deadline(Instant::now());
    for cx in [&ended, &ended, &late] {
        assert!(group.try_submit(cx, |cx| sleeps(cx, 1)).is_err());
    }
    let busy = Busy::all_of(&group).await;
    for _ in 0..3 {
        assert!(group.try_submit(Context::new(), |cx| sleeps(cx, 1)).is_err());
    }
    busy.end().await;
    let named = group.submit_detached("one", |cx| async move { cx.cancelled().await });
    let named = named.await.unwrap();
    assert!(group.submit_detached("one", |cx| sleeps(cx, 1)).await.is_err());
    drop(group.drain(Instant::now()).await);
    assert!(group.try_submit(Context::new(), |cx| sleeps(cx, 1)).is_err());
    let expected =
        [("at_limit", 3), ("cancelled", 2), ("timed_out", 1), ("name_taken", 1), ("draining", 1)];
    let stats = group.stats();
    assert_eq!((stats.rejected, stats.admitted), (Vec::from(expected), 2));
    drop(named);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_busy_day_on_many_threads_everything_adds_up() {
    let group = TaskGroup::new("day", 3).unwrap();
    let submitters: Vec<_> = (0..6)
        .map(|n| {
            let group = group.clone();
            tokio::spawn(async move {
                let mut refused = 0_u64;
                for m in 0..200 {
                    let cx = Context::new();
                    let work = move |cx: Context| async move {
                        cx.until_interrupted(tokio::task::yield_now()).await.ok();
                        assert_ne!((n + m) % 17, 0, "one in a while panics");
                    };
                    match group.try_submit(&cx, work) {
                        Err(_) => refused += 1,
                        Ok(task) => {
                            if m % 5 == 0 {
                                cx.cancel();
                            }
                            task.await.ok();
                        }
                    }
                }
                refused
            })
        })
        .collect();
    let mut refused = 0;
    for submitter in submitters {
        refused += submitter.await.unwrap();
    }
    let stats = group.stats();
    assert_eq!((stats.gauges.queued, stats.gauges.running), (0, 0));
    assert_eq!(stats.rejected.iter().map(|(_, count)| count).sum::<u64>(), refused);
    assert_eq!(stats.admitted + refused, 1200);
    assert_eq!(stats.admitted, stats.started + stats.cancelled);
    assert_eq!(stats.started, stats.completed + stats.panicked);
}
