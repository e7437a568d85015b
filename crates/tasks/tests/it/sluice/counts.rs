//! What is counted, through one scripted day, and what must add up.
//!
//! `docs/rules.md#count-1`.

use std::time::Duration;

use sluicegate_tasks::{Context, Entry, HistogramSnapshot, Rate, Refusal, Sluice, Stats};
use tokio::time::Instant;

use super::{ROOM, enter, turn_now};
use crate::probe::{ByHand, ms, settle};

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

/// What was let in is somewhere, and what started too. (Where nothing was tried again.)
fn assert_balanced(stats: &Stats) {
    let [started, completed, _, panicked, cancelled, timed_out, handed_back] = counters(stats);
    let waiting = u64::from(stats.gauges.queued);
    let never_ran = cancelled + timed_out + handed_back + stats.queue_timeouts;
    assert_eq!(stats.admitted, started + waiting + never_ran, "{stats:?}");
    let ended = completed + panicked + stats.dropped;
    assert_eq!(started, ended + u64::from(stats.gauges.running), "{stats:?}");
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

#[tokio::test(start_paused = true)]
async fn each_thing_is_counted_once_where_it_happens() {
    let sluice = Sluice::builder("day", 1, 2).build().unwrap();
    let seen = || {
        let stats = sluice.stats();
        assert_balanced(&stats);
        (gauges(&stats), counters(&stats))
    };
    let cx = Context::new();
    let entry = || Entry::of("alice");
    let first = enter(&sluice, &cx, entry(), ()).unwrap().turn().await.unwrap();
    assert_eq!(seen(), ((0, 1, 1, ms(0)), [1, 0, 0, 0, 0, 0, 0]));
    let second = enter(&sluice, &cx, entry(), ()).unwrap();
    let request = Context::new();
    let third = enter(&sluice, &request, entry(), ()).unwrap();
    assert!(enter(&sluice, &cx, entry(), ()).is_err());
    pass(40).await;
    assert_eq!(seen(), ((2, 1, 1, ms(40)), [1, 0, 0, 0, 0, 0, 0]));
    request.cancel();
    assert!(third.turn().await.is_err());
    assert_eq!(seen(), ((1, 1, 1, ms(40)), [1, 0, 0, 0, 1, 0, 0]));
    let late = enter(&sluice, &cx.with_timeout(ms(10)), entry(), ()).unwrap();
    assert!(late.turn().await.is_err());
    assert_eq!(seen(), ((1, 1, 1, ms(50)), [1, 0, 0, 0, 1, 1, 0]));
    first.finish();
    let second = second.turn().await.unwrap();
    assert_eq!(seen(), ((0, 1, 1, ms(0)), [2, 1, 0, 0, 1, 1, 0]));
    let mut waits = ByHand::new(enter(&sluice, &cx, entry(), ()).unwrap().turn());
    assert!(waits.poll().is_none());
    pass(30).await;
    second.fail();
    let third = waits.poll().unwrap().unwrap();
    assert_eq!(seen(), ((0, 1, 1, ms(0)), [3, 2, 1, 0, 1, 1, 0]));
    let holder = tokio::spawn(async move {
        let _turn = third;
        panic!("mid-turn");
    });
    assert!(holder.await.is_err());
    assert_eq!(seen(), ((0, 0, 1, ms(0)), [3, 2, 1, 1, 1, 1, 0]));
    let stats = sluice.stats();
    assert_eq!((stats.admitted, stats.rejected), (5, vec![("queue_full", 1)]));
    assert_holds(&stats.wait_time, 1, &[30, 50]);
    assert_holds(&stats.run_time, 0, &[30, 50]);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_wait_is_the_longest_waiters_not_the_next_ones() {
    let rate = Rate::new(1, Duration::from_secs(3600), 1).unwrap();
    let sluice = Sluice::builder("day", 9, ROOM).rate(rate).build().unwrap();
    turn_now(&sluice, Entry::of("alice"), ()).finish();
    let oldest = enter(&sluice, &Context::new(), Entry::of("alice"), ()).unwrap();
    pass(70).await;
    let _newer = enter(&sluice, &Context::new(), Entry::of("bob"), ()).unwrap();
    pass(5).await;
    assert_eq!(sluice.stats().gauges.oldest_wait, ms(75));
    drop(oldest);
    assert_eq!(sluice.stats().gauges.oldest_wait, ms(5));
}

/// Withdrawn, handed back awaited or not, put back too late: each admitted item is counted once.
#[tokio::test(start_paused = true)]
async fn everything_adds_up_whatever_becomes_of_the_items() {
    let sluice = super::sluice(1, ROOM);
    let cx = Context::new();
    let admit = || enter(&sluice, &cx, Entry::of("alice").key("one"), ()).unwrap();
    let turn = admit().turn().await.unwrap();
    drop(admit());
    assert_eq!(sluice.stats().cancelled, 1);
    let timed = cx.with_timeout(ms(5));
    let late = enter(&sluice, &timed, Entry::of("alice"), ()).unwrap();
    assert_eq!(late.turn().await.unwrap_err().why.label(), "timed_out");
    let (awaited, never_awaited) = (admit(), admit());
    assert_balanced(&sluice.stats());

    let drain = tokio::spawn({
        let sluice = sluice.clone();
        async move { sluice.drain(Instant::now() + ms(1000)).await }
    });
    settle().await;
    assert_eq!(sluice.stats().handed_back, 2);
    assert_eq!(awaited.turn().await.unwrap_err().why, Refusal::Draining);
    drop(never_awaited);
    assert_eq!(sluice.stats().handed_back, 2);
    assert_balanced(&sluice.stats());

    // Its turn is over, and it is too late to wait for another.
    let again = turn.wait_again(Instant::now());
    assert_eq!(again.turn().await.unwrap_err().why, Refusal::Draining);
    let report = drain.await.unwrap();
    // It is counted once: handed back.
    assert_eq!((report.handed_back, report.finished), (3, 0));
    let stats = sluice.stats();
    assert_eq!((stats.admitted, stats.started, stats.handed_back), (5, 1, 3));
    assert_eq!((stats.cancelled, stats.timed_out, stats.completed), (1, 1, 0));
}

/// Over the last minute as in all: a wait is counted for what started, and for nothing else.
#[tokio::test(start_paused = true)]
async fn what_never_started_is_in_no_percentile() {
    let sluice = Sluice::<u32>::builder("counts", 8, 100).recent_times().build().unwrap();
    drop(sluice.enter(&Context::new(), Entry::of("a"), 1).await.unwrap());
    let (stats, recent) = (sluice.stats(), sluice.recent_times().unwrap());
    assert_eq!((stats.started, stats.wait_time.count(), recent.wait_time.count()), (0, 0, 0));
}
