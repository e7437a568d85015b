//! Stores with events.

use sluicegate_event_store::{EventStore, NewEvent};

/// An event of a course.
pub(crate) fn of_course(event_type: &str, course: &str) -> NewEvent {
    NewEvent::of(event_type).tag("course", course)
}

/// A store with so many events of course c1, `Odd` and `Even` by turns, whose data are their numbers.
pub(crate) async fn store_with(count: u64) -> EventStore {
    let store = EventStore::in_memory();
    fill(&store, count).await;
    store
}

pub(crate) async fn fill(store: &EventStore, count: u64) {
    for from in (0..count).step_by(1_000) {
        let of = |n: u64| {
            let event_type = if n.is_multiple_of(2) { "Even" } else { "Odd" };
            of_course(event_type, "c1").tag("n", n % 7).json(&n)
        };
        store.append((from..count.min(from + 1_000)).map(of)).await.unwrap();
    }
}
