//! What is done about requests that were not appended.

use sluicegate_postgres_link::Broken;
use tokio_postgres::error::SqlState;

/// What to do about requests whose batch was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The same again.
    Again,
    /// One of them may be at fault: each by itself.
    Singly,
    /// Nothing: that is the answer.
    None,
}

impl Remedy {
    /// What to do about those whose batch ended like this and is not there.
    pub(super) fn of(broken: &Broken) -> Self {
        if !broken.is_said() {
            return Self::Again;
        }
        match broken.code().map_or("", SqlState::code) {
            // Deadlocks and the like; statements that were prepared for tables that have changed.
            code if code.starts_with("40") => Self::Again,
            "0A000" | "26000" => Self::Again,
            // The lock is not to be had, the disk is full, the server is read-only.
            "55P03" | "25006" => Self::None,
            code if code.starts_with("53") => Self::None,
            _ => Self::Singly,
        }
    }
}
