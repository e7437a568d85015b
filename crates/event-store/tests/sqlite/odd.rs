//! Conditions and queries that are long to check hold nobody up, and end with the patience of who asked.

use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Engine, EventStore, NewEvent, Position, Query, QueryItem,
    ReadError, Settings,
};
use tokio::time::{Instant, timeout};

use crate::stage::{Stage, about, at_once};

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(100);

/// Events with one of two tags in turn, so that whoever looks for both leaps from one list to the other all the way.
async fn long_log() -> Stage {
    let stage = Stage::open().await;
    for _ in 0..300 {
        let batch = (0..1_000).map(|n| about("side", ["left", "right"][n % 2]));
        stage.append(batch.collect()).await.unwrap();
    }
    stage
}

fn both() -> Query {
    Query::tagged("side", "left").tag("side", "right")
}

fn odd() -> AppendCondition {
    AppendCondition::none(both())
}

fn store(stage: &Stage, patience: Duration) -> EventStore {
    let settings =
        Settings { append_timeout: patience, query_timeout: patience, ..Settings::default() };
    EventStore::with_settings(stage.engine.clone(), settings).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_go_on_beside_a_condition_that_is_long_to_check() {
    let stage = long_log().await;
    let store = store(&stage, PATIENCE);
    let mut beside = 0;
    let mut odd_one = Box::pin(store.append_if([about("odd", 1)], odd()));
    let appended = loop {
        tokio::select! {
            biased;
            answer = &mut odd_one => break answer.unwrap(),
            plain = store.append([about("plain", beside)]) => drop(plain.unwrap()),
        }
        beside += 1;
    };
    assert!(beside >= 5, "{beside} beside it");
    // It was checked up to its own place, and not only to where the check began.
    assert!(appended > Position::new(300_000 + 5), "{appended}");
    // What comes while it is checked is in its way, and what was there before too.
    let mut late = Box::pin(store.append_if([about("odd", 2)], odd()));
    for n in 0..5 {
        tokio::select! {
            biased;
            answer = &mut late => panic!("{answer:?} after {n}"),
            plain = store.append([about("plain", beside)]) => drop(plain.unwrap()),
        }
    }
    let new = NewEvent::of("Said").tag("side", "left").tag("side", "right");
    let in_the_way = store.append([new]).await.unwrap();
    let conflict = Err(AppendError::Conflict { position: in_the_way });
    assert_eq!(late.await, conflict);
    assert_eq!(store.append_if([about("odd", 3)], odd()).await, conflict);
    let later = AppendCondition::none_after(both(), in_the_way);
    store.append_if([about("odd", 4)], later).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_long_to_check_is_stopped_with_an_error_and_others_go_on() {
    let stage = long_log().await;
    let patient = store(&stage, PATIENCE);
    let begun = Instant::now();
    assert_eq!(patient.query(both(), Position::START, 10).await.unwrap().events.len(), 0);
    let once = begun.elapsed();
    let after = once / 20;
    let hasty = store(&stage, after);
    let appends = (0..20).map(|n| hasty.append_if([about("odd", n)], odd()));
    let queries = (0..20).map(|_| hasty.query(both(), Position::START, 10));
    let asked = async { tokio::join!(join_all(appends), join_all(queries)) };
    let (appended, read) = asked.await;
    assert!(appended.iter().all(|it| *it == Err(AppendError::TimedOut { after })), "{appended:?}");
    let is_late = |it: &Result<_, _>| matches!(it, Err(ReadError::TimedOut { .. }));
    assert!(read.iter().all(is_late), "{read:?}");
    // Were they not stopped, they would keep four readers for ten times as long as one takes, and a writer for twenty times.
    let plain = async {
        patient.append([about("plain", 1)]).await.unwrap();
        patient.query(Query::tagged("odd", 1), Position::START, 10).await.unwrap()
    };
    let plain = timeout(once * 4, plain).await.expect("others go on");
    assert_eq!(plain.events.len(), 0);
}

/// The writer is the daemon's: whatever is written to the state file waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conditions_that_ask_for_much_keep_no_other_write_waiting() {
    let stage = Stage::open().await;
    for n in 0..40 {
        stage.append((0..1_000).map(|at| about("n", n * 1_000 + at)).collect()).await.unwrap();
    }
    let item = |n: usize| QueryItem::default().types((0..256).map(|at| format!("T{n}-{at}")));
    let much = AppendCondition::none(Query::any_of((0..256).map(item)));
    let append = |n: usize| Append::new(vec![about("much", n)], Some(much.clone())).unwrap();
    let (one, others) = (append(0), (1..=12).map(append).collect::<Vec<_>>());
    let begun = Instant::now();
    stage.engine.append(one).await.unwrap();
    let once = begun.elapsed();
    let crowd = others.into_iter().map(|append| {
        let engine = stage.engine.clone();
        async move { engine.append(append).await }
    });
    let mut crowd = Box::pin(at_once(crowd.collect::<Vec<_>>()));
    let cursors = stage.engine.cursors().unwrap();
    let (mut slowest, mut writes) = (Duration::ZERO, 0);
    let answers = loop {
        let begun = Instant::now();
        tokio::select! {
            biased;
            answers = &mut crowd => break answers,
            taken = cursors.take("beside") => drop(taken.unwrap()),
        }
        slowest = begun.elapsed().max(slowest);
        writes += 1;
    };
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    println!("one took {once:?}; the slowest of {writes} writes beside 12 of them {slowest:?}");
    assert!(slowest < once * 4, "{slowest:?} beside 12 that take {once:?}");
}
