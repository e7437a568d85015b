//! Projections: events folded into a state.
//!
//! 1. Several projections read once: the events that any of them asks for. Each gets those that its own query asks for, in
//!    order.
//! 2. States have the types of their projections.
//! 3. The condition is the union of the queries after the last event that was read, or after where reading began if there
//!    was none: whatever came since then that a projection would have seen makes appending under it fail.
//!
//! | file | is |
//! |---|---|
//! | `fold.rs`, `named.rs`, `built_in.rs` | projections made of closures, those that everybody needs, and the same by name |
//! | `several.rs` | one, a tuple or a list of projections as one thing |
//! | `slot.rs` | a projection with the state it has reached |
//! | `work.rs` | pages to slots, on tasks where that is worth it |

pub(crate) mod built_in;
pub mod fold;
mod named;
mod several;
pub(crate) mod slot;
pub(crate) mod work;

pub use several::Projections;
pub(crate) use several::Running;

use std::sync::Arc;

use crate::{Event, Query};

/// Any error, for closures that use `?` on errors of others.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A way to fold events into a state.
///
/// Most are made of closures, by the functions in [`fold`]. Write a type where one is named and used in several places:
///
/// ```
/// use serde::Deserialize;
/// use sluicegate_event_store::{BoxError, Event, Projection, Query};
///
/// /// How many seats a course has left.
/// struct SeatsLeft {
///     course: String,
/// }
///
/// #[derive(Deserialize)]
/// struct Defined {
///     seats: i64,
/// }
///
/// impl Projection for SeatsLeft {
///     type State = i64;
///
///     fn query(&self) -> Query {
///         Query::types(["CourseDefined", "StudentSubscribed"]).tag("course", &self.course)
///     }
///
///     fn start(&self) -> i64 {
///         0
///     }
///
///     fn apply(&self, left: &mut i64, event: &Event) -> Result<(), BoxError> {
///         match event.event_type() {
///             "CourseDefined" => *left += event.json::<Defined>()?.seats,
///             _ => *left -= 1,
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait Projection: Send + Sync + 'static {
    /// What the events are folded into.
    type State: Send + 'static;

    /// Which events it wants.
    fn query(&self) -> Query;

    /// The state before the first event.
    fn start(&self) -> Self::State;

    /// The state after one more event.
    ///
    /// # Errors
    /// The event cannot be applied. The whole projection fails then, with its position.
    fn apply(&self, state: &mut Self::State, event: &Event) -> Result<(), BoxError>;
}

impl<P: Projection> Projection for Arc<P> {
    type State = P::State;

    fn query(&self) -> Query {
        P::query(self)
    }

    fn start(&self) -> P::State {
        P::start(self)
    }

    fn apply(&self, state: &mut P::State, event: &Event) -> Result<(), BoxError> {
        P::apply(self, state, event)
    }
}
