//! What is read: items or-ed, types or-ed, tags and-ed, and the bounds.

use sluicegate_event_store::{Position, Query, QueryItem};

use super::stage::{event, numbers, read_of};
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a query finds what it asks for, in order, each once",
        run: |s| Box::pin(finds(s)),
    },
    Check { name: "reading begins after a position", run: |s| Box::pin(after(s)) },
    Check { name: "reading ends at a position, and takes it along", run: |s| Box::pin(up_to(s)) },
    Check { name: "a page has no more than was asked for", run: |s| Box::pin(limit(s)) },
];

/// The events that the checks of queries and conditions are about, with their numbers.
pub(super) const EVENTS: [(&str, &[&str]); 8] = [
    ("A", &["k:1"]),
    ("A", &["k:1", "l:1"]),
    ("B", &["k:1"]),
    ("B", &["k:2", "l:1"]),
    ("C", &["k:2"]),
    ("A", &["k:2", "l:2", "m:1"]),
    ("C", &["k:1", "k:2"]),
    ("D", &["m:1"]),
];

fn item() -> QueryItem {
    QueryItem::default()
}

/// Queries, each with the numbers of the events that it asks for.
pub(super) fn queries() -> Vec<(Query, &'static [u64])> {
    vec![
        (Query::all(), &[0, 1, 2, 3, 4, 5, 6, 7]),
        (Query::any_of([item()]), &[0, 1, 2, 3, 4, 5, 6, 7]),
        (Query::any_of([item().types(["A"]), item()]), &[0, 1, 2, 3, 4, 5, 6, 7]),
        (Query::types(["A"]), &[0, 1, 5]),
        (Query::types(["A", "C"]), &[0, 1, 4, 5, 6]),
        (Query::types(["A", "A", "Nothing"]), &[0, 1, 5]),
        (Query::types(["a"]), &[]),
        (Query::tagged("k", 1), &[0, 1, 2, 6]),
        (Query::tagged("k", 1).tag("l", 1), &[1]),
        (Query::tagged("l", 1).tag("k", 1), &[1]),
        (Query::tagged("k", 1).tag("k", 2), &[6]),
        (Query::tagged("k", 1).tag("k", 1), &[0, 1, 2, 6]),
        (Query::tagged("k", 3), &[]),
        (Query::tagged("k", 1).tag("k", 3), &[]),
        (Query::types(["A", "B"]).tag("k", 2), &[3, 5]),
        (Query::types(["A", "B"]).tag("k", 2).tag("l", 1), &[3]),
        (Query::types(["D"]).tag("k", 2), &[]),
        (Query::types(["D"]).or(Query::tagged("l", 1)), &[1, 3, 7]),
        // One item is no part of the other, and no sum of both.
        (Query::types(["A"]).tag("k", 1).or(Query::types(["B"]).tag("k", 2)), &[0, 1, 3]),
        (Query::types(["A"]).or(Query::types(["A"]).tag("k", 1)), &[0, 1, 5]),
        (Query::tagged("m", 1).or(Query::tagged("l", 2)).or(Query::types(["D"])), &[5, 7]),
        (Query::types(["Nothing"]).or(Query::tagged("k", 9)), &[]),
    ]
}

/// Appends [`EVENTS`]; answers with their positions.
pub(super) async fn append_events(stage: &Stage) -> Vec<Position> {
    let mut positions = Vec::new();
    for (number, (event_type, tags)) in (0..).zip(EVENTS) {
        positions.push(stage.append(vec![event(event_type, tags, number)]).await);
    }
    positions
}

async fn finds(stage: Stage) {
    append_events(&stage).await;
    for (query, expected) in queries() {
        assert_eq!(stage.numbers(query.clone()).await, expected, "{query:?}");
    }
}

async fn after(stage: Stage) {
    let positions = append_events(&stage).await;
    for (query, expected) in queries() {
        for (number, after) in (0..).zip(&positions) {
            let mut read = read_of(query.clone());
            read.after = *after;
            let found = numbers(&stage.page(read).await.events);
            let rest: Vec<u64> = expected.iter().copied().filter(|n| *n > number).collect();
            assert_eq!(found, rest, "{query:?} after {after}");
        }
        for beyond in [positions[7].get() + 1, 1 << 40, u64::MAX] {
            let mut read = read_of(query.clone());
            read.after = Position::new(beyond);
            let page = stage.page(read).await;
            assert!(page.events.is_empty() && page.next.is_none(), "{query:?} after {beyond}");
        }
    }
}

async fn up_to(stage: Stage) {
    let positions = append_events(&stage).await;
    for (query, expected) in queries() {
        for (first, after) in [(0, Position::START), (3, positions[2])] {
            for (number, up_to) in (0..).zip(&positions) {
                let mut read = read_of(query.clone());
                (read.after, read.up_to) = (after, Some(*up_to));
                let page = stage.page(read).await;
                let wanted = |n: &u64| (first..=number).contains(n);
                let within: Vec<u64> = expected.iter().copied().filter(wanted).collect();
                assert_eq!(numbers(&page.events), within, "{query:?} after {after} up to {up_to}");
                assert_eq!(page.next, None, "all of {query:?} up to {up_to} was there");
            }
        }
        let mut read = read_of(query.clone());
        read.up_to = Some(Position::new(u64::MAX));
        assert_eq!(numbers(&stage.page(read).await.events), expected, "{query:?}");
        let mut nothing = read_of(query);
        nothing.up_to = Some(Position::START);
        assert!(stage.page(nothing).await.events.is_empty());
    }
}

async fn limit(stage: Stage) {
    append_events(&stage).await;
    for (query, expected) in queries() {
        for limit in 1..=9 {
            let mut read = read_of(query.clone());
            read.limit = limit;
            let page = stage.page(read).await;
            let least = usize::from(!expected.is_empty());
            let count = page.events.len();
            assert!((least..=limit).contains(&count), "{count} of {limit}: {query:?}");
            assert_eq!(numbers(&page.events), expected[..count], "{query:?}");
            // After a full page more may match; without a word of it, nothing does.
            let is_all = count == expected.len();
            assert!(page.next.is_some() || is_all, "{query:?}, {limit}: {page:?}");
            assert!(
                page.next.is_none() || count == limit || !is_all,
                "{query:?}, {limit}: {page:?}"
            );
        }
    }
}
