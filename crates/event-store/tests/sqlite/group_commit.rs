//! Those who append at once share a transaction, and each is answered by itself.

use std::time::Duration;

use futures_util::future::join_all;
use rusqlite::{Connection, TransactionBehavior};
use sluicegate_event_store::{AppendCondition, AppendError, Engine, Query, SqliteEngine};
use tokio::time::timeout;

use crate::stage::{Stage, about, append, file};

/// The file, held by a connection that is not the engine's: what is appended meanwhile waits together.
struct Held {
    connection: Connection,
}

impl Held {
    fn new(stage: &Stage) -> Self {
        let connection = Connection::open(file(&stage.folder)).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self { connection }
    }

    fn release(self) {
        self.connection.execute_batch("ROLLBACK").unwrap();
    }
}

/// How many transactions were committed since the log began: its frames that end one, of its present salt.
fn commits(stage: &Stage) -> usize {
    let log = std::fs::read(file(&stage.folder).with_extension("db-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let page = usize::try_from(number(8)).unwrap();
    let frames = (32..log.len()).step_by(24 + page);
    frames.filter(|at| log[at + 8..at + 16] == log[16..24] && number(at + 4) > 0).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_that_wait_are_written_in_one_transaction() {
    let stage = Stage::open().await;
    stage.append(vec![about("n", 0)]).await.unwrap();
    let before = commits(&stage);
    let held = Held::new(&stage);
    let mut appends =
        (1..=1_000).map(|n| Box::pin(stage.append(vec![about("n", n)]))).collect::<Vec<_>>();
    // Polled once, each is in line.
    for append in &mut appends {
        assert!(futures_util::poll!(append).is_pending());
    }
    held.release();
    let answers = join_all(appends).await;
    assert!(answers.iter().all(Result::is_ok));
    // The first may have been begun before the others came.
    assert!(commits(&stage) - before <= 2, "{} commits", commits(&stage) - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_of_64_callers_share_their_syncs() {
    let stage = Stage::open().await;
    let before = commits(&stage);
    let caller = |n: u32| {
        let engine = stage.engine.clone();
        async move {
            for round in 0..20 {
                append(&engine, vec![about("n", format!("{n}-{round}"))], None).await.unwrap();
            }
        }
    };
    crate::stage::at_once((0..64).map(caller)).await;
    let commits = commits(&stage) - before;
    assert!(commits * 4 < 64 * 20, "{commits} commits for {} appends", 64 * 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_within_a_transaction_fails_nobody_else() {
    let stage = Stage::open().await;
    let held = Held::new(&stage);
    let none = |tag: u32| Some(AppendCondition::none(Query::tagged("seat", tag)));
    let engine = &stage.engine;
    let mut appends = vec![
        Box::pin(append(engine, vec![about("seat", 1)], None)),
        // It sees the one before it, of the same transaction.
        Box::pin(append(engine, vec![about("seat", 1)], none(1))),
        Box::pin(append(engine, vec![about("seat", 2), about("seat", 3)], none(2))),
        Box::pin(append(engine, vec![about("seat", 4)], none(3))),
        Box::pin(append(engine, vec![about("seat", 5)], none(4))),
    ];
    for append in &mut appends {
        assert!(futures_util::poll!(append).is_pending());
    }
    held.release();
    let answers = join_all(appends).await;
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(position) => Ok(position.get()),
        Err(AppendError::Conflict { position }) => Err(position.get()),
        Err(error) => panic!("{error}"),
    });
    // What a conflict kept out is not seen by those behind it: seat 4 is free.
    assert_eq!(answers.collect::<Vec<_>>(), [Ok(1), Err(1), Ok(3), Err(3), Ok(4)]);
    let seats = stage.all(Query::all()).await;
    let seats = seats.iter().map(|event| event.tag("seat").unwrap()).collect::<Vec<_>>();
    assert_eq!(seats, ["1", "2", "3", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_append_is_whole_or_not_there() {
    for round in 0..20u64 {
        let stage = Stage::open().await;
        let events = (0..50).map(|n| about("n", n)).collect();
        let cut = timeout(Duration::from_micros(round * 100), stage.append(events)).await;
        // In line behind it.
        stage.append(vec![about("last", 1)]).await.unwrap();
        let count = stage.all(Query::types(["Said"])).await.len();
        let expected: &[usize] = if cut.is_ok() { &[51] } else { &[1, 51] };
        assert!(expected.contains(&count), "{count} after {} us", round * 100);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_more_hears_of_it_at_once() {
    let stage = Stage::open().await;
    let start = stage.engine.head().await.unwrap();
    let mut changed = Box::pin(stage.engine.changed(start));
    assert!(futures_util::poll!(&mut changed).is_pending());
    let at = stage.append(vec![about("n", 1)]).await.unwrap();
    // Not by the timer that ends every wait: that one runs for longer.
    assert!(futures_util::poll!(&mut changed).is_ready());
    assert_eq!(stage.engine.head().await.unwrap(), at);
    assert!(futures_util::poll!(Box::pin(stage.engine.changed(start))).is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_in_one_file_see_each_other() {
    let stage = Stage::open().await;
    let (one, two) = (&stage.engine, SqliteEngine::within(stage.engine.file().clone()));
    let two = two.await.unwrap();
    let condition = || Some(AppendCondition::none(Query::tagged("seat", 1)));
    append(one, vec![about("seat", 1)], condition()).await.unwrap();
    let late = append(&two, vec![about("seat", 1)], condition()).await;
    assert!(matches!(late, Err(AppendError::Conflict { .. })), "{late:?}");
    assert_eq!(two.head().await.unwrap(), one.head().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_that_holds_the_file_for_too_long_is_named() {
    let mut settings = sluicegate_event_store::SqliteSettings::default();
    settings.busy = Some(Duration::from_millis(50));
    let stage = Stage::open_with(settings).await;
    let mut other = Connection::open(file(&stage.folder)).unwrap();
    let held = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let refused = stage.append(vec![about("n", 1)]).await.unwrap_err();
    assert!(refused.to_string().contains("another process holds"), "{refused}");
    // Reading goes on.
    assert!(stage.all(Query::all()).await.is_empty());
    held.rollback().unwrap();
    stage.append(vec![about("n", 2)]).await.unwrap();
    assert_eq!(stage.engine.failure(), None);
}
