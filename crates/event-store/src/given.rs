//! Testing decisions without a store: given these events, when it decides, then it appends those.

use std::fmt;

use serde_json::Value;

use crate::projection::Running;
use crate::{Append, Decision, Event, NewEvent, Position, ProjectError, Projections};

/// The events that are there when a decision is made. None at all: `given([])`.
///
/// ```
/// use sluicegate_event_store::{NewEvent, Query, decision, fold, given};
///
/// let close = decision(
///     || fold::exists(Query::types(["Closed"]).tag("account", "a1")),
///     |is_closed| match is_closed {
///         false => Ok(vec![NewEvent::of("Closed").tag("account", "a1")]),
///         true => Err("it is closed already"),
///     },
/// );
/// let closed = || NewEvent::of("Closed").tag("account", "a1");
/// given([]).when(&close).then_appends([closed()]);
/// given([closed()]).when(&close).then_refuses(&"it is closed already");
/// given([NewEvent::of("Closed").tag("account", "a2")]).when(&close).then_appends([closed()]);
/// ```
///
/// # Panics
/// One of the events could not be in a store.
#[track_caller]
pub fn given(events: impl IntoIterator<Item = NewEvent>) -> Given {
    let events: Vec<NewEvent> = events.into_iter().collect();
    Given { events: events.into_iter().zip(1..).map(|(event, n)| stored(event, n)).collect() }
}

/// Events that are there.
#[derive(Clone, Debug)]
pub struct Given {
    events: Vec<Event>,
}

/// What a decision came to.
#[derive(Debug)]
#[must_use = "say what should come of it: then_appends(…), then_appends_nothing() or then_refuses(…)"]
pub struct Decided<E> {
    result: Result<Vec<NewEvent>, E>,
}

impl Given {
    /// Lets it decide.
    ///
    /// # Panics
    /// One of its projections failed, or it would append what no store takes in.
    #[track_caller]
    pub fn when<D: Decision>(&self, decision: &D) -> Decided<D::Error> {
        let running = decision.projections().begin();
        let mut slots = Vec::new();
        running.slots(&mut slots);
        let folded: Result<(), ProjectError> =
            slots.iter().try_for_each(|slot| slot.fold(&self.events, false));
        if let Err(error) = folded {
            panic!("the decision got no state: {error}");
        }
        let result = decision.decide(running.take());
        if let Ok(events) = &result
            && !events.is_empty()
            && let Err(invalid) = Append::new(events.clone(), None)
        {
            panic!("the decision would append what no store takes in: {invalid}");
        }
        Decided { result }
    }
}

impl<E> Decided<E> {
    /// What it came to, to look at it by hand.
    ///
    /// # Errors
    /// What it refused with.
    pub fn into_result(self) -> Result<Vec<NewEvent>, E> {
        self.result
    }
}

impl<E: fmt::Debug> Decided<E> {
    /// It appends these: the same types, tags in any order, and data that mean the same.
    ///
    /// # Panics
    /// It does not.
    #[track_caller]
    pub fn then_appends(self, expected: impl IntoIterator<Item = NewEvent>) {
        let expected = lines(expected);
        match self.result {
            Ok(events) => {
                let appended = lines(events);
                let same = appended == expected;
                assert!(
                    same,
                    "expected events:{}\nbut it appends:{}",
                    list(&expected),
                    list(&appended)
                );
            }
            Err(error) => {
                panic!("expected events:{}\nbut it refuses: {error:?}", list(&expected))
            }
        }
    }

    /// It neither appends nor refuses.
    ///
    /// # Panics
    /// It does.
    #[track_caller]
    pub fn then_appends_nothing(self) {
        self.then_appends([]);
    }

    /// It refuses with this.
    ///
    /// # Panics
    /// It does not, or with something else.
    #[track_caller]
    pub fn then_refuses(self, expected: &E)
    where
        E: PartialEq,
    {
        match self.result {
            Ok(events) => {
                let appended = list(&lines(events));
                panic!("expected a refusal: {expected:?}\nbut it appends:{appended}")
            }
            Err(error) => assert!(
                error == *expected,
                "expected a refusal: {expected:?}\nbut it refuses: {error:?}"
            ),
        }
    }
}

/// An event as a store would give it out.
#[track_caller]
fn stored(event: NewEvent, position: u64) -> Event {
    let append = match Append::new(vec![event], None) {
        Ok(append) => append,
        Err(invalid) => {
            panic!("the event given as number {position} could not be in a store: {invalid}")
        }
    };
    let event = &append.events()[0];
    let (tags, data) = (event.tags().iter().map(String::as_str), event.data().unwrap_or_default());
    Event::new(Position::new(position), 0, event.event_type(), tags, data)
}

/// Each event in a line, in a form that is the same for what means the same.
fn lines(events: impl IntoIterator<Item = NewEvent>) -> Vec<String> {
    let line = |event: NewEvent| {
        let mut tags = event.tags().to_vec();
        tags.sort_unstable();
        tags.dedup();
        let data = match event.data().map(serde_json::from_str::<Value>) {
            Ok(Ok(data)) => sorted(data).to_string(),
            Ok(Err(error)) => format!("no JSON: {error}"),
            Err(error) => format!("no JSON: {error}"),
        };
        format!("{} [{}] {data}", event.event_type(), tags.join(", "))
    };
    events.into_iter().map(line).collect()
}

/// The same with the fields of all objects in order, whatever the map of `serde_json` is made of.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

fn list(lines: &[String]) -> String {
    match lines {
        [] => " none".to_owned(),
        lines => lines.iter().map(|line| format!("\n  {line}")).collect(),
    }
}

#[cfg(test)]
mod tests;
