//! Projections made of closures, and the four that everybody needs.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use sluicegate_event_store::{EventStore, MemoryEngine, NewEvent, Position, Query, fold};
//!
//! let store = EventStore::new(MemoryEngine::new());
//! let subscribed = |student| NewEvent::of("StudentSubscribed").tag("course", "c1").tag("student", student);
//! store.append([subscribed("s1"), subscribed("s2")]).await?;
//!
//! let seats_taken = fold::count(Query::types(["StudentSubscribed"]).tag("course", "c1"));
//! let names = fold::of(Query::tagged("course", "c1"), Vec::new(), |names: &mut Vec<String>, event| {
//!     names.extend(event.tag("student").map(str::to_owned));
//! });
//! let ((taken, names), _condition) = store.project((seats_taken, names), Position::START).await?;
//! assert_eq!((taken, names), (2, vec!["s1".to_owned(), "s2".to_owned()]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;

use serde::de::DeserializeOwned;

use super::{BoxError, Projection};
use crate::{Event, Query};

pub use super::built_in::{BuiltIn, BuiltInState, Kind, UnknownKind};
pub use super::named::{Count, Exists, Last, Merge, count, exists, last, merge};

/// Folds events by a closure. It changes the state that it is given.
pub fn of<S, F>(query: Query, start: S, apply: F) -> Fold<S, impl Apply<S>>
where
    S: Clone + Send + Sync + 'static,
    F: Fn(&mut S, &Event) + Send + Sync + 'static,
{
    try_of(query, start, move |state: &mut S, event: &Event| {
        apply(state, event);
        Ok::<(), BoxError>(())
    })
}

/// Folds events by a closure that may fail.
///
/// ```
/// use sluicegate_event_store::{Query, fold};
///
/// let total = fold::try_of(Query::types(["Paid"]), 0, |total: &mut u64, event| {
///     *total += event.json::<u64>()?;
///     Ok::<(), serde_json::Error>(())
/// });
/// ```
pub fn try_of<S, F, E>(query: Query, start: S, apply: F) -> Fold<S, impl Apply<S>>
where
    S: Clone + Send + Sync + 'static,
    F: Fn(&mut S, &Event) -> Result<(), E> + Send + Sync + 'static,
    E: Into<BoxError> + 'static,
{
    let apply = move |state: &mut S, event: &Event| apply(state, event).map_err(Into::into);
    Fold { query, start, apply }
}

/// What a closure of a [`Fold`] does. Nobody else implements it.
pub trait Apply<S>: Fn(&mut S, &Event) -> Result<(), BoxError> + Send + Sync + 'static {}

impl<S, F: Fn(&mut S, &Event) -> Result<(), BoxError> + Send + Sync + 'static> Apply<S> for F {}

/// A projection made of a closure: [`of`], [`try_of`].
#[derive(Clone)]
pub struct Fold<S, F> {
    query: Query,
    start: S,
    apply: F,
}

impl<S: Clone + Send + Sync + 'static, F: Apply<S>> Projection for Fold<S, F> {
    type State = S;

    fn query(&self) -> Query {
        self.query.clone()
    }

    fn start(&self) -> S {
        self.start.clone()
    }

    fn apply(&self, state: &mut S, event: &Event) -> Result<(), BoxError> {
        (self.apply)(state, event)
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Fold<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { query, start, apply: _ } = self;
        f.debug_struct("Fold").field("query", query).field("start", start).finish_non_exhaustive()
    }
}

/// Folds events by a closure for each type. Events of no type that was named change nothing.
///
/// ```
/// use serde::Deserialize;
/// use sluicegate_event_store::{Query, fold};
///
/// #[derive(Deserialize)]
/// struct Capacity {
///     seats: u32,
/// }
///
/// #[derive(Clone, Default)]
/// struct Course {
///     seats: u32,
///     subscribed: u32,
/// }
///
/// let course = fold::by_type(Query::tagged("course", "c1"), Course::default())
///     .on("CourseDefined", |course, capacity: Capacity| course.seats = capacity.seats)
///     .on("CapacityChanged", |course, capacity: Capacity| course.seats = capacity.seats)
///     .on_event("StudentSubscribed", |course, _event| course.subscribed += 1);
/// ```
pub fn by_type<S: Clone + Send + Sync + 'static>(query: Query, start: S) -> ByType<S> {
    ByType { query, start, types: Vec::new() }
}

/// A projection with a closure for each type of event: [`by_type`].
pub struct ByType<S> {
    query: Query,
    start: S,
    types: Vec<(String, Box<dyn Apply<S>>)>,
}

impl<S: 'static> ByType<S> {
    /// What the data of an event of this type change.
    #[must_use]
    pub fn on<T: DeserializeOwned>(
        self,
        event_type: impl Into<String>,
        apply: impl Fn(&mut S, T) + Send + Sync + 'static,
    ) -> Self {
        self.with(event_type.into(), move |state, event| {
            apply(state, event.json()?);
            Ok(())
        })
    }

    /// What an event of this type changes.
    #[must_use]
    pub fn on_event(
        self,
        event_type: impl Into<String>,
        apply: impl Fn(&mut S, &Event) + Send + Sync + 'static,
    ) -> Self {
        self.with(event_type.into(), move |state, event| {
            apply(state, event);
            Ok(())
        })
    }

    fn with(
        mut self,
        event_type: String,
        apply: impl Fn(&mut S, &Event) -> Result<(), BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.types.push((event_type, Box::new(apply)));
        self
    }
}

impl<S: Clone + Send + Sync + 'static> Projection for ByType<S> {
    type State = S;

    fn query(&self) -> Query {
        self.query.clone()
    }

    fn start(&self) -> S {
        self.start.clone()
    }

    fn apply(&self, state: &mut S, event: &Event) -> Result<(), BoxError> {
        let ours = self.types.iter().filter(|(of, _)| of == event.event_type());
        for (_, apply) in ours {
            apply(state, event)?;
        }
        Ok(())
    }
}

impl<S: fmt::Debug> fmt::Debug for ByType<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<&str> = self.types.iter().map(|(of, _)| of.as_str()).collect();
        let mut shown = f.debug_struct("ByType");
        shown
            .field("query", &self.query)
            .field("start", &self.start)
            .field("types", &types)
            .finish()
    }
}
