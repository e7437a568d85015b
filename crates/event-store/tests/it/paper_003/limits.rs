//! "Scope", "Concurrency Behavior" and "Error Details": who is refused, when, and with which counts.

use std::time::Duration;

use sluicegate_event_store::{AppendCondition, AppendError, Position, Query, Settings, fold};
use tokio::time::Instant;

use super::*;
use crate::of_course;

#[tokio::test]
async fn the_paper_s_defaults_are_ours() {
    let settings = EventStore::in_memory().settings();
    assert_eq!((settings.max_concurrent_projections, settings.max_projection_tasks), (100, 50));
    assert_eq!(
        (settings.query_timeout, settings.append_timeout),
        (Duration::from_secs(10), Duration::from_secs(5),)
    );
    assert_eq!(settings.max_batch, 1_000);
}

#[tokio::test]
async fn under_the_limit_all_run_and_at_it_the_next_is_refused_with_true_counts() {
    let (engine, store) = limited(3).await;
    engine.let_through(0);
    for count in 1..=3 {
        let held = held(&store, count).await;
        assert_eq!(running(&store), count);
        drop(held);
    }
    let held = held(&store, 3).await;
    assert_eq!(project(&store).await, Err(too_many(3, 3, "project")));
    assert_eq!(stream(&store).await.err(), Some(too_many(3, 3, "project_stream")));
    assert_eq!(store.stats().projections_refused, 2);
    engine.open();
    for projecting in held {
        assert_eq!(projecting.await.unwrap().0, 10);
    }
    assert_eq!(running(&store), 0);
    assert_eq!(project(&store).await.unwrap().0, 10);
}

#[tokio::test]
async fn a_projection_and_a_stream_share_one_limit() {
    let (engine, store) = limited(2).await;
    let one = stream(&store).await.unwrap();
    engine.let_through(0);
    let _other = held(&store, 1).await;
    assert_eq!(stream(&store).await.err(), Some(too_many(2, 2, "project_stream")));
    drop(one);
    assert!(stream(&store).await.is_ok());
}

#[tokio::test]
async fn append_append_if_query_and_streams_of_events_are_not_limited() {
    let (engine, store) = limited(1).await;
    let _held = stream(&store).await.unwrap();
    assert_eq!(project(&store).await, Err(too_many(1, 1, "project")));
    for round in 0..100_u64 {
        store.append([of_course("A", "c2")]).await.unwrap();
        let condition = AppendCondition::none_after(Query::all(), store.head().await.unwrap());
        let position = store.append_if([of_course("B", "c2")], condition.clone()).await.unwrap();
        let conflict = store.append_if([of_course("B", "c2")], condition).await;
        assert_eq!(conflict, Err(AppendError::Conflict { position }));
        let page = store.query(Query::types(["B"]), Position::START, 1_000).await.unwrap();
        assert_eq!(page.events.len() as u64, round + 1);
        assert!(store.query_stream(Query::all(), Position::START).is_ok());
        assert!(store.tail(Query::all(), Position::START).is_ok());
    }
    assert_eq!((engine.reads(), running(&store)), (100, 1));
}

#[tokio::test]
async fn the_limit_changes_live_and_counts_stay_true() {
    let (engine, store) = limited(3).await;
    engine.let_through(0);
    let mut held = held(&store, 3).await;
    let limit = |limit| Settings { max_concurrent_projections: limit, ..store.settings() };
    store.change(limit(1)).unwrap();
    assert_eq!(project(&store).await, Err(too_many(1, 3, "project")), "they go on, and count");
    held.truncate(1);
    assert_eq!(project(&store).await, Err(too_many(1, 1, "project")));
    store.change(limit(2)).unwrap();
    let mut other = project(&store);
    assert!(begin(&mut other).await.is_pending());
    assert_eq!(project(&store).await, Err(too_many(2, 2, "project")));
    assert_eq!(store.change(limit(0)).unwrap_err().field, "max_concurrent_projections");
    assert_eq!(store.stats().projections_limit, 2, "what cannot work changes nothing");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_comes_in_by_turns_or_is_refused_at_its_deadline() {
    let (engine, store) = limited(1).await;
    let end = Instant::now() + Duration::from_secs(3);
    engine.let_through(0);
    let held = held(&store, 1).await;
    let waiting =
        || store.project(fold::count(Query::all()), Position::START).wait(end).into_future();
    let (mut first, mut second) = (waiting(), waiting());
    assert!(begin(&mut first).await.is_pending() && begin(&mut second).await.is_pending());
    assert_eq!(running(&store), 1, "who waits is not in");
    drop(held);
    assert!(begin(&mut second).await.is_pending(), "it is the first one's turn");
    assert!(begin(&mut first).await.is_pending());
    let refused = store.project_stream(fold::count(Query::all()), Position::START).wait(end).await;
    assert_eq!(refused.err(), Some(too_many(1, 1, "project_stream")));
    assert_eq!(Instant::now(), end);
    assert_eq!(second.await, Err(too_many(1, 1, "project")));
    engine.open();
    assert_eq!(first.await.unwrap().0, 10);
    assert_eq!(running(&store), 0);
}
