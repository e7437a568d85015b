//! What can go wrong, a type for each operation.

use std::fmt;
use std::time::Duration;

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
                write!(f, "an event that matches the condition is there, at position {position}")
            }
            Self::TimedOut { after } => {
                write!(
                    f,
                    "the events were not appended within {after:?}; they may be there even so"
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
            Self::TimedOut { after } => write!(f, "the events were not read within {after:?}"),
            Self::Failed(error) => write!(f, "the event store does not work: {error}"),
        }
    }
}

impl std::error::Error for EngineError {}
impl std::error::Error for AppendError {}
impl std::error::Error for ReadError {}

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
