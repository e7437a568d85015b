//! Reading on and on: each event once, in order, however many write.

use std::sync::Arc;

use sluicegate_event_store::{Append, Engine, Event, Position, Query};

use super::stage::{at_once, event, read_of, soon};
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "whoever waits for an event hears of it", run: |s| Box::pin(wakes(s)) },
    Check {
        name: "whoever waits for what is there already does not wait",
        run: |s| Box::pin(there(s)),
    },
    Check { name: "a tailing reader sees each event once, in order", run: |s| Box::pin(tails(s)) },
    Check {
        name: "readers of some events see each of them once, in order",
        run: |s| Box::pin(some(s)),
    },
];

async fn wakes(stage: Stage) {
    for engine in stage.engines(2).await {
        let after = stage.head().await;
        let heard = async {
            // It may return early: then it is asked again.
            while engine.head().await.expect("it has a head") <= after {
                engine.changed(after).await;
            }
        };
        let append = stage.append(vec![event("A", &["k:v"], 0)]);
        soon("an event came", async { tokio::join!(heard, append) }).await;
    }
}

async fn there(stage: Stage) {
    stage.append(vec![event("A", &["k:v"], 0)]).await;
    soon("it is there", stage.engine.changed(Position::START)).await;
}

const WRITERS: u64 = 6;
const APPENDS: u64 = 20;

/// Appends batches of one to five events, tagged by the writer.
async fn write(engine: Arc<dyn Engine>, writer: u64) {
    for append in 0..APPENDS {
        let batch = 1 + (append * 7 + writer) % 5;
        let tag = format!("w:{writer}");
        let of = |n| event(if n == 0 { "First" } else { "Other" }, &[&tag], append * 10 + n);
        let append = Append::new((0..batch).map(of).collect(), None).expect("they may be stored");
        engine.append(append).await.expect("they are appended");
        tokio::task::yield_now().await;
    }
}

/// Follows a query until so many events have come.
async fn follow(engine: Arc<dyn Engine>, query: Query, count: usize) -> Vec<Event> {
    let (mut read, mut seen) = (read_of(query), Vec::new());
    read.limit = 7;
    while seen.len() < count {
        let page = engine.read(read.clone()).await.expect("it can be read");
        let Some(last) = page.events.last() else {
            engine.changed(read.after).await;
            continue;
        };
        read.after = page.next.unwrap_or(last.position());
        seen.extend(page.events);
    }
    seen
}

/// What all writers append to a query: as many as it finds at the end.
async fn tail(stage: &Stage, queries: Vec<(Query, usize)>) {
    let engines = stage.engines(3).await;
    let engine = |n: usize| Arc::clone(&engines[n % engines.len()]);
    let readers = queries.iter().enumerate().map(|(n, (query, count))| {
        let following = follow(engine(n), query.clone(), *count);
        Box::pin(following) as std::pin::Pin<Box<dyn Future<Output = Vec<Event>> + Send>>
    });
    let writers = (0..WRITERS).map(|writer| {
        let writing = write(engine(writer as usize), writer);
        Box::pin(async move {
            writing.await;
            Vec::new()
        }) as _
    });
    let all: Vec<_> = readers.chain(writers).collect();
    let seen = at_once(all).await;
    for ((query, _), seen) in queries.into_iter().zip(seen) {
        let log = stage.all(query.clone()).await;
        let positions = |events: &[Event]| -> Vec<u64> {
            events.iter().map(|event| event.position().get()).collect()
        };
        assert_eq!(positions(&seen), positions(&log), "{query:?}");
    }
}

fn written(writer: u64) -> usize {
    (0..APPENDS).map(|append| 1 + (append as usize * 7 + writer as usize) % 5).sum()
}

async fn tails(stage: Stage) {
    let all = (0..WRITERS).map(written).sum();
    tail(&stage, vec![(Query::all(), all), (Query::all(), all)]).await;
}

async fn some(stage: Stage) {
    let first = (WRITERS * APPENDS) as usize;
    let of_two = Query::tagged("w", 1).or(Query::tagged("w", 4));
    let firsts_of_one = Query::types(["First"]).tag("w", 2);
    tail(
        &stage,
        vec![
            (Query::types(["First"]), first),
            (of_two, written(1) + written(4)),
            (firsts_of_one, APPENDS as usize),
        ],
    )
    .await;
}
