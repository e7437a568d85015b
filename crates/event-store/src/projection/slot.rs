//! A projection with the state it has reached.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Projection;
use crate::{Event, ProjectError, Query};

/// A projection and its state, shared between whoever folds and whoever wants the state.
pub struct Kept<P: Projection> {
    projection: P,
    query: Query,
    /// Never waited for: one folds, and the other asks when that is done.
    state: Mutex<P::State>,
}

impl<P: Projection> Kept<P> {
    pub(super) fn new(projection: P) -> Arc<Self> {
        let (query, state) = (projection.query(), Mutex::new(projection.start()));
        Arc::new(Self { projection, query, state })
    }

    /// The state, with the first one left in its place.
    pub(super) fn take(&self) -> P::State {
        let first = self.projection.start();
        std::mem::replace(&mut *self.state.lock(), first)
    }

    pub(super) fn put(&self, state: P::State) {
        *self.state.lock() = state;
    }
}

/// A projection whose type does not matter while events are folded.
pub trait Slot: Send + Sync {
    /// Which events it wants.
    fn query(&self) -> &Query;

    /// Folds those of the events that it wants; all of them if `all`.
    fn fold(&self, events: &[Event], all: bool) -> Result<(), ProjectError>;
}

impl<P: Projection> Slot for Kept<P> {
    fn query(&self) -> &Query {
        &self.query
    }

    fn fold(&self, events: &[Event], all: bool) -> Result<(), ProjectError> {
        let fold = || {
            let mut state = self.state.lock();
            let wanted = events.iter().filter(|event| all || self.query.matches(event));
            for event in wanted {
                self.projection.apply(&mut state, event).map_err(|error| {
                    let cause = error.to_string();
                    ProjectError::Unapplied { position: event.position(), cause }
                })?;
            }
            Ok(())
        };
        // The state is never looked at again after a panic: the whole projection fails.
        catch_unwind(AssertUnwindSafe(fold))
            .unwrap_or_else(|panic| Err(ProjectError::Panicked { message: words(&*panic) }))
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}
