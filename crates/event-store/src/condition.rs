//! Under which condition events are appended.

use crate::{Position, Query};

/// Events are appended only if no event matches the query after the position.
///
/// A projection answers with the one under which a decision that was made on it still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendCondition {
    /// What must not have come.
    pub fail_if_events_match: Query,
    /// Since when: the last event that the decision has seen, or [`Position::START`].
    pub after: Position,
}

impl AppendCondition {
    /// No such event may be there at all.
    #[must_use]
    pub fn none(query: Query) -> Self {
        Self { fail_if_events_match: query, after: Position::START }
    }

    /// No such event may have come after the position.
    #[must_use]
    pub fn none_after(query: Query, after: Position) -> Self {
        Self { fail_if_events_match: query, after }
    }
}
