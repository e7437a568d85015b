//! The cursor: durable, and cheap however long something waits.
//!
//! `docs/rules.md#events-6`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use sluicegate_dispatch::{Demand, Settle, Settled, Source};
use sluicegate_event_store::{MemoryEngine, SqliteEngine};
use tokio::time::{Instant, sleep};

use crate::rig::reopened;
use crate::stage::{PATIENCE, Stage, again, positions, said, settings};

#[tokio::test]
async fn what_was_settled_is_stored_when_that_is_answered() {
    let stage = Stage::new().await;
    stage.append((0..5).map(|n| said(&n.to_string()))).await;
    let received = stage.take(5).await;
    stage.done(&received[..2]).await;
    stage.done(&received[3..4]).await;
    let text = r#"{"version":1,"upTo":4,"open":[3]}"#;
    assert_eq!(stage.stored().await.as_deref(), Some(text));
}

#[tokio::test]
async fn what_was_settled_is_stored_soon_though_nobody_waits_for_it() {
    let stage = Stage::new().await;
    stage.append([said("a")]).await;
    let receipt = stage.take(1).await.remove(0).receipt;
    let begun = Instant::now();
    // Polled once and dropped.
    assert!(stage.source.settle(vec![Settle::ack(receipt)]).now_or_never().is_none());
    sleep(Duration::from_millis(500)).await;
    assert_eq!(stage.stored().await.as_deref(), Some(r#"{"version":1,"upTo":1,"open":[]}"#));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn after_a_crash_only_what_was_open_comes_again_with_its_attempts_and_delays() {
    let stage = Stage::new().await;
    stage.append((0..1_000).map(|n| said(&n.to_string()))).await;
    let received = stage.take(1_000).await;
    let open = [3, 4, 77, 500, 999];
    let is_open = |n: usize| open.contains(&(n as u64));
    let done = (1..=1_000).filter(|n| !is_open(*n)).map(|n| received[n - 1].clone());
    stage.done(&done.collect::<Vec<_>>()).await;
    stage.settle(&received[76..77], again(Duration::ZERO, 4)).await;
    let begun = Instant::now();
    stage.settle(&received[499..500], again(Duration::from_millis(700), 2)).await;
    let stage = stage.crash().await;
    let first = stage.take(4).await;
    assert_eq!(positions(&first), [3, 4, 77, 999]);
    assert_eq!(first.iter().map(|delivery| delivery.attempts).collect::<Vec<_>>(), [0, 0, 4, 0]);
    let late = stage.take(1).await;
    assert_eq!((positions(&late), late[0].attempts), (vec![500], 2));
    // Clocks of before and after may differ by a tick.
    assert!(begun.elapsed() >= Duration::from_millis(690), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_event_that_waits_for_long_stops_nothing_and_stays_cheap() {
    let stage = Stage::new().await;
    stage.append((0..20_000).map(|n| said(&n.to_string()))).await;
    let first = stage.take(1).await;
    stage.settle(&first, again(Duration::from_secs(3_600), 1)).await;
    let mut count = 1;
    while count < 20_000 {
        let some = stage.source.receive(Demand::any(500)).await.unwrap();
        stage.done(&some).await;
        count += some.len();
    }
    assert_eq!(stage.source.health(), Ok(()));
    let depth = stage.source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (0, 1, 0));
    let stage = stage.crash().await;
    assert!(stage.all().await.is_empty(), "one is late, and the others are done");
    let stored = stage.stored().await.unwrap();
    assert!(stored.len() < 100, "{stored}");
}

#[tokio::test]
async fn a_long_line_behind_a_head_that_fails_is_bounded_and_goes_on() {
    let engine = Arc::new(MemoryEngine::new());
    let stage = Stage::of(engine, settings().with_held(100)).await;
    stage.append((0..300).map(|_| said("a"))).await;
    stage.append([said("b")]).await;
    let head = stage.take(1).await;
    assert!(stage.all().await.is_empty());
    let full = stage.source.health().unwrap_err();
    assert!(full.cause.starts_with("100 events wait behind"), "{full}");
    let depth = stage.source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.out), (300, 1));
    stage.done(&head).await;
    for position in 2..=300 {
        let next = stage.take(1).await;
        let position: &u64 = &position;
        let got = positions(&next);
        if got == [301] {
            stage.done(&next).await;
            let next = stage.take(1).await;
            assert_eq!(positions(&next), [*position]);
            stage.done(&next).await;
        } else {
            assert_eq!(got, [*position]);
            stage.done(&next).await;
        }
    }
    assert_eq!(stage.source.health(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_events_behind_are_worked_off() {
    const COUNT: usize = 1_000_000;
    let stage = Stage::new().await;
    stage.append((0..COUNT).map(|n| said(&(n % 5_000).to_string()))).await;
    let begun = Instant::now();
    let first = stage.take(1).await;
    let soon = begun.elapsed();
    stage.done(&first).await;
    assert_eq!(stage.source.depth().await.unwrap().waiting, COUNT as u64 - 1);
    let mut count = 1;
    while count < COUNT {
        let some = stage.source.receive(Demand::any(1_000)).await.unwrap();
        stage.done(&some).await;
        count += some.len();
    }
    let took = begun.elapsed();
    println!("the first after {soon:?}, a million after {took:?}");
    assert!(soon < Duration::from_secs(2), "{soon:?}");
    assert_eq!(stage.source.depth().await.unwrap().waiting, 0);
    let text = format!(r#"{{"version":1,"upTo":{COUNT},"open":[]}}"#);
    assert_eq!(stage.stored().await, Some(text));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_many_crashes_nothing_is_lost_and_only_what_was_not_settled_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.db");
    let engine = Arc::new(SqliteEngine::open(&path).await.unwrap());
    let mut stage = Stage::of(engine, settings()).await;
    stage.append((0..2_000).map(|n| said(&(n % 40).to_string()))).await;
    let (mut settled, mut repeats) = (BTreeSet::new(), 0);
    let end = Instant::now() + PATIENCE;
    for round in 0_u64.. {
        assert!(Instant::now() < end, "{} came", settled.len());
        if settled.len() == 2_000 {
            break;
        }
        for step in 0..5 {
            let some = stage.source.receive(Demand::any(30)).await.unwrap();
            let all = positions(&some);
            let settle = some.into_iter().map(|delivery| Settle::ack(delivery.receipt));
            let settle = stage.source.settle(settle.collect());
            let answers = match step {
                // Given up on the way: then it is not known.
                4 => {
                    tokio::time::timeout(Duration::from_micros(round * 37 % 900), settle).await.ok()
                }
                _ => Some(settle.await),
            };
            let Some(answers) = answers else {
                repeats += all.len();
                continue;
            };
            for (position, answer) in all.into_iter().zip(answers.unwrap()) {
                assert_eq!(answer, Settled::Done);
                assert!(settled.insert(position), "{position} came again though it was done");
            }
        }
        let Stage { engine, source } = stage;
        drop((engine, source));
        stage = Stage::of(Arc::new(reopened(path.clone()).await), settings()).await;
        // What was given up and written all the same does not come again: it is known from the stored text.
        let stored = stage.stored().await.unwrap_or_default();
        settled.extend(done_of(&stored));
        stage = stage.crash().await;
    }
    println!("{repeats} may have come again");
}

/// Which events a stored text says are done.
fn done_of(stored: &str) -> Vec<u64> {
    let Ok(text) = serde_json::from_str::<serde_json::Value>(stored) else { return Vec::new() };
    let mut last = 0;
    let step = |open: &serde_json::Value| {
        let step = open.as_u64().or_else(|| open[0].as_u64()).unwrap();
        last += step;
        last
    };
    let open: BTreeSet<u64> = text["open"].as_array().unwrap().iter().map(step).collect();
    (1..=text["upTo"].as_u64().unwrap()).filter(|position| !open.contains(position)).collect()
}
