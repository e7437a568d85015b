//! The search against a model that looks at every event.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;

use super::search::{Lists, Search, tag_key, type_key};
use crate::{Event, Position, Query, QueryItem};

/// Lists in memory that count how often they are asked.
#[derive(Default)]
struct Listed {
    by_key: BTreeMap<String, Vec<i64>>,
    seeks: usize,
}

impl Listed {
    fn add(&mut self, event: &Event) {
        let at = event.position().as_i64();
        self.by_key.entry(type_key(event.event_type())).or_default().push(at);
        for tag in event.tags() {
            self.by_key.entry(tag_key(tag).to_owned()).or_default().push(at);
        }
    }
}

impl Lists for Listed {
    type Error = Infallible;

    fn seek(
        &mut self,
        key: &str,
        from: i64,
        count: usize,
        into: &mut Vec<i64>,
    ) -> Result<(), Infallible> {
        assert!(into.is_empty() && count > 0);
        self.seeks += 1;
        let list = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let begin = list.partition_point(|at| *at < from);
        into.extend(list[begin..].iter().take(count));
        Ok(())
    }
}

fn found(search: &mut Search, lists: &mut Listed, mut from: i64) -> Vec<i64> {
    let mut found = Vec::new();
    while let Some(at) = search.next(lists, from).unwrap() {
        found.push(at);
        from = at + 1;
    }
    found
}

fn event(position: u64, of: u8, tags: &[u8]) -> Event {
    let mut tags = tags.iter().map(|tag| format!("k:{tag}")).collect::<Vec<_>>();
    tags.sort();
    tags.dedup();
    let tags = tags.iter().map(String::as_str);
    Event::new(Position::new(position), 0, &format!("T{of}"), tags, "{}")
}

fn item() -> impl Strategy<Value = QueryItem> {
    let names = |most| prop::collection::vec(0u8..5, 0..most);
    (names(3), names(4)).prop_map(|(types, tags)| {
        QueryItem::default()
            .types(types.iter().map(|of| format!("T{of}")))
            .tags(tags.iter().map(|tag| format!("k:{tag}")))
    })
}

fn log() -> impl Strategy<Value = Vec<Event>> {
    let of = (0u8..4, prop::collection::vec(0u8..4, 1..4), 1u64..4);
    prop::collection::vec(of, 0..120).prop_map(|events| {
        let mut position = 0;
        let place = |(of, tags, gap): (u8, Vec<u8>, u64)| {
            position += gap;
            event(position, of, &tags)
        };
        events.into_iter().map(place).collect()
    })
}

proptest! {
    #[test]
    fn what_is_found_is_what_matches(
        log in log(),
        items in prop::collection::vec(item(), 1..4),
        from in 0i64..200,
    ) {
        let query = Query::any_of(items);
        let mut lists = Listed::default();
        log.iter().for_each(|event| lists.add(event));
        let matches = |event: &&Event| query.matches(event) && event.position().as_i64() >= from;
        let expected = log.iter().filter(matches).map(|event| event.position().as_i64());
        match Search::new(&query) {
            None => prop_assert!(query.is_all()),
            Some(mut search) => {
                prop_assert_eq!(found(&mut search, &mut lists, from), expected.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn leaps_of_any_width_lose_nothing(log in log(), items in prop::collection::vec(item(), 1..4)) {
        let query = Query::any_of(items);
        let mut lists = Listed::default();
        log.iter().for_each(|event| lists.add(event));
        let Some(mut search) = Search::new(&query) else { return Ok(()) };
        for from in (0..400).step_by(7) {
            let expected = log
                .iter()
                .find(|event| query.matches(event) && event.position().as_i64() >= from)
                .map(|event| event.position().as_i64());
            prop_assert_eq!(search.next(&mut lists, from).unwrap(), expected);
        }
    }
}

#[test]
fn a_check_asks_no_more_often_of_a_long_log() {
    // Two types, and a tag that few have: as often of a thousand events as of a hundred thousand.
    let seeks = |events: u64| {
        let mut lists = Listed::default();
        for n in 1..=events {
            lists.add(&event(n, (n % 3) as u8, &[(n % 4) as u8]));
        }
        lists.add(&event(events + 1, 0, &[99]));
        let mut search = Search::new(&Query::types(["T1", "T2"]).tag("k", 99)).unwrap();
        assert_eq!(search.next(&mut lists, 1).unwrap(), None);
        lists.seeks
    };
    assert_eq!(seeks(1_000), seeks(100_000));
    assert!(seeks(1_000) <= 6, "{}", seeks(1_000));
}

#[test]
fn lists_that_are_walked_are_read_in_blocks() {
    let mut lists = Listed::default();
    (1..=10_000u64).for_each(|n| lists.add(&event(n, 0, &[1])));
    let mut search = Search::new(&Query::types(["T0"]).tag("k", 1)).unwrap();
    assert_eq!(found(&mut search, &mut lists, 0).len(), 10_000);
    assert!(lists.seeks < 100, "{} seeks", lists.seeks);
}

#[test]
fn a_type_and_a_tag_of_the_same_name_are_two_keys() {
    assert_ne!(type_key("k:v"), tag_key("k:v"));
    assert_ne!(type_key("=k:v"), tag_key("=k:v"));
}
