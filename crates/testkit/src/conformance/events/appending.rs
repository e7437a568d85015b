//! Appending: positions, order, all or nothing.

use sluicegate_event_store::{AppendCondition, Position, Query};

use super::stage::{event, numbers, read_of};
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "an empty store has nothing, and no head", run: |s| Box::pin(empty(s)) },
    Check { name: "an event comes back as it was appended", run: |s| Box::pin(comes_back(s)) },
    Check { name: "positions grow, and the head is the last", run: |s| Box::pin(positions(s)) },
    Check { name: "a batch stands together in its order", run: |s| Box::pin(batch(s)) },
    Check { name: "what is refused leaves nothing behind", run: |s| Box::pin(refused(s)) },
    Check { name: "it is there for every engine once it is answered", run: |s| Box::pin(seen(s)) },
];

async fn empty(stage: Stage) {
    assert_eq!(stage.head().await, Position::START);
    let page = stage.page(read_of(Query::all())).await;
    assert!(page.events.is_empty() && page.next.is_none(), "{page:?}");
}

async fn comes_back(stage: Stage) {
    let data = r#"{"z":1.50,"a":[null,"\u00e9\"\\"], "big":12345678901234567890123 , "x":{}}"#;
    let new = event("Weighed", &["z:1", "a:2", "a:1", "z:1"], 0).raw_json(data);
    let position = stage.append(vec![new]).await;
    let events = stage.all(Query::all()).await;
    let [event] = &*events else { panic!("one: {events:?}") };
    assert_eq!((event.position(), event.event_type()), (position, "Weighed"));
    assert_eq!(event.tags().collect::<Vec<_>>(), ["a:1", "a:2", "z:1"]);
    assert_eq!(event.data(), data, "byte by byte");
    assert!(event.time_ms() > 1_500_000_000_000, "in milliseconds: {}", event.time_ms());
}

async fn positions(stage: Stage) {
    let mut last = Position::START;
    for number in 0..20 {
        let position = stage.append(vec![event("A", &["k:v"], number); 3]).await;
        assert!(position > last, "{position} after {last}");
        assert_eq!(stage.head().await, position);
        last = position;
    }
    let positions: Vec<_> = stage.all(Query::all()).await.iter().map(|e| e.position()).collect();
    assert_eq!(positions.len(), 60);
    assert!(positions.is_sorted_by(|one, next| one < next), "{positions:?}");
    assert_eq!(positions.last(), Some(&last));
}

async fn batch(stage: Stage) {
    let of = |from: u64| (from..from + 100).map(|n| event("A", &["k:v"], n)).collect();
    let first = stage.append(of(0)).await;
    let second = stage.append(of(100)).await;
    let events = stage.all(Query::all()).await;
    assert_eq!(numbers(&events), (0..200).collect::<Vec<_>>());
    assert_eq!((events[99].position(), events[199].position()), (first, second));
}

async fn refused(stage: Stage) {
    let position = stage.append(vec![event("A", &["k:v"], 0)]).await;
    let condition = AppendCondition::none(Query::tagged("k", "v"));
    let events = (1..50).map(|n| event("B", &["l:w"], n)).collect();
    assert_eq!(stage.append_if(events, condition).await, Err(position));
    assert_eq!(stage.head().await, position);
    assert_eq!(stage.numbers(Query::all()).await, [0]);
    let later = stage.append(vec![event("B", &["l:w"], 1)]).await;
    assert!(later > position);
    assert_eq!(stage.numbers(Query::all()).await, [0, 1]);
}

async fn seen(stage: Stage) {
    let engines = stage.engines(3).await;
    for (number, writer) in (0..).zip(&engines) {
        let events = vec![event("A", &["k:v"], number)];
        let condition = AppendCondition::none_after(Query::all(), stage.head().await);
        let position = super::stage::append_if(&**writer, events, condition).await;
        let position = position.expect("nothing came between");
        for reader in &engines {
            assert_eq!(reader.head().await, Ok(position));
            let page = reader.read(read_of(Query::all())).await.expect("it can be read");
            assert_eq!(numbers(&page.events), (0..=number).collect::<Vec<_>>());
        }
    }
}
