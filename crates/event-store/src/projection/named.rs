//! The four projections that everybody needs, each with a type that can be named.

use serde_json::{Map, Value};

use super::{BoxError, Projection};
use crate::{Event, Query};

/// How many events there are.
#[must_use]
pub fn count(query: Query) -> Count {
    Count { query }
}

/// Whether there is one.
#[must_use]
pub fn exists(query: Query) -> Exists {
    Exists { query }
}

/// The last one.
#[must_use]
pub fn last(query: Query) -> Last {
    Last { query }
}

/// Their data, which are objects, as one: where several have a field, the last one counts.
#[must_use]
pub fn merge(query: Query) -> Merge {
    Merge { query }
}

macro_rules! projections {
    ($($(#[$doc:meta])* $name:ident: $state:ty, |$old:ident, $event:ident| $apply:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            query: Query,
        }

        impl Projection for $name {
            type State = $state;

            fn query(&self) -> Query {
                self.query.clone()
            }

            fn start(&self) -> $state {
                <$state>::default()
            }

            fn apply(&self, $old: &mut $state, $event: &Event) -> Result<(), BoxError> {
                $apply;
                Ok(())
            }
        }
    )+};
}

projections! {
    /// How many events there are: [`count`].
    Count: u64, |count, _event| *count += 1;
    /// Whether there is an event: [`exists`].
    Exists: bool, |exists, _event| *exists = true;
    /// The last event: [`last`].
    Last: Option<Event>, |last, event| *last = Some(event.clone());
    /// The data of events, as one object: [`merge`].
    Merge: Map<String, Value>, |merged, event| merged.extend(event.json::<Map<String, Value>>()?);
}
