//! What can keep a source from being opened.

use std::fmt;

use sluicegate_dispatch::SourceError;

/// Why a source was not opened, without any secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is wrong.
    Address(String),
    /// The broker was reached and refuses: credentials, rights, a queue that is not there. Only a
    /// person can help.
    Refused(String),
    /// The broker was not reached. Trying again may help.
    Unreachable(String),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(why) => write!(f, "the address is wrong: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Unreachable(why) => write!(f, "not reached: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<OpenError> for SourceError {
    fn from(error: OpenError) -> Self {
        Self::new(error)
    }
}
