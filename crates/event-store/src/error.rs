//! What can go wrong, a type for each operation.

use std::fmt;
use std::time::Duration;

use sluicegate_tasks::Interrupt;

use crate::{Invalid, Position};

/// What keeps an engine from working: the disk, the database, the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineError {
    /// What happened.
    pub cause: String,
}

impl EngineError {
    /// An error with that cause.
    pub fn new(cause: impl fmt::Display) -> Self {
        Self { cause: cause.to_string() }
    }
}

/// Why events were not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendError {
    /// They may not be stored like this.
    Invalid(Invalid),
    /// An event matches the condition: read again, decide again.
    Conflict {
        /// One that matches, after the position of the condition.
        position: Position,
    },
    /// It took too long. They may be there even so: append them again under the same condition.
    TimedOut {
        /// How long.
        after: Duration,
    },
    /// The engine does not work. Nothing was appended, as far as is known.
    Failed(EngineError),
}

/// Too many projections run already. None was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyProjections {
    /// How many there may be.
    pub limit: u32,
    /// How many there were at that moment.
    pub in_use: u32,
    /// What was asked for: `project` or `project_stream`.
    pub op: &'static str,
}

/// Why there is no state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectError {
    /// It may not be asked for like this.
    Invalid(Invalid),
    /// There is no room for another projection.
    TooManyProjections(TooManyProjections),
    /// A projection could not apply an event.
    Unapplied {
        /// The event's.
        position: Position,
        /// What the projection said.
        cause: String,
    },
    /// A projection panicked.
    Panicked {
        /// What it said.
        message: String,
    },
    /// It took too long.
    TimedOut {
        /// How long.
        after: Duration,
    },
    /// The engine does not work.
    Failed(EngineError),
}

/// Why a command was not carried out; `E` is what its decision refuses with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecuteError<E> {
    /// The decision refused. Nothing was appended.
    Refused(E),
    /// Every time, something came between reading and appending. Nothing was appended.
    Conflict {
        /// What came the last time.
        position: Position,
        /// How often it was tried.
        tries: u32,
    },
    /// There was no state to decide on. Nothing was appended.
    Project(ProjectError),
    /// The events were decided on and not appended.
    Append(AppendError),
    /// The context ended. If that was while the events were being appended, they may be there.
    Interrupted {
        /// Why it ended.
        why: Interrupt,
        /// How often it was tried.
        tries: u32,
    },
}

/// Why events were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// It may not be asked for like this.
    Invalid(Invalid),
    /// It took too long.
    TimedOut {
        /// How long.
        after: Duration,
    },
    /// The engine does not work.
    Failed(EngineError),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::Conflict { position } => {
                write!(
                    f,
                    "an event that matches the condition is there, at position {position}: read again and decide again"
                )
            }
            Self::TimedOut { after } => {
                write!(
                    f,
                    "the events were not appended within {after:?}, or nobody heard of it: \
                     append them again under the same condition"
                )
            }
            Self::Failed(error) => write!(f, "the event store does not work: {error}"),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::TimedOut { after } => {
                write!(
                    f,
                    "the events were not read within {after:?}: ask for fewer, or again later"
                )
            }
            Self::Failed(error) => write!(f, "the event store does not work: {error}"),
        }
    }
}

impl fmt::Display for TooManyProjections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, in_use, op } = self;
        write!(
            f,
            "{op}: too many projections, {in_use} of {limit}: wait for one, or try again later"
        )
    }
}

impl fmt::Display for ProjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::TooManyProjections(too_many) => too_many.fmt(f),
            Self::Unapplied { position, cause } => {
                write!(f, "the event at position {position} could not be applied: {cause}")
            }
            Self::Panicked { message } => write!(f, "a projection panicked: {message}"),
            Self::TimedOut { after } => write!(
                f,
                "the projection was not done within {after:?}: begin at a later position, or project a stream"
            ),
            Self::Failed(error) => write!(f, "the event store does not work: {error}"),
        }
    }
}

impl<E: fmt::Display> fmt::Display for ExecuteError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Conflict { position, tries } => write!(
                f,
                "something came between each of {tries} times, at position {position} the last: try again later"
            ),
            Self::Project(error) => error.fmt(f),
            Self::Append(error) => error.fmt(f),
            Self::Interrupted { why, tries } => {
                write!(f, "{why} at try {tries}: the events may be there, decide again to know")
            }
        }
    }
}

impl std::error::Error for EngineError {}
impl std::error::Error for AppendError {}
impl std::error::Error for ReadError {}
impl std::error::Error for TooManyProjections {}
impl std::error::Error for ProjectError {}
impl<E: std::error::Error> std::error::Error for ExecuteError<E> {}

impl From<Invalid> for AppendError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<EngineError> for AppendError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

impl From<Invalid> for ReadError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<EngineError> for ReadError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

impl From<EngineError> for ProjectError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

impl From<Invalid> for ProjectError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<ReadError> for ProjectError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Invalid(invalid) => Self::Invalid(invalid),
            ReadError::TimedOut { after } => Self::TimedOut { after },
            ReadError::Failed(error) => Self::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests;
