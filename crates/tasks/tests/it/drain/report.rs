//! What a drain's report counts and names.

use std::sync::Arc;

use sluicegate_tasks::{Context, Entry, Sluice, TaskGroup};
use tokio::time::Instant;

use super::{counts, orders};
use crate::probe::{ms, settle};

async fn heeds(cx: Context) {
    cx.cancelled().await;
}

async fn sleeps(_: Context) {
    tokio::time::sleep(ms(10)).await;
}

async fn submit<F: Future<Output = ()> + Send + 'static>(
    group: &TaskGroup,
    count: u32,
    work: fn(Context) -> F,
) {
    for _ in 0..count {
        drop(group.submit(Context::new(), work).await.unwrap());
    }
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn what_children_run_is_finished_or_cancelled_as_the_rest() {
    let group = orders(8);
    let child = group.child("share").unwrap();
    submit(&group, 3, sleeps).await;
    submit(&child, 1, sleeps).await;
    submit(&child, 2, heeds).await;
    let report = group.drain(Instant::now() + ms(100)).await;
    assert_eq!(counts(&report), (4, 0, 2, 0), "{report}");
    assert_eq!((group.stats().completed, child.stats().completed), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn so_is_what_runs_in_a_child_made_inside_a_task() {
    let group = orders(8);
    submit(&group, 2, sleeps).await;
    let own = group.clone();
    let maker = group.submit(Context::new(), |cx| async move {
        let child = own.child("parts").unwrap();
        submit(&child, 1, sleeps).await;
        submit(&child, 2, heeds).await;
        cx.cancelled().await;
    });
    let maker = maker.await.unwrap();
    settle().await;
    let report = group.drain(Instant::now() + ms(100)).await;
    assert_eq!(counts(&report), (3, 0, 3, 0), "{report}");
    drop(maker.await);
}

#[tokio::test(start_paused = true)]
async fn what_panics_or_never_begins_is_counted_once_or_not_at_all() {
    let group = orders(4);
    submit(&group, 1, sleeps).await;
    let panics = group.submit(Context::new(), |_| async {
        tokio::time::sleep(ms(10)).await;
        panic!("on its way");
    });
    let panics = panics.await.unwrap();
    settle().await;
    let cx = Context::new();
    let never = group.submit(&cx, |_| async {}).await.unwrap();
    cx.cancel();
    let report = group.drain(Instant::now() + ms(100)).await;
    assert_eq!(counts(&report), (2, 0, 0, 0), "{report}");
    assert!(panics.await.is_err() && never.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_turn_dropped_after_the_deadline_takes_nothing_from_what_finished() {
    let sluice = Sluice::<u32>::builder("orders", 2, 10).build().unwrap();
    sluice.admit_all((0..2).map(|n| (Entry::of("alice"), n)).collect()).unwrap();
    let (one, other) = (sluice.try_next().unwrap(), sluice.try_next().unwrap());
    let ends = async {
        one.finish();
        other.context().cancelled().await;
        drop(other);
    };
    let (report, ()) = tokio::join!(sluice.drain(Instant::now() + ms(100)), ends);
    assert_eq!(counts(&report), (1, 0, 1, 0), "{report}");
}

/// To look for each name among all the others took half a minute.
#[tokio::test(start_paused = true)]
async fn a_crowd_that_is_abandoned_is_told_from_those_cancelled_in_no_time() {
    const CROWD: u32 = 150_000;
    let sluice = Sluice::<u32>::builder("orders", CROWD, CROWD).build().unwrap();
    let key = |n: u32| Entry::of("alice").key(Arc::<str>::from(n.to_string()));
    sluice.admit_all((0..CROWD).map(|n| (key(n), n)).collect()).unwrap();
    let mut turns: Vec<_> = std::iter::from_fn(|| sluice.try_next()).collect();
    let heeds = turns.split_off(turns.len() - 1000);
    let ends = async {
        heeds[0].context().cancelled().await;
        drop(heeds);
    };
    let begun = std::time::Instant::now();
    let (report, ()) = tokio::join!(sluice.drain(Instant::now() + ms(100)), ends);
    let took = begun.elapsed();
    assert_eq!((report.cancelled.len(), report.abandoned.len()), (1000, turns.len()));
    assert!(took < ms(8_000), "{took:?}");
}
