//! Appending, reading and following through the front.

use std::time::Duration;

use futures_util::StreamExt;
use sluicegate_event_store::{
    AppendCondition, AppendError, EngineError, EventStore, Position, Query, ReadError, Settings,
};

use crate::gated::Gated;
use crate::{fill, of_course, store_with};

#[tokio::test]
async fn a_query_is_filled_across_pages_and_says_where_to_read_on() {
    let store = store_with(2_500).await;
    let page = store.query(Query::types(["Odd"]), Position::START, 1_100).await.unwrap();
    assert_eq!((page.events.len(), page.next), (1_100, Some(Position::new(2_200))));
    let rest = store.query(Query::types(["Odd"]), Position::new(2_200), 1_100).await.unwrap();
    assert_eq!((rest.events.len(), rest.next), (150, None));
    let exactly = store.query(Query::types(["Odd"]), Position::START, 1_250).await.unwrap();
    assert_eq!((exactly.events.len(), exactly.next), (1_250, None));
    let one = store.query(Query::all(), Position::START, 0).await.unwrap();
    assert_eq!(one.events.len(), 1, "at least one, so that reading gets on");
    let invalid = store.query(Query::types([""]), Position::START, 1).await.unwrap_err();
    assert_eq!(invalid.to_string(), "items[0].types[0]: 0 characters: a type has 1 to 64");
}

#[tokio::test]
async fn a_stream_ends_where_the_log_ended_or_with_the_error() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    fill(&store, 2_500).await;
    let mut all = store.query_stream(Query::all(), Position::new(10)).unwrap();
    assert_eq!(all.next().await.unwrap().unwrap().position(), Position::new(11));
    fill(&store, 10).await;
    assert_eq!(all.by_ref().count().await, 2_489, "what came later is not part of it");
    engine.fail_read_after(2);
    let broken: Vec<_> = store.query_stream(Query::all(), Position::START).unwrap().collect().await;
    assert_eq!(broken.len(), 2_001);
    let error = ReadError::Failed(EngineError::new("the disk is gone"));
    assert_eq!(broken.last().unwrap().as_ref().unwrap_err(), &error);
    assert!(store.query_stream(Query::types([""]), Position::START).is_err());
}

#[tokio::test]
async fn a_tail_goes_on_and_can_be_taken_up_again() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    fill(&store, 5).await;
    let mut tail = store.tail(Query::types(["Odd"]), Position::START).unwrap();
    for position in [2, 4] {
        assert_eq!(tail.next().await.unwrap().unwrap().position(), Position::new(position));
    }
    let (next, _) = tokio::join!(tail.next(), fill(&store, 4));
    assert_eq!(next.unwrap().unwrap().position(), Position::new(7));
    drop(tail);
    let mut again = store.tail(Query::types(["Odd"]), Position::new(7)).unwrap();
    assert_eq!(again.next().await.unwrap().unwrap().position(), Position::new(9));
    engine.fail_read_after(0);
    let (error, _) = tokio::join!(again.next(), fill(&store, 4));
    assert!(error.unwrap().is_err());
    assert!(again.next().await.is_none(), "an error is the end");
}

#[tokio::test]
async fn a_tail_does_not_turn_round_while_others_are_busy() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    let mut reader = store.reader(Query::types(["Never"]), Position::START).unwrap().tailing();
    for _ in 0..10 {
        fill(&store, 3).await;
        // As long as anything gets on, it is polled.
        let waits = futures_util::poll!(std::pin::pin!(reader.next_page()));
        assert!(waits.is_pending());
    }
    assert_eq!(engine.reads(), 10, "one for each time that something came");
    assert_eq!(reader.position(), Position::new(30), "what it did not look for is behind it");
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_given_up() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    fill(&store, 10).await;
    engine.let_through(0);
    engine.hang_appends();
    let begun = tokio::time::Instant::now();
    let ten = Duration::from_secs(10);
    let query = store.query(Query::all(), Position::START, 1).await.unwrap_err();
    assert_eq!((query, begun.elapsed()), (ReadError::TimedOut { after: ten }, ten));
    let mut stream = store.query_stream(Query::all(), Position::START).unwrap();
    assert_eq!(stream.next().await, Some(Err(ReadError::TimedOut { after: ten })));
    assert_eq!(stream.next().await, None);
    let begun = tokio::time::Instant::now();
    let five = Duration::from_secs(5);
    let append = store.append([of_course("A", "c1")]).await.unwrap_err();
    assert_eq!((append, begun.elapsed()), (AppendError::TimedOut { after: five }, five));
}

#[tokio::test]
async fn batches_have_a_limit_that_can_be_lowered() {
    let store = EventStore::in_memory();
    let events = |count| vec![of_course("A", "c1"); count];
    assert!(store.append(events(1_000)).await.is_ok());
    let refused = store.append(events(1_001)).await.unwrap_err().to_string();
    assert_eq!(refused, "events: 1001 of them: at most 1000 go together");
    store.change(Settings { max_batch: 2, ..Settings::default() }).unwrap();
    let condition = || AppendCondition::none(Query::types(["B"]));
    assert!(store.append_if(events(2), condition()).await.is_ok());
    let refused = store.append_if(events(3), condition()).await.unwrap_err().to_string();
    assert_eq!(refused, "events: 3 of them: at most 2 go together");
    let none = store.append([]).await.unwrap_err().to_string();
    assert_eq!(none, "events: there is none: give at least one");
}

#[tokio::test]
async fn it_counts_what_it_does() {
    let store = store_with(3).await;
    let refused = store.append_if([of_course("A", "c")], AppendCondition::none(Query::all())).await;
    assert_eq!(refused, Err(AppendError::Conflict { position: Position::new(1) }));
    let stats = store.clone().stats();
    assert_eq!((stats.events_appended, stats.append_conflicts), (3, 1));
    assert_eq!(store.head().await, Ok(Position::new(3)));
}
