//! What may be stored and asked for. Everything is checked here, once, before an engine sees it.
//!
//! `docs/rules.md#events-7`.

use std::fmt;

use serde::de::IgnoredAny;

use crate::query::QueryItem;
use crate::{AppendCondition, NewEvent, Query};

/// How many events can be appended together.
pub const MAX_BATCH: usize = 1_000;
/// How many bytes of them: types, tags and data.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// How many characters a type has at most.
pub const MAX_TYPE: usize = 64;
/// How many bytes a tag has at most, key and value together.
pub const MAX_TAG: usize = 512;
/// How many tags an event has at most.
pub const MAX_TAGS: usize = 64;
/// How many bytes the data of an event has at most.
pub const MAX_DATA: usize = 1 << 20;
/// How deep arrays and objects are nested in them at most: as deep as `serde_json` reads.
pub const MAX_DEPTH: usize = 127;
/// How many items a query has at most.
pub const MAX_ITEMS: usize = 256;
/// How many types an item of a query names at most, and how many tags.
pub const MAX_NAMES: usize = 256;

/// Something may not be stored, or not be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// What it is about, such as `events[2].tags[0]`.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    fn within(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Invalid {}

/// Checks events, and puts the tags of each in order.
pub(crate) fn events(events: &mut [NewEvent]) -> Result<(), Invalid> {
    if events.is_empty() {
        return Err(Invalid::new("events", "there is none: give at least one"));
    }
    if events.len() > MAX_BATCH {
        let message = format!("{} of them: at most {MAX_BATCH} go together", events.len());
        return Err(Invalid::new("events", message));
    }
    for (n, event) in events.iter_mut().enumerate() {
        one_event(event).map_err(|invalid| invalid.within(&format!("events[{n}]")))?;
    }
    let bytes = events.iter().map(NewEvent::bytes).sum::<usize>();
    if bytes > MAX_BATCH_BYTES {
        let message = format!("{bytes} bytes: at most {MAX_BATCH_BYTES} go together");
        return Err(Invalid::new("events", message));
    }
    Ok(())
}

fn one_event(event: &mut NewEvent) -> Result<(), Invalid> {
    event_type("type", event.event_type())?;
    if event.tags().is_empty() {
        return Err(Invalid::new("tags", "there is none: give at least one, as key:value"));
    }
    if event.tags().len() > MAX_TAGS {
        let message = format!("{} of them: at most {MAX_TAGS}", event.tags().len());
        return Err(Invalid::new("tags", message));
    }
    for (n, text) in event.tags().iter().enumerate() {
        tag(&format!("tags[{n}]"), text)?;
    }
    let data = event.data().map_err(|error| Invalid::new("data", error))?;
    if data.len() > MAX_DATA {
        let message = format!("{} bytes: at most {MAX_DATA}", data.len());
        return Err(Invalid::new("data", message));
    }
    serde_json::from_str::<IgnoredAny>(data)
        .map_err(|error| Invalid::new("data", format!("it is no JSON: {error}")))?;
    let deep = depth(data);
    if deep > MAX_DEPTH {
        let message = format!("nested {deep} deep: at most {MAX_DEPTH}");
        return Err(Invalid::new("data", message));
    }
    if data.contains("\\u0000") && has_escaped_nul(data) {
        return Err(Invalid::new("data", "it has the character NUL in it (\\u0000)"));
    }
    event.sort_tags();
    Ok(())
}

/// Checks a query, and puts the names of each item in order.
pub(crate) fn query(field: &str, query: &mut Query) -> Result<(), Invalid> {
    let count = query.items().len();
    if count > MAX_ITEMS {
        let message = format!("{count} of them: at most {MAX_ITEMS}");
        return Err(Invalid::new(format!("{field}items"), message));
    }
    for (n, item) in query.items_mut().iter_mut().enumerate() {
        one_item(&format!("{field}items[{n}]"), item)?;
    }
    Ok(())
}

/// Checks a condition.
pub(crate) fn condition(condition: &mut AppendCondition) -> Result<(), Invalid> {
    query("condition.failIfEventsMatch.", &mut condition.fail_if_events_match)
}

fn one_item(field: &str, item: &mut QueryItem) -> Result<(), Invalid> {
    for (name, count) in [("types", item.event_types().len()), ("tags", item.all_tags().len())] {
        if count > MAX_NAMES {
            let message = format!("{count} of them: at most {MAX_NAMES}");
            return Err(Invalid::new(format!("{field}.{name}"), message));
        }
    }
    for (n, of) in item.event_types().iter().enumerate() {
        event_type(&format!("{field}.types[{n}]"), of)?;
    }
    for (n, text) in item.all_tags().iter().enumerate() {
        tag(&format!("{field}.tags[{n}]"), text)?;
    }
    item.sort();
    Ok(())
}

fn event_type(field: &str, text: &str) -> Result<(), Invalid> {
    let count = text.chars().count();
    if count == 0 || count > MAX_TYPE {
        let message = format!("{count} characters: a type has 1 to {MAX_TYPE}");
        return Err(Invalid::new(field, message));
    }
    no_nul(field, text)
}

fn tag(field: &str, text: &str) -> Result<(), Invalid> {
    let (key, value) = text.split_once(':').unwrap_or_default();
    if key.is_empty() || value.is_empty() {
        return Err(Invalid::new(field, format!("{text:?} is no tag: write key:value")));
    }
    if text.len() > MAX_TAG {
        let message = format!("{} bytes: a tag has at most {MAX_TAG}", text.len());
        return Err(Invalid::new(field, message));
    }
    no_nul(field, text)
}

fn no_nul(field: &str, text: &str) -> Result<(), Invalid> {
    match text.contains('\0') {
        true => Err(Invalid::new(field, "it has the character NUL in it")),
        false => Ok(()),
    }
}

/// How deep arrays and objects are nested in JSON.
fn depth(json: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
        deepest = open.max(deepest);
    }
    deepest
}

fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// Whether JSON has the escape of NUL in it: after an even number of backslashes.
fn has_escaped_nul(json: &str) -> bool {
    json.match_indices("\\u0000").any(|(at, _)| {
        let before = json[..at].bytes().rev().take_while(|byte| *byte == b'\\').count();
        before % 2 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(event: NewEvent) -> String {
        events(&mut [event]).unwrap_err().to_string()
    }

    #[test]
    fn what_may_not_be_is_named() {
        let good = || NewEvent::of("A").tag("k", "v");
        assert_eq!(events(&mut [good()]), Ok(()));
        assert_eq!(events(&mut [good().raw_json(r#""\\u0000""#)]), Ok(()));
        let cases = [
            (NewEvent::of("").tag("k", "v"), "events[0].type: 0 characters: a type has 1 to 64"),
            (NewEvent::of("A\0").tag("k", "v"), "events[0].type: it has the character NUL in it"),
            (NewEvent::of("A"), "events[0].tags: there is none: give at least one, as key:value"),
            (good().with_tags(["kv"]), "events[0].tags[1]: \"kv\" is no tag: write key:value"),
            (good().tag("k", ""), "events[0].tags[1]: \"k:\" is no tag: write key:value"),
            (
                good().raw_json(r#""\u0000""#),
                "events[0].data: it has the character NUL in it (\\u0000)",
            ),
        ];
        for (event, message) in cases {
            assert_eq!(refused(event), message);
        }
        assert!(refused(good().raw_json("{")).starts_with("events[0].data: it is no JSON: "));
        assert!(refused(NewEvent::of("ü".repeat(65)).tag("k", "v")).contains("65 characters"));
        assert!(refused(good().tag("k", "v".repeat(600))).contains("602 bytes"));
        assert!(
            refused(good().raw_json(format!("\"{}\"", "x".repeat(MAX_DATA)))).contains("bytes")
        );
        let many = vec![good(); MAX_BATCH + 1];
        assert!(events(&mut { many }).unwrap_err().to_string().contains("1001 of them"));
        let mut wrong = Query::types(["A"]).or(Query::types([""]));
        let named = query("", &mut wrong).unwrap_err();
        assert_eq!(named.field, "items[1].types[0]");
    }

    #[test]
    fn data_is_nested_no_deeper_than_it_can_be_read() {
        let good = || NewEvent::of("A").tag("k", "v");
        let arrays = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        let objects = |deep: usize| format!("{}1{}", r#"{"[\"{":"#.repeat(deep), "}".repeat(deep));
        for data in [arrays(MAX_DEPTH), objects(MAX_DEPTH)] {
            assert_eq!(events(&mut [good().raw_json(&*data)]), Ok(()));
            serde_json::from_str::<serde_json::Value>(&data).unwrap();
        }
        for data in [arrays(MAX_DEPTH + 1), objects(MAX_DEPTH + 1)] {
            let named = refused(good().raw_json(&*data));
            assert_eq!(named, "events[0].data: nested 128 deep: at most 127");
            serde_json::from_str::<serde_json::Value>(&data).unwrap_err();
        }
        assert!(refused(good().raw_json(arrays(100_000))).contains("nested 100000 deep"));
        let flat = format!("[{}{:?}]", "[[],{}],".repeat(1_000), "[{".repeat(1_000));
        assert_eq!(events(&mut [good().raw_json(flat)]), Ok(()));
    }

    #[test]
    fn names_are_put_in_order() {
        let mut twice = [NewEvent::of("A").tag("l", "w").tag("k", "v").tag("l", "w")];
        events(&mut twice).unwrap();
        assert_eq!(twice[0].tags(), ["k:v", "l:w"]);
    }
}
