//! The folds that are asked for by name, over HTTP and on the command line.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::value::{RawValue, to_raw_value};

use super::{BoxError, Projection};
use crate::{Event, Query};

/// A fold that is known by its name. A list of them is one projection: `store.project(vec![…], after)`.
///
/// ```
/// use sluicegate_event_store::{Query, fold};
///
/// let seats_taken = fold::BuiltIn::new("count".parse()?, Query::types(["StudentSubscribed"]));
/// # Ok::<(), fold::UnknownKind>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    kind: Kind,
    query: Query,
}

/// What a fold does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How many events there are.
    Count,
    /// Whether there is one.
    Exists,
    /// The data of the last one.
    Last,
    /// Their data, which are objects, as one: where several have a field, the last one counts.
    Merge,
}

/// There is no fold of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind {
    /// The name.
    pub name: String,
}

/// What a built-in fold has come to.
#[derive(Clone, Debug, PartialEq)]
pub enum BuiltInState {
    /// So many events.
    Count(u64),
    /// There is one, or none.
    Exists(bool),
    /// The last one, if there is one.
    Last(Option<Event>),
    /// All fields, each in JSON as it was written.
    Merge(BTreeMap<String, Box<str>>),
}

impl BuiltIn {
    /// A fold of that kind over events.
    #[must_use]
    pub fn new(kind: Kind, query: Query) -> Self {
        Self { kind, query }
    }
}

impl Kind {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Count, Self::Exists, Self::Last, Self::Merge];

    /// Its name, as it is written in requests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Exists => "exists",
            Self::Last => "last",
            Self::Merge => "merge",
        }
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownKind { name: name.to_owned() })
    }
}

impl Projection for BuiltIn {
    type State = BuiltInState;

    fn query(&self) -> Query {
        self.query.clone()
    }

    fn start(&self) -> BuiltInState {
        match self.kind {
            Kind::Count => BuiltInState::Count(0),
            Kind::Exists => BuiltInState::Exists(false),
            Kind::Last => BuiltInState::Last(None),
            Kind::Merge => BuiltInState::Merge(BTreeMap::new()),
        }
    }

    fn apply(&self, state: &mut BuiltInState, event: &Event) -> Result<(), BoxError> {
        match state {
            BuiltInState::Count(count) => *count += 1,
            BuiltInState::Exists(exists) => *exists = true,
            BuiltInState::Last(last) => *last = Some(event.clone()),
            BuiltInState::Merge(merged) => {
                let fields: BTreeMap<String, Box<RawValue>> = event.json()?;
                merged.extend(fields.into_iter().map(|(name, value)| (name, value.into())));
            }
        }
        Ok(())
    }
}

impl BuiltInState {
    /// The same in JSON, in which data are as they were written: `null` where there is no last event.
    ///
    /// # Errors
    /// The data of an event are no JSON, which no store takes in.
    pub fn to_json(&self) -> serde_json::Result<Box<RawValue>> {
        let raw = |json: &str| RawValue::from_string(json.to_owned());
        match self {
            Self::Count(count) => to_raw_value(count),
            Self::Exists(exists) => to_raw_value(exists),
            Self::Last(last) => raw(last.as_ref().map_or("null", Event::data)),
            Self::Merge(merged) => {
                let fields = merged.iter().map(|(name, json)| Ok((name, raw(json)?)));
                to_raw_value(&fields.collect::<serde_json::Result<BTreeMap<_, _>>>()?)
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no fold: it is one of", self.name)?;
        Kind::ALL.iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl std::error::Error for UnknownKind {}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::Position;

    fn state(name: &str, data: &[&str]) -> Result<Value, String> {
        let fold = BuiltIn::new(name.parse().unwrap(), Query::all());
        let mut state = fold.start();
        for data in data {
            let event = Event::new(Position::new(1), 0, "A", ["k:v"], data);
            fold.apply(&mut state, &event).map_err(|error| error.to_string())?;
        }
        let json = state.to_json().map_err(|error| error.to_string())?;
        serde_json::from_str(json.get()).map_err(|error| error.to_string())
    }

    #[test]
    fn data_stay_as_they_were_written() {
        let deep = format!("{{\"d\":{}1{}}}", "[".repeat(2_000), "]".repeat(2_000));
        for data in [r#"{"a":1e400,"b":0.12345678901234567890}"#, &deep] {
            for name in ["last", "merge"] {
                let fold = BuiltIn::new(name.parse().unwrap(), Query::all());
                let mut state = fold.start();
                let event = Event::new(Position::new(1), 0, "A", ["k:v"], data);
                fold.apply(&mut state, &event).unwrap();
                assert_eq!(state.to_json().unwrap().get(), data, "{name}");
            }
        }
    }

    #[test]
    fn each_fold_comes_to_what_its_name_says() {
        let two = [r#"{"a":1,"b":2}"#, r#"{"b":null,"c":[3]}"#];
        let cases = [
            ("count", serde_json::json!(0), serde_json::json!(2)),
            ("exists", serde_json::json!(false), serde_json::json!(true)),
            ("last", Value::Null, serde_json::json!({"b": null, "c": [3]})),
            ("merge", serde_json::json!({}), serde_json::json!({"a": 1, "b": null, "c": [3]})),
        ];
        for (name, of_none, of_two) in cases {
            assert_eq!(state(name, &[]), Ok(of_none), "{name}");
            assert_eq!(state(name, &two), Ok(of_two), "{name}");
        }
        assert!(state("merge", &["[1]"]).unwrap_err().contains("expected a map"));
        assert_eq!(state("last", &["[1]"]), Ok(serde_json::json!([1])));
        let unknown = "sum".parse::<Kind>().unwrap_err().to_string();
        assert_eq!(unknown, "\"sum\" is no fold: it is one of count exists last merge");
    }
}
