//! The bodies of requests to the event store: read field by field, so that what is wrong is named. A field that there is
//! not is an error: one that is misspelt would mean every event.
//!
//! JSON is taken apart and not rebuilt: the data of events is stored as it came.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use sluicegate_event_store::fold::{BuiltIn, Kind};
use sluicegate_event_store::{AppendCondition, NewEvent, Position, Query, QueryItem};
use sluicegate_sources::nearest;

use super::page;
use super::problem::{Code, Problem};
use crate::warnings::cut;

/// How many projectors there may be in one request.
const MOST_PROJECTORS: usize = 100;

/// What `POST /events` asks for.
#[derive(Debug)]
pub(super) struct ToAppend {
    pub(super) events: Vec<NewEvent>,
    pub(super) condition: Option<AppendCondition>,
}

/// What `POST /events/query` asks for.
#[derive(Debug)]
pub(super) struct ToRead {
    pub(super) query: Query,
    pub(super) after: Position,
    pub(super) limit: Option<usize>,
}

/// What `POST /events/project` asks for.
#[derive(Debug)]
pub(super) struct ToProject {
    pub(super) ids: Vec<String>,
    pub(super) folds: Vec<BuiltIn>,
    pub(super) after: Position,
}

impl ToAppend {
    pub(super) fn read(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::of_body(body)?;
        let (events, condition) = (fields.take("events"), fields.take("condition"));
        fields.end(&["events", "condition"])?;
        let events = events.ok_or_else(|| missing("events", "must be a list of events"))?;
        let events = list("events", events)?.into_iter().enumerate();
        Ok(Self {
            events: events
                .map(|(n, event)| new_event(&format!("events[{n}]"), event))
                .collect::<Result<_, _>>()?,
            condition: condition.map(|raw| append_condition("condition", raw)).transpose()?,
        })
    }
}

impl ToRead {
    pub(super) fn read(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::of_body(body)?;
        let (items, after) = (fields.take("items"), fields.take("after"));
        let limit = fields.take("limit");
        fields.end(&["items", "after", "limit"])?;
        Ok(Self {
            query: query("items", items)?,
            after: position("after", after)?,
            limit: limit.map(|raw| whole("limit", raw)).transpose()?,
        })
    }

    /// How many events a part in JSON has.
    pub(super) fn part(&self) -> Result<usize, Problem> {
        match self.limit.unwrap_or(page::USUAL) {
            limit @ 1..=page::MOST => Ok(limit),
            _ => {
                let most = page::MOST;
                Err(Problem::field("limit", format!("must be a whole number from 1 to {most}")))
            }
        }
    }
}

impl ToProject {
    pub(super) fn read(body: &[u8]) -> Result<Self, Problem> {
        let mut fields = Fields::of_body(body)?;
        let (projectors, after) = (fields.take("projectors"), fields.take("after"));
        fields.end(&["projectors", "after"])?;
        let all = projectors
            .ok_or_else(|| missing("projectors", "must be a list of what is to be projected"))?;
        let all = list("projectors", all)?;
        if all.is_empty() || all.len() > MOST_PROJECTORS {
            let words = format!("has {}: give 1 to {MOST_PROJECTORS}", all.len());
            return Err(Problem::field("projectors", words));
        }
        let (mut ids, mut folds) = (Vec::new(), Vec::new());
        let mut known = BTreeSet::new();
        for (n, raw) in all.into_iter().enumerate() {
            let at = format!("projectors[{n}]");
            let (id, fold) = projector(&at, raw)?;
            if !known.insert(id.clone()) {
                let words = format!("{:?} is there already: each needs its own", cut(&id));
                return Err(Problem::field(&format!("{at}.id"), words));
            }
            ids.push(id);
            folds.push(fold);
        }
        Ok(Self { ids, folds, after: position("after", after)? })
    }
}

fn projector(at: &str, raw: &RawValue) -> Result<(String, BuiltIn), Problem> {
    let mut fields = Fields::of(at, raw)?;
    let (id, items, fold) = (fields.take("id"), fields.take("items"), fields.take("fold"));
    fields.end(&["id", "items", "fold"])?;
    let inside = |name: &str| format!("{at}.{name}");
    let id = id.ok_or_else(|| missing(&inside("id"), "must be a string"))?;
    let id = text(&inside("id"), id)?;
    if id.is_empty() || id.contains('\0') {
        let words = "must not be empty, and not have the character NUL in it";
        return Err(Problem::field(&inside("id"), words));
    }
    let fold =
        fold.ok_or_else(|| missing(&inside("fold"), "must be count, exists, last or merge"))?;
    let kind: Kind = text(&inside("fold"), fold)?
        .parse()
        .map_err(|_| Problem::field(&inside("fold"), "must be count, exists, last or merge"))?;
    Ok((id, BuiltIn::new(kind, query(&inside("items"), items)?)))
}

fn new_event(at: &str, raw: &RawValue) -> Result<NewEvent, Problem> {
    let mut fields = Fields::of(at, raw)?;
    let (of, tags) = (fields.take("type"), fields.take("tags"));
    let data = fields.take_any("data");
    fields.end(&["type", "tags", "data"])?;
    let inside = |name: &str| format!("{at}.{name}");
    let of = of.ok_or_else(|| missing(&inside("type"), "must be a string"))?;
    let event = NewEvent::of(text(&inside("type"), of)?);
    let event = event.with_tags(texts(&inside("tags"), tags)?);
    Ok(match data {
        Some(data) => event.raw_json(data.get()),
        None => event,
    })
}

fn append_condition(at: &str, raw: &RawValue) -> Result<AppendCondition, Problem> {
    const NAME: &str = "failIfEventsMatch";
    let mut fields = Fields::of(at, raw)?;
    let (matching, after) = (fields.take(NAME), fields.take("after"));
    fields.end(&[NAME, "after"])?;
    let inside = format!("{at}.{NAME}");
    let matching = matching.ok_or_else(|| missing(&inside, "must be a query with items"))?;
    let mut fields = Fields::of(&inside, matching)?;
    let items = fields.take("items");
    fields.end(&["items"])?;
    let query = query(&format!("{inside}.items"), items)?;
    Ok(AppendCondition::none_after(query, position(&format!("{at}.after"), after)?))
}

/// The items of a query; none of them ask for every event.
fn query(at: &str, raw: Option<&RawValue>) -> Result<Query, Problem> {
    let items = raw.map_or(Ok(Vec::new()), |raw| list(at, raw))?;
    let items = items.into_iter().enumerate().map(|(n, raw)| {
        let at = format!("{at}[{n}]");
        let mut fields = Fields::of(&at, raw)?;
        let (types, tags) = (fields.take("types"), fields.take("tags"));
        fields.end(&["types", "tags"])?;
        let types = texts(&format!("{at}.types"), types)?;
        Ok(QueryItem::default().types(types).tags(texts(&format!("{at}.tags"), tags)?))
    });
    Ok(Query::any_of(items.collect::<Result<Vec<_>, Problem>>()?))
}

/// An object whose fields are taken one by one.
struct Fields<'a> {
    at: String,
    rest: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    fn of_body(body: &'a [u8]) -> Result<Self, Problem> {
        let raw: &RawValue = serde_json::from_slice(body)
            .map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))?;
        let rest = serde_json::from_str(raw.get())
            .map_err(|_| Problem::new(Code::InvalidField, "the body must be a JSON object"))?;
        Ok(Self { at: String::new(), rest })
    }

    fn of(at: &str, raw: &'a RawValue) -> Result<Self, Problem> {
        let rest = serde_json::from_str(raw.get());
        let rest = rest.map_err(|_| Problem::field(at, "must be an object"))?;
        Ok(Self { at: format!("{at}."), rest })
    }

    /// A field that is there and not null.
    fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        self.rest.remove(name).filter(|raw| raw.get() != "null")
    }

    /// A field that is there, and may be null.
    fn take_any(&mut self, name: &str) -> Option<&'a RawValue> {
        self.rest.remove(name)
    }

    /// Passes if all was taken.
    fn end(self, known: &[&str]) -> Result<(), Problem> {
        let Some(name) = self.rest.keys().find(|name| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.join(", ")),
        };
        let field = format!("{}{}", self.at, cut(name));
        Err(Problem::field(&field, format!("there is no such field: {hint}")))
    }
}

fn read<'a, T: Deserialize<'a>>(at: &str, raw: &'a RawValue, rule: &str) -> Result<T, Problem> {
    serde_json::from_str(raw.get()).map_err(|_| Problem::field(at, rule))
}

fn list<'a>(at: &str, raw: &'a RawValue) -> Result<Vec<&'a RawValue>, Problem> {
    read(at, raw, "must be a list")
}

fn text(at: &str, raw: &RawValue) -> Result<String, Problem> {
    read(at, raw, "must be a string")
}

fn texts(at: &str, raw: Option<&RawValue>) -> Result<Vec<String>, Problem> {
    raw.map_or(Ok(Vec::new()), |raw| read(at, raw, "must be a list of strings"))
}

fn position(at: &str, raw: Option<&RawValue>) -> Result<Position, Problem> {
    let number = raw.map(|raw| read(at, raw, "must be a position: a whole number from 0 on"));
    Ok(Position::new(number.transpose()?.unwrap_or(0)))
}

fn whole(at: &str, raw: &RawValue) -> Result<usize, Problem> {
    let number = read(at, raw, "must be a whole number from 1 on")?;
    if number == 0 {
        return Err(Problem::field(at, "must be a whole number from 1 on"));
    }
    Ok(number)
}

fn missing(at: &str, rule: &str) -> Problem {
    Problem::field(at, format!("is missing; it {rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_events_stays_as_it_came() {
        let body = r#"{"events":[{"type":"A","tags":["k:v"],"data":{ "z":1.0,"a":123456789012345678901234567890}},
            {"type":"B","tags":["k:v"]},{"type":"C","tags":["k:v"],"data":null}],
            "condition":{"failIfEventsMatch":{"items":[{"types":["A"],"tags":["k:v"]}]},"after":7}}"#;
        let ToAppend { events, condition } = ToAppend::read(body.as_bytes()).unwrap();
        let data: Vec<_> = events.iter().map(|event| event.data().unwrap()).collect();
        assert_eq!(data, [r#"{ "z":1.0,"a":123456789012345678901234567890}"#, "{}", "null"]);
        let wanted = Query::types(["A"]).tag("k", "v");
        assert_eq!(condition, Some(AppendCondition::none_after(wanted, Position::new(7))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let append = |body: &str| ToAppend::read(body.as_bytes()).map(drop);
        let query =
            |body: &str| ToRead::read(body.as_bytes()).and_then(|read| read.part()).map(drop);
        let project = |body: &str| ToProject::read(body.as_bytes()).map(drop);
        let event = r#"{"type":"A","tags":["k:v"]}"#;
        let condition = |text: &str| format!(r#"{{"events":[{event}],"condition":{text}}}"#);
        let cases = [
            (append("{}"), "events"),
            (append(r#"{"events":{}}"#), "events"),
            (append(r#"{"events":[7]}"#), "events[0]"),
            (append(r#"{"events":[{"tags":["k:v"]}]}"#), "events[0].type"),
            (append(r#"{"events":[{"type":7}]}"#), "events[0].type"),
            (append(r#"{"events":[{"type":"A","tags":"k:v"}]}"#), "events[0].tags"),
            (append(r#"{"events":[{"type":"A","tag":["k:v"]}]}"#), "events[0].tag"),
            (append(&condition("{}")), "condition.failIfEventsMatch"),
            (append(&condition(r#"{"failIfEventMatch":{}}"#)), "condition.failIfEventMatch"),
            (
                append(&condition(r#"{"failIfEventsMatch":{"items":[{"type":"A"}]}}"#)),
                "condition.failIfEventsMatch.items[0].type",
            ),
            (append(&condition(r#"{"failIfEventsMatch":{},"after":-1}"#)), "condition.after"),
            (query(r#"{"item":[]}"#), "item"),
            (query(r#"{"items":[{"types":"A"}]}"#), "items[0].types"),
            (query(r#"{"after":"7"}"#), "after"),
            (query(r#"{"limit":0}"#), "limit"),
            (query(r#"{"limit":1001}"#), "limit"),
            (project("{}"), "projectors"),
            (project(r#"{"projectors":[]}"#), "projectors"),
            (project(r#"{"projectors":[{"fold":"count"}]}"#), "projectors[0].id"),
            (project(r#"{"projectors":[{"id":"a"}]}"#), "projectors[0].fold"),
            (project(r#"{"projectors":[{"id":"a","fold":"sum"}]}"#), "projectors[0].fold"),
            (
                project(r#"{"projectors":[{"id":"a","fold":"last"},{"id":"a","fold":"count"}]}"#),
                "projectors[1].id",
            ),
        ];
        for (n, (read, field)) in cases.into_iter().enumerate() {
            let json = read.unwrap_err().to_json();
            assert_eq!((&json["status"], &json["field"]), (&422.into(), &field.into()), "{n}");
        }
        for body in ["", "x", "[", "\u{0}"] {
            assert_eq!(query(body).unwrap_err().code, Code::MalformedJson, "{body}");
        }
        assert_eq!(query("[]").unwrap_err().code, Code::InvalidField);
    }
}
