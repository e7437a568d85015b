//! Pages of a long log.
//!
//! `docs/rules.md#events-4`.

use sluicegate_event_store::{Engine, Event, NewEvent, Position, Query, QueryItem, Read};

use crate::stage::{Stage, about};

/// Events whose tags are told by their number.
fn numbered(n: u64) -> NewEvent {
    NewEvent::of(format!("T{}", n % 3)).tag("mod7", n % 7).tag("mod100", n % 100).tag("n", n)
}

async fn long_log(count: u64) -> Stage {
    let stage = Stage::open().await;
    let mut n = 0;
    while n < count {
        let batch = (0..1_000.min(count - n)).map(|at| numbered(n + at)).collect::<Vec<_>>();
        n += 1_000;
        stage.append(batch).await.unwrap();
    }
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_of_a_query_reads_what_matches_once_and_in_order() {
    let stage = long_log(5_000).await;
    let everything = stage.all(Query::all()).await;
    assert_eq!(everything.len(), 5_000);
    let item = QueryItem::default;
    let queries = [
        Query::types(["T1"]),
        Query::types(["T1", "T2"]),
        Query::types(["T0", "T1", "T2"]),
        Query::tagged("mod7", 3),
        Query::types(["T1"]).tag("mod7", 3),
        Query::tagged("mod7", 3).tag("mod100", 5),
        Query::types(["T1"]).or(Query::tagged("mod7", 3)).or(Query::tagged("n", 17)),
        Query::any_of([item().tag("mod7", 1), item().tag("mod7", 1).types(["T0"])]),
        Query::tagged("mod7", 9),
        Query::tagged("n", 4_999).or(Query::types(["Never"])),
    ];
    for query in queries {
        let expected = everything.iter().filter(|event| query.matches(event));
        let expected = expected.map(Event::position).collect::<Vec<_>>();
        for limit in [1_000, 7] {
            let mut read = Read::new(query.clone()).unwrap();
            read.limit = limit;
            let mut found = Vec::new();
            loop {
                let page = stage.engine.read(read.clone()).await.unwrap();
                assert!(page.events.len() <= limit);
                found.extend(page.events.iter().map(Event::position));
                let Some(next) = page.next else { break };
                read.after = next;
            }
            assert_eq!(found, expected, "{query:?} by {limit}");
        }
        let bounds = (Position::new(1_234), Position::new(3_210));
        let mut read = Read::new(query.clone()).unwrap();
        (read.after, read.up_to, read.limit) = (bounds.0, Some(bounds.1), 5_000);
        let page = stage.engine.read(read).await.unwrap();
        let within = expected.iter().filter(|at| **at > bounds.0 && **at <= bounds.1);
        assert!(page.events.iter().map(Event::position).eq(within.copied()), "{query:?}");
        assert_eq!(page.next, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_bounded_in_bytes() {
    let stage = Stage::open().await;
    let long = || about("k", 1).tag("l", 1).raw_json(format!("\"{}\"", "x".repeat(1_000_000)));
    for _ in 0..10 {
        stage.append(vec![long()]).await.unwrap();
    }
    for query in [Query::all(), Query::tagged("k", 1), Query::tagged("k", 1).tag("l", 1)] {
        let page = stage.engine.read(Read::new(query.clone()).unwrap()).await.unwrap();
        assert_eq!(page.events.len(), 5, "{query:?}");
        assert_eq!(page.next, Some(page.events[4].position()));
        assert_eq!(stage.all(query).await.len(), 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_given_up_leaves_the_others_alone() {
    let stage = long_log(2_000).await;
    for _ in 0..50 {
        let read = Read::new(Query::types(["T1"]).or(Query::tagged("mod7", 3))).unwrap();
        let mut given_up = stage.engine.read(read);
        // It is on its way, or done already.
        drop(futures_util::poll!(&mut given_up));
    }
    assert_eq!(stage.all(Query::types(["T1"])).await.len(), 667);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_while_many_append_sees_each_event_once_and_in_order() {
    let stage = Stage::open().await;
    let appender = |n: u64| {
        let engine = stage.engine.clone();
        async move {
            for round in 0..50 {
                let events = (0..3).map(|part| about("n", n * 1_000 + round * 10 + part));
                crate::stage::append(&engine, events.collect(), None).await.unwrap();
            }
            0u64
        }
    };
    let engine = stage.engine.clone();
    let tail = async move {
        let (mut read, mut seen) = (Read::new(Query::types(["Said"])).unwrap(), 0);
        while seen < 16 * 50 * 3 {
            engine.changed(read.after).await;
            let page = engine.read(read.clone()).await.unwrap();
            for event in &page.events {
                // There are no gaps, since nothing failed: so nothing was skipped.
                assert_eq!(event.position().get(), read.after.get() + 1);
                read.after = event.position();
                seen += 1;
            }
        }
        seen
    };
    let tail: std::pin::Pin<Box<dyn Future<Output = u64> + Send>> = Box::pin(tail);
    let work = (0..16).map(|n| Box::pin(appender(n)) as _).chain([tail]);
    assert_eq!(crate::stage::at_once(work).await.last(), Some(&2_400));
}
