//! What every side appends: events of three tags and a hundred bytes, and a condition of two types and a tag.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_event_store::{AppendCondition, NewEvent, Position, Query};

/// How many types, courses and students there are. An order is of one event alone.
pub(super) const TYPES: u64 = 10;
pub(super) const COURSES: u64 = 1_000;
pub(super) const STUDENTS: u64 = 100_000;
/// The types that a condition asks for.
const ASKED: [&str; 2] = ["Type1", "Type2"];
/// The type of every tenth event.
pub(super) const TENTH: &str = "Type1";

/// No two events of a run have the same number, whoever appends them.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// An event before it is anybody's.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) event_type: String,
    /// In order.
    pub(super) tags: [String; 3],
    pub(super) data: String,
}

impl Plain {
    fn of(number: u64) -> Self {
        // Neighbours in the log are nobody's neighbours elsewhere.
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        Self {
            event_type: format!("Type{}", number % TYPES),
            tags: [
                format!("course:c{}", mixed % COURSES),
                format!("order:o{number}"),
                format!("student:s{}", mixed / COURSES % STUDENTS),
            ],
            data: format!("{{\"n\":{number},\"text\":\"{}\"}}", "x".repeat(80)),
        }
    }

    pub(super) fn event(&self) -> NewEvent {
        let event = NewEvent::of(&*self.event_type).with_tags(self.tags.iter().cloned());
        event.raw_json(&*self.data)
    }

    pub(super) fn theirs(&self) -> Result<tephra::Event, String> {
        let kind = their_type(&self.event_type)?;
        let tags = self.tags.iter().map(|tag| their_tag(tag)).collect::<Result<Vec<_>, _>>()?;
        let tags = tephra::Tags::new(tags).map_err(|error| error.to_string())?;
        tephra::Event::new(&kind, &tags, self.data.as_bytes()).map_err(|error| error.to_string())
    }

    /// The tag that no other event has.
    fn own_tag(&self) -> &str {
        &self.tags[1]
    }
}

/// So many events that nobody has appended yet.
pub(super) fn some(count: u64) -> Vec<Plain> {
    let first = NUMBERS.fetch_add(count, Ordering::Relaxed);
    (first..first + count).map(Plain::of).collect()
}

/// That none of two types came with the first event's own tag: it holds, and has to be looked for.
pub(super) fn condition(events: &[Plain], after: Position) -> AppendCondition {
    let own = events.first().and_then(|event| event.own_tag().split_once(':'));
    let (key, value) = own.unwrap_or_default();
    AppendCondition::none_after(Query::types(ASKED).tag(key, value), after)
}

/// The same, as the other store has it.
pub(super) fn their_condition(
    events: &[Plain],
    after: tephra::Position,
) -> Result<tephra::AppendCondition, String> {
    let types = ASKED.into_iter().map(their_type).collect::<Result<Vec<_>, _>>()?;
    let own = events.first().map_or("", Plain::own_tag);
    let tags = tephra::Tags::new([their_tag(own)?]).map_err(|error| error.to_string())?;
    let query = tephra::Query::item(tephra::QueryItem::new(types, tags));
    Ok(tephra::AppendCondition::new(query).after(after))
}

pub(super) fn their_type(name: &str) -> Result<tephra::EventType, String> {
    tephra::EventType::new(name).map_err(|error| error.to_string())
}

fn their_tag(tag: &str) -> Result<tephra::Tag, String> {
    tephra::Tag::new(tag).map_err(|error| error.to_string())
}
