//! What keeps a log from being opened.

use std::fmt;

use sluicegate_postgres_link::{Broken, Wrong};

use crate::EngineError;

/// Why a log was not opened, without any secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is wrong.
    Address(String),
    /// The database was reached and refuses: credentials, rights, its encoding. Only a person can help.
    Refused(String),
    /// The database was not reached. Trying again may help.
    Unreachable(String),
    /// The tables were made by a newer version of this crate.
    Newer {
        /// The version of the tables.
        found: i32,
        /// The newest version that is known here.
        known: i32,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(why) => write!(f, "the address is wrong: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Unreachable(why) => write!(f, "not reached: {why}"),
            Self::Newer { found, known } => write!(
                f,
                "the tables of the events are of version {found}, made by a newer sluicegate; this one knows version {known}"
            ),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<Broken> for OpenError {
    fn from(broken: Broken) -> Self {
        let text = broken.to_string();
        if broken.is_refusal() { Self::Refused(text) } else { Self::Unreachable(text) }
    }
}

impl From<Wrong> for OpenError {
    fn from(Wrong(why): Wrong) -> Self {
        Self::Address(why)
    }
}

impl From<Broken> for EngineError {
    fn from(broken: Broken) -> Self {
        Self::new(broken)
    }
}
