//! Why parked messages were not replayed or discarded.

use std::fmt;

use sluicegate_dispatch::SourceError;

/// Why a message was not replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is none of this id.
    NotFound {
        /// The id.
        id: String,
    },
    /// It is no message, so it would only come back.
    Malformed {
        /// The id.
        id: String,
    },
    /// An earlier message of its key is parked: replayed before that, it would overtake it.
    Behind {
        /// The id.
        id: String,
        /// The id of the earlier one.
        earlier: String,
    },
    /// Its queue is not there.
    NoQueue {
        /// The id.
        id: String,
        /// The queue.
        queue: String,
    },
    /// It, or another message of the same id, is being replayed.
    Busy {
        /// The id.
        id: String,
    },
    /// The state file could not be written.
    Source(SourceError),
}

/// Why messages were not discarded. None of them was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiscardError {
    /// There is none of this id.
    NotFound {
        /// The id.
        id: String,
    },
    /// It is being replayed.
    Busy {
        /// The id.
        id: String,
    },
    /// The state file could not be written.
    Source(SourceError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { id } => write!(f, "no parked message has the id {id}"),
            Self::Malformed { id } => {
                write!(f, "{id} is no message, so it would only come back: discard it")
            }
            Self::Behind { id, earlier } => write!(
                f,
                "{id} would overtake {earlier}, an earlier message of its group that is parked: \
                 replay or discard that first, or both together"
            ),
            Self::NoQueue { id, queue } => write!(
                f,
                "{id} came from the queue {queue}, which is not configured: add a queue of that \
                 name again, or export the message and publish it elsewhere, or discard it"
            ),
            Self::Busy { id } => {
                write!(f, "{id}, or another message of the same id, is being replayed")
            }
            Self::Source(error) => write!(f, "could not replay: {error}"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl fmt::Display for DiscardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { id } => write!(f, "no parked message has the id {id}"),
            Self::Busy { id } => write!(f, "{id} is being replayed"),
            Self::Source(error) => write!(f, "could not discard: {error}"),
        }
    }
}

impl std::error::Error for DiscardError {}
