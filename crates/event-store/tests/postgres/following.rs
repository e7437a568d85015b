//! Who follows the log sees every event once, in order, and soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluicegate_event_store::{Engine, Event, NewEvent, Position, Query, Read};
use tokio::time::{Instant, timeout};

use crate::stage::{
    Crowd, PATIENCE, Sql, all, append, database, event, lent, open, positions, until,
};

/// Reads as events come, until there are so many.
async fn follow(engine: Arc<impl Engine>, count: usize) -> Vec<Event> {
    let mut read = Read::new(Query::all()).unwrap();
    read.limit = 7;
    let mut seen: Vec<Event> = Vec::new();
    while seen.len() < count {
        let page = engine.read(read.clone()).await.unwrap();
        if let Some(last) = page.events.last() {
            read.after = last.position();
            seen.extend(page.events);
        } else {
            engine.changed(read.after).await;
        }
    }
    seen
}

/// Appends of all sizes from three engines, some of which commit late, beside a transaction that does not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_follows_skips_nothing() {
    const WRITERS: usize = 9;
    const APPENDS: usize = 40;
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let first = open(&url).await;
    let mut sql = Sql::connect(&url).await;
    // A commit takes a while, each a different one: then others could overtake it.
    sql.run(
        "CREATE TABLE other (n int);
         CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_sleep(0.004 * random()); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON sluicegate.events DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (new.position % 3 = 0) EXECUTE FUNCTION late();",
    )
    .await;
    let older = sql.client.transaction().await.unwrap();
    older.batch_execute("INSERT INTO other VALUES (1)").await.unwrap();
    let engines = [Arc::clone(&first), open(&url).await, open(&url).await];
    let mut readers = Crowd::new();
    let size = |n: usize| 1 + n % 3;
    let count = WRITERS * (0..APPENDS).map(size).sum::<usize>();
    for engine in &engines {
        readers.join(follow(Arc::clone(engine), count)).await;
    }
    let mut writers = Crowd::new();
    for writer in 0..WRITERS {
        let engine = Arc::clone(&engines[writer % engines.len()]);
        writers
            .join(async move {
                for n in 0..APPENDS {
                    let new = |_| NewEvent::of("Wrote").tag("writer", writer);
                    append(&*engine, (0..size(n)).map(new).collect(), None).await.unwrap();
                }
            })
            .await;
    }
    writers.results().await;
    let log = positions(&all(&*first, Query::all(), 1_000).await);
    assert_eq!(log.len(), count);
    let seen = timeout(PATIENCE, readers.results()).await.unwrap();
    for seen in seen {
        assert_eq!(positions(&seen), log);
    }
    older.rollback().await.unwrap();
}

/// Another process hears of an append; the time is far below that of polling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_elsewhere_is_heard_of() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (here, there) = (open(&url).await, open(&url).await);
    let sql = Sql::connect(&url).await;
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND application_name = 'sluicegate-events' AND query LIKE '%head_of_events%'";
    until("listening", async || sql.number(listening).await >= 2).await;
    let mut slowest = Duration::ZERO;
    for n in 0..20 {
        let head = there.head().await.unwrap();
        let changed = there.changed(head);
        tokio::pin!(changed);
        assert!(futures_util::poll!(changed.as_mut()).is_pending());
        append(&*here, vec![event("A", &format!("n:{n}"))], None).await.unwrap();
        let begun = Instant::now();
        changed.await;
        slowest = slowest.max(begun.elapsed());
        assert!(there.head().await.unwrap() > head);
    }
    println!("heard of within {slowest:?}");
}

/// Without notifications it takes a second at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_nobody_tells_of_is_found() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    let quiet = AtomicBool::new(false);
    let follow = async {
        let mut after = Position::START;
        while !quiet.load(Ordering::Relaxed) {
            engine.changed(after).await;
            after = engine.head().await.unwrap().max(after);
            if after.get() > 0 {
                quiet.store(true, Ordering::Relaxed);
            }
        }
    };
    let sql = Sql::connect(&url).await;
    let raw = async {
        sql.run(
            "SELECT sluicegate.append_events('{1}', '{1}', '{A}', '{\"{k:v}\"}', '{\"{}\"}', '{1,1}', '{k:v,:A}', \
             '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        )
        .await;
    };
    timeout(PATIENCE, async { tokio::join!(follow, raw) }).await.unwrap();
}

/// Nothing happens: it returns even so, for it is a hint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_events_ends_without_them() {
    let Some(server) = lent() else { return };
    let engine = open(&database(server.url()).await).await;
    timeout(PATIENCE, engine.changed(Position::START)).await.unwrap();
    assert_eq!(engine.head().await.unwrap(), Position::START);
}
