//! Which requests of a batch an earlier one may spoil.
//!
//! The database compares conditions with events that are there. Those of the batch itself are not there yet: which of
//! them a later request's condition asks for is computed here, and whether it counts (the earlier request may fail, or
//! its events may not be after the position) is decided by the database, under the lock.
//!
//! `docs/rules.md#events-1`.

use std::collections::{HashMap, HashSet};

use crate::{Append, NewEvent, QueryItem};

/// An event of an earlier request is one that the condition of a later asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    /// The later request.
    pub(super) later: usize,
    /// The earlier one.
    pub(super) earlier: usize,
    /// The event, counted through the batch: the last that matches.
    pub(super) event: usize,
}

/// The pairs of a batch, those of earlier requests first.
pub(super) fn pairs<'a>(batch: impl Iterator<Item = &'a Append> + Clone) -> Vec<Pair> {
    let wanted = wanted(batch.clone());
    let mut pairs = Vec::new();
    if wanted.is_empty() {
        return pairs;
    }
    // What came before the request that is looked at.
    let mut before = Before::default();
    for (number, append) in batch.enumerate() {
        let mut hits: HashMap<usize, usize> = HashMap::new();
        let items = append.condition().map_or(&[][..], |it| it.fail_if_events_match.items());
        let any = QueryItem::default();
        let of_all = append.condition().is_some() && items.is_empty();
        for item in items.iter().chain(of_all.then_some(&any)) {
            before.find(item, |owner, event| {
                let known = hits.entry(owner).or_insert(event);
                *known = event.max(*known);
            });
        }
        let found = hits.into_iter().map(|(earlier, event)| Pair { later: number, earlier, event });
        let begin = pairs.len();
        pairs.extend(found);
        pairs[begin..].sort_unstable();
        before.add(number, append.events(), &wanted);
    }
    pairs
}

/// What events are looked up by: an event has at least one of the keys of an item that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    Tag(&'a str),
    Type(&'a str),
    Any,
}

/// The keys of an item: its first tag, or else each of its types.
fn keys(item: &QueryItem) -> Vec<Key<'_>> {
    match (item.all_tags().first(), item.event_types()) {
        (Some(tag), _) => vec![Key::Tag(tag)],
        (None, []) => vec![Key::Any],
        (None, types) => types.iter().map(|name| Key::Type(name)).collect(),
    }
}

fn wanted<'a>(batch: impl Iterator<Item = &'a Append>) -> HashSet<Key<'a>> {
    let conditions = batch.filter_map(Append::condition);
    let mut wanted = HashSet::new();
    for condition in conditions {
        let items = condition.fail_if_events_match.items();
        wanted.extend(items.iter().flat_map(keys));
        if items.is_empty() {
            wanted.insert(Key::Any);
        }
    }
    wanted
}

/// The events of earlier requests by the keys that anybody asks for.
#[derive(Debug, Default)]
struct Before<'a> {
    /// With their owners and their numbers.
    by_key: HashMap<Key<'a>, Vec<(usize, usize, &'a NewEvent)>>,
    count: usize,
}

impl<'a> Before<'a> {
    fn find(&self, item: &QueryItem, mut hit: impl FnMut(usize, usize)) {
        for key in keys(item) {
            for (owner, number, event) in self.by_key.get(&key).into_iter().flatten() {
                let has = |tag: &str| event.tags().binary_search_by(|it| (**it).cmp(tag)).is_ok();
                if item.matches(event.event_type(), has) {
                    hit(*owner, *number);
                }
            }
        }
    }

    fn add(&mut self, owner: usize, events: &'a [NewEvent], wanted: &HashSet<Key<'_>>) {
        for event in events {
            let number = self.count;
            self.count += 1;
            let tags = event.tags().iter().map(|tag| Key::Tag(tag));
            for key in tags.chain([Key::Type(event.event_type()), Key::Any]) {
                if wanted.contains(&key) {
                    self.by_key.entry(key).or_default().push((owner, number, event));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{AppendCondition, Event, Position, Query};

    fn append(events: &[(&str, &[&str])], query: Option<Query>) -> Append {
        let event = |(name, tags): &(&str, &[&str])| NewEvent::of(*name).with_tags(tags.to_vec());
        Append::new(events.iter().map(event).collect(), query.map(AppendCondition::none)).unwrap()
    }

    fn found(batch: &[Append]) -> Vec<(usize, usize, usize)> {
        let pairs = pairs(batch.iter());
        pairs.iter().map(|pair| (pair.later, pair.earlier, pair.event)).collect()
    }

    #[test]
    fn a_pair_is_an_earlier_event_that_a_later_condition_asks_for() {
        let plain = |name, tags: &'static [&str]| append(&[(name, tags)], None);
        let asks = |query| append(&[("B", &["b:1"])], Some(query));
        let cases = [
            (vec![plain("A", &["k:v"]), plain("A", &["k:v"])], vec![]),
            (vec![plain("A", &["k:v"]), asks(Query::tagged("k", "v"))], vec![(1, 0, 0)]),
            (vec![asks(Query::tagged("k", "v")), plain("A", &["k:v"])], vec![]),
            (vec![plain("A", &["k:v"]), asks(Query::tagged("k", "v").tag("l", "w"))], vec![]),
            (
                vec![plain("A", &["k:v", "l:w"]), asks(Query::types(["A"]).tag("l", "w"))],
                vec![(1, 0, 0)],
            ),
            (vec![plain("A", &["k:v"]), asks(Query::types(["B"]).tag("k", "v"))], vec![]),
            (vec![plain("A", &["k:v"]), asks(Query::types(["C", "A"]))], vec![(1, 0, 0)]),
            (vec![plain("A", &["k:v"]), asks(Query::all())], vec![(1, 0, 0)]),
            (
                vec![plain("A", &["k:v"]), asks(Query::any_of([QueryItem::default()]))],
                vec![(1, 0, 0)],
            ),
            (
                vec![plain("A", &["k:v"]), asks(Query::types(["Z"]).or(Query::tagged("k", "v")))],
                vec![(1, 0, 0)],
            ),
            // The last event of a request that matches, and every request.
            (
                vec![
                    append(&[("A", &["k:v"]), ("A", &["k:v"]), ("A", &["k:x"])], None),
                    plain("A", &["k:v"]),
                    asks(Query::tagged("k", "v")),
                    asks(Query::types(["B"])),
                ],
                vec![(2, 0, 1), (2, 1, 3), (3, 2, 4)],
            ),
            // A tag is no type.
            (vec![plain("A", &["k:v"]), asks(Query::types(["k:v"]))], vec![]),
        ];
        for (batch, expected) in cases {
            assert_eq!(found(&batch), expected, "{batch:?}");
        }
    }

    fn some_query() -> impl Strategy<Value = Query> {
        let names = |of: &'static [&'static str]| prop::sample::subsequence(of, 0..=of.len());
        let item = (names(&["A", "B", "C"]), names(&["k:1", "k:2", "l:1"]))
            .prop_map(|(types, tags)| QueryItem::default().types(types).tags(tags));
        prop::collection::vec(item, 0..3).prop_map(Query::any_of)
    }

    fn some_append() -> impl Strategy<Value = Append> {
        let tags = prop::sample::subsequence(&["k:1", "k:2", "l:1"][..], 1..=3);
        let event = (prop::sample::select(&["A", "B", "C"][..]), tags)
            .prop_map(|(name, tags)| NewEvent::of(name).with_tags(tags));
        let query = prop::option::of(some_query());
        (prop::collection::vec(event, 1..4), query).prop_map(|(events, query)| {
            Append::new(events, query.map(AppendCondition::none)).unwrap()
        })
    }

    proptest! {
        /// The same as asking every later condition about every earlier event.
        #[test]
        fn nothing_is_overlooked(batch in prop::collection::vec(some_append(), 0..8)) {
            let mut expected = Vec::new();
            let mut starts = Vec::new();
            let mut count = 0;
            for append in &batch {
                starts.push(count);
                count += append.events().len();
            }
            for (later, append) in batch.iter().enumerate() {
                let Some(condition) = append.condition() else { continue };
                for (earlier, before) in batch[..later].iter().enumerate() {
                    let matches = |event: &NewEvent| {
                        let tags = event.tags().iter().map(String::as_str);
                        let event = Event::new(Position::new(1), 0, event.event_type(), tags, "{}");
                        condition.fail_if_events_match.matches(&event)
                    };
                    if let Some(last) = before.events().iter().rposition(matches) {
                        expected.push((later, earlier, starts[earlier] + last));
                    }
                }
            }
            prop_assert_eq!(found(&batch), expected);
        }
    }
}
