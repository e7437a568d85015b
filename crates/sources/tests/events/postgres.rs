//! A queue of events in PostgreSQL, which several processes append to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Source};
use sluicegate_event_store::Engine;
use sluicegate_event_store::postgres::{PostgresEngine, PostgresSettings};
use sluicegate_tasks::{Context, TaskGroup};
use sluicegate_testkit::brokers::{self, Kind};
use tokio::time::Instant;

use crate::stage::{PATIENCE, Stage, again, positions, said, settings};

/// The store of a schema, as one more process would open it.
async fn open(server: &str, schema: &str) -> Arc<dyn Engine> {
    // Other processes use the same server.
    let url = format!("{server}?schema={schema}_{}", std::process::id());
    let settings = PostgresSettings::parse(&url).unwrap().with_append_timeout(PATIENCE);
    Arc::new(PostgresEngine::open(settings).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_append_at_the_same_time_nothing_is_skipped() {
    const WRITERS: u64 = 12;
    const EACH: u64 = 100;
    let Some(server) = brokers::lend(Kind::Postgres) else { return };
    let stage = Stage::of(open(server.url(), "late").await, settings()).await;
    let group = TaskGroup::new("writers", 12).unwrap();
    let mut writers = Vec::new();
    let engines = [open(server.url(), "late").await, open(server.url(), "late").await];
    for writer in 0..WRITERS {
        let engine = Arc::clone(&engines[(writer % 2) as usize]);
        let write = move |_: Context| async move {
            for number in 0..EACH {
                // Long ones take longer to commit.
                let data = "x".repeat((number % 7 * 4_000) as usize);
                let event = said(&writer.to_string()).json(&(number, data));
                let append = sluicegate_event_store::Append::new(vec![event], None).unwrap();
                engine.append(append).await.unwrap();
            }
        };
        writers.push(group.submit(&Context::new(), write).await.unwrap());
    }
    let (mut seen, mut next) = (Vec::new(), BTreeMap::<String, u64>::new());
    let end = Instant::now() + PATIENCE;
    while seen.len() < (WRITERS * EACH) as usize {
        assert!(Instant::now() < end, "{} came", seen.len());
        let some = stage.source.receive(Demand::any(50)).await.unwrap();
        for delivery in &some {
            let message = delivery.message.as_ref().unwrap();
            let payload = message.payload.as_deref().unwrap();
            let payload: serde_json::Value = serde_json::from_str(payload).unwrap();
            let next = next.entry(message.group.as_deref().unwrap().to_owned()).or_default();
            assert_eq!(payload["data"][0], *next, "of a key each comes after the one before");
            *next += 1;
        }
        seen.extend(positions(&some));
        stage.done(&some).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "some came twice");
    assert!(stage.all().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_goes_on_from_the_cursor() {
    let Some(server) = brokers::lend(Kind::Postgres) else { return };
    let older = Stage::of(open(server.url(), "over").await, settings()).await;
    older.append(["a", "a", "b", "c"].map(said)).await;
    let heads = older.take(3).await;
    older.done(&heads[..1]).await;
    older.settle(&heads[2..], again(Duration::from_secs(3_600), 3)).await;
    let newer = Stage::of(open(server.url(), "over").await, settings()).await;
    let next = newer.take(2).await;
    assert_eq!(positions(&next), [2, 3]);
    newer.done(&next).await;
    let settle = sluicegate_dispatch::Settlement::Ack;
    let stale = older.settle(&heads[1..2], settle).await;
    assert_eq!(stale, [sluicegate_dispatch::Settled::Stale]);
    assert!(older.source.health().is_err());
    let depth = newer.source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (0, 1, 0));
    let stored = newer.stored().await.unwrap();
    assert!(stored.starts_with(r#"{"version":1,"upTo":4,"open":[[4,3,"#), "{stored}");
}
