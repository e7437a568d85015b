//! Whether a condition holds.
//!
//! The writer checks it, and nobody else is written meanwhile. So it does so many steps and no more, whatever is asked: a
//! condition that needs more is checked on a reader's thread first, as long as somebody waits for it, up to some position;
//! then the writer has only what came after that left to check. No event appears at or before a position that can be read.
//!
//! Events that are few beside the lists are compared one by one: so what is left to check grows with what came, and not
//! with what is asked.

use rusqlite::{Connection, params};
use sluicegate_tasks::Context;

use super::append::head;
use super::lists::{Patience, StoredLists, interrupted};
use super::search::Search;
use super::statements::COMPARED;
use super::tail::{Tail, View};
use crate::event::SEPARATOR;
use crate::{AppendCondition, Query, QueryItem};

/// How many steps the writer does for a condition that it sees for the first time: about a millisecond.
const STEPS: usize = 256;
/// How many items are compared with an event in about the time of a step.
const ITEMS: usize = 32;

/// What is known of a condition before the writer checks it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Up to where it holds.
    pub(crate) holds_to: i64,
    /// How many steps the writer does for it: more each time, so that it ends however much comes meanwhile.
    steps: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self { holds_to: 0, steps: STEPS }
    }
}

impl Known {
    /// It was checked up to there.
    pub(crate) fn up_to(self, holds_to: i64) -> Self {
        Self { holds_to, steps: self.steps.saturating_mul(2) }
    }
}

/// What was found out about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It holds.
    Holds,
    /// An event is there that matches it.
    Conflict(i64),
    /// Nothing: it would take too long.
    Not,
}

/// Checks a condition within the writer's transaction, from where it is known to hold.
pub(crate) fn briefly(
    connection: &Connection,
    tail: &Tail,
    condition: &AppendCondition,
    known: Known,
) -> rusqlite::Result<Checked> {
    let (query, last) = (&condition.fail_if_events_match, head(connection)?);
    let (low, steps) = (condition.after.as_i64().max(known.holds_to), known.steps);
    if query.is_all() {
        return Ok(found(Some(last).filter(|last| *last > low)));
    }
    if are_compared(query, low, last) {
        return match steps_to_compare(query, low, last) <= steps {
            true => Ok(found(compare(connection, query, low, last, || true)?)),
            false => Ok(Checked::Not),
        };
    }
    // To get a search ready takes a step for each list, too.
    let few = (lists(query) <= steps).then(|| Search::new(query));
    let Some(mut search) = few.flatten() else { return Ok(Checked::Not) };
    let view = tail.writers_view();
    let mut lists = StoredLists::new(connection, &view, Patience::Steps(steps))?;
    match search.next(&mut lists, low.saturating_add(1)) {
        Err(_) if lists.is_out_of_steps() => Ok(Checked::Not),
        first => Ok(found(first?)),
    }
}

/// The first event up to where a view ends that matches a condition, looked for as long as the context lasts.
pub(crate) fn patiently(
    connection: &Connection,
    cx: &Context,
    view: &View,
    condition: &AppendCondition,
    holds_to: i64,
) -> rusqlite::Result<Option<i64>> {
    let query = &condition.fail_if_events_match;
    let low = condition.after.as_i64().max(holds_to);
    if are_compared(query, low, view.up_to) {
        return compare(connection, query, low, view.up_to, || !cx.is_cancelled());
    }
    let Some(mut search) = Search::new(query) else {
        return Ok(Some(view.up_to).filter(|last| *last > low));
    };
    // One transaction, so that the file is not locked anew for each statement.
    let _snapshot = connection.unchecked_transaction()?;
    let mut lists = StoredLists::new(connection, view, Patience::While(cx))?;
    search.next(&mut lists, low.saturating_add(1))
}

/// How many lists a query is looked for in.
fn lists(query: &Query) -> usize {
    query.items().iter().map(|item| item.all_tags().len() + item.event_types().len()).sum()
}

/// How many events there are after a position, at most.
fn since(low: i64, last: i64) -> usize {
    usize::try_from(last.saturating_sub(low)).unwrap_or(0)
}

fn are_compared(query: &Query, low: i64, last: i64) -> bool {
    !query.is_all() && steps_to_compare(query, low, last) < lists(query)
}

fn steps_to_compare(query: &Query, low: i64, last: i64) -> usize {
    since(low, last) * (1 + query.items().len() / ITEMS)
}

/// The first event after a position, up to another, that a query asks for; event by event, as long as it may go on.
fn compare(
    connection: &Connection,
    query: &Query,
    low: i64,
    last: i64,
    may_go_on: impl Fn() -> bool,
) -> rusqlite::Result<Option<i64>> {
    let mut compared = connection.prepare_cached(COMPARED)?;
    let mut rows = compared.query(params![low, last])?;
    while let Some(row) = rows.next()? {
        if !may_go_on() {
            return Err(interrupted());
        }
        let event_type = row.get_ref(1)?.as_str()?;
        let tags = std::str::from_utf8(row.get_ref(2)?.as_bytes()?)?;
        let tags: Vec<&str> = tags.split(SEPARATOR).collect();
        if query.items().iter().any(|item| asks_for(item, event_type, &tags)) {
            return row.get(0).map(Some);
        }
    }
    Ok(None)
}

/// Whether an item asks for an event. The names of both are in order.
fn asks_for(item: &QueryItem, event_type: &str, tags: &[&str]) -> bool {
    let types = item.event_types();
    (types.is_empty() || types.binary_search_by(|of| (**of).cmp(event_type)).is_ok())
        && item.all_tags().iter().all(|tag| tags.binary_search(&&**tag).is_ok())
}

fn found(first: Option<i64>) -> Checked {
    first.map_or(Checked::Holds, Checked::Conflict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;
    use crate::sqlite::statements::INSERT_EVENT;

    /// A log of events of the types `T0`, `T1` and so on, each with a tag for its number and one that all have.
    fn log(events: i64) -> (Connection, Tail) {
        let connection = Connection::open_in_memory().unwrap();
        schema::migrate(&connection).unwrap().unwrap();
        for n in 0..events {
            let tags = format!("all:1{SEPARATOR}n:{n}");
            connection
                .execute(INSERT_EVENT, params![format!("T{n}"), tags.as_bytes(), "{}", 0])
                .unwrap();
        }
        let tail = Tail::load(&connection, 0).unwrap();
        (connection, tail)
    }

    fn condition(mut query: Query) -> AppendCondition {
        crate::check::query("", &mut query).unwrap();
        AppendCondition::none(query)
    }

    fn of_types(items: usize) -> Query {
        let item =
            |n| QueryItem::default().types((0..256).map(|at| format!("T{}", n * 256 + at + 40)));
        Query::any_of((0..items).map(item))
    }

    #[test]
    fn the_writer_leaves_what_asks_for_much_to_others_and_checks_what_came_since() {
        let (connection, tail) = log(60);
        let brief = |query: Query, holds_to| {
            let known = Known { holds_to, ..Known::default() };
            briefly(&connection, &tail, &condition(query), known).unwrap()
        };
        // 60 events are compared with one item, but not with 256.
        assert_eq!(brief(of_types(1), 0), Checked::Conflict(41));
        assert_eq!(brief(of_types(256), 0), Checked::Not);
        assert_eq!(brief(of_types(256), 38), Checked::Conflict(41));
        assert_eq!(brief(of_types(256), 60), Checked::Holds);
        let none =
            Query::any_of((0..256).map(|n| QueryItem::default().types(["T1"]).tag("n", n + 2)));
        assert_eq!(brief(none.clone(), 0), Checked::Not);
        assert_eq!(brief(none, 40), Checked::Holds);
        // It is given more time each time that it was too little.
        let known = Known::default().up_to(0).up_to(0);
        let checked = briefly(&connection, &tail, &condition(of_types(256)), known).unwrap();
        assert_eq!(checked, Checked::Conflict(41));
        let everything = of_types(2).or(Query::all());
        assert_eq!(brief(everything.clone(), 59), Checked::Conflict(60));
        assert_eq!(brief(everything, 60), Checked::Holds);
    }

    #[test]
    fn comparing_finds_what_a_search_finds() {
        let (connection, tail) = log(60);
        let view = tail.view();
        let item = QueryItem::default;
        let queries = [
            Query::types(["T7", "T50"]),
            Query::tagged("n", 33),
            Query::tagged("all", 1).tag("n", 33),
            Query::types(["T1", "T33"]).tag("n", 33),
            Query::types(["T1"]).tag("n", 33),
            Query::any_of([item().types(["Z"]), item().tags(["n:5", "all:1"])]),
            Query::tagged("z", 1),
        ];
        for query in queries.map(|query| condition(query).fail_if_events_match) {
            for low in [0, 5, 6, 33, 34, 51, 60] {
                let mut search = Search::new(&query).unwrap();
                let mut lists =
                    StoredLists::new(&connection, &view, Patience::Steps(STEPS)).unwrap();
                let expected = search.next(&mut lists, low + 1).unwrap();
                let compared = compare(&connection, &query, low, view.up_to, || true).unwrap();
                assert_eq!(compared, expected, "{query:?} after {low}");
            }
        }
    }
}
