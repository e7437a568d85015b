//! Events as callers see them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sluicegate_event_store::fold::BuiltInState;
use sluicegate_event_store::{AppendCondition, Event, Page, Query};

use super::problem::{Code, Problem};
use super::shapes::stamp;
use crate::time::Timestamp;

/// An event. Its JSON is one line, whatever its data looks like.
#[derive(Serialize)]
struct EventShape<'a> {
    position: u64,
    #[serde(rename = "type")]
    event_type: &'a str,
    tags: Vec<&'a str>,
    data: Box<RawValue>,
    time: String,
}

#[derive(Serialize)]
struct PageShape<'a> {
    items: Vec<EventShape<'a>>,
    next: Option<u64>,
}

impl<'a> EventShape<'a> {
    fn new(event: &'a Event) -> Result<Self, Problem> {
        let time = Timestamp::from_millisecond(event.time_ms()).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Self {
            position: event.position().get(),
            event_type: event.event_type(),
            tags: event.tags().collect(),
            data: raw(event)?,
            time: stamp(time),
        })
    }
}

/// JSON as it was appended, in one line: line ends stand between its parts only.
fn one_line(json: &str) -> serde_json::Result<Box<RawValue>> {
    let line = match json.contains(['\n', '\r']) {
        true => json.replace(['\n', '\r'], " "),
        false => json.to_owned(),
    };
    RawValue::from_string(line)
}

fn raw(event: &Event) -> Result<Box<RawValue>, Problem> {
    one_line(event.data()).map_err(|_| {
        let detail = format!("the event at position {} has data that is no JSON", event.position());
        Problem::new(Code::Internal, detail)
    })
}

fn written(shape: &impl Serialize) -> String {
    serde_json::to_string(shape).expect("shapes have only keys that are texts")
}

/// A part of a list of events.
pub(super) fn page(page: &Page) -> Result<String, Problem> {
    let items = page.events.iter().map(EventShape::new).collect::<Result<_, _>>()?;
    Ok(written(&PageShape { items, next: page.next.map(|next| next.get()) }))
}

/// Events, each in a line.
pub(super) fn lines(events: &[Event]) -> Result<Bytes, Problem> {
    let mut lines = String::new();
    for event in events {
        lines += &written(&EventShape::new(event)?);
        lines.push('\n');
    }
    Ok(lines.into())
}

/// Events as they are followed. The id of each is where to go on after it.
pub(super) fn followed(events: &[Event]) -> Result<Bytes, Problem> {
    let mut pieces = String::new();
    for event in events {
        let data = written(&EventShape::new(event)?);
        pieces += &format!("id: {}\ndata: {data}\n\n", event.position());
    }
    Ok(pieces.into())
}

/// What projections came to, and under which condition a decision on that still holds.
pub(super) fn projected(
    ids: Vec<String>,
    states: Vec<BuiltInState>,
    condition: &AppendCondition,
) -> Result<String, Problem> {
    let mut by_id: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    for (id, state) in ids.into_iter().zip(&states) {
        let state = state.to_json().and_then(|json| one_line(json.get()));
        by_id.insert(id, state.map_err(unreadable)?);
    }
    let condition = json!({
        "failIfEventsMatch": { "items": items(&condition.fail_if_events_match) },
        "after": condition.after.get(),
    });
    Ok(written(&Projected { states: by_id, condition }))
}

#[derive(Serialize)]
struct Projected {
    states: BTreeMap<String, Box<RawValue>>,
    condition: Value,
}

fn unreadable(error: serde_json::Error) -> Problem {
    Problem::new(Code::Internal, format!("a state cannot be written: {error}"))
}

/// The items of a query, as requests have them.
fn items(query: &Query) -> Value {
    let item = |item: &sluicegate_event_store::QueryItem| {
        let mut shape = Map::new();
        shape.insert("types".to_owned(), item.event_types().into());
        shape.insert("tags".to_owned(), item.all_tags().into());
        Value::Object(shape)
    };
    query.items().iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use sluicegate_event_store::Position;

    use super::*;

    #[test]
    fn an_event_is_one_line_and_its_data_is_as_it_was() {
        let data = "{\r\n\"a\": 1.0,\n\"b\":\"\\n\"}";
        let event = Event::new(Position::new(7), 1_500, "A\nB", ["k:v"], data);
        let lines = lines(&[event]).unwrap();
        let data = r#"{  "a": 1.0, "b":"\n"}"#;
        let time = "1970-01-01T00:00:01.500Z";
        let line = format!(
            "{{\"position\":7,\"type\":\"A\\nB\",\"tags\":[\"k:v\"],\"data\":{data},\"time\":\"{time}\"}}\n"
        );
        assert_eq!(lines, line.into_bytes());
    }
}
