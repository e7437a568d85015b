//! Why a file could not be opened.

use std::path::PathBuf;
use std::{fmt, io};

use rusqlite::ErrorCode;

/// Why a state file could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process serves it.
    Served {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a later version.
    Newer {
        /// The version of its tables.
        found: i64,
        /// The latest one that is known here.
        known: i64,
    },
    /// It was written by an earlier version, which serves it.
    Older {
        /// The version of its tables.
        found: i64,
        /// The one that is known here.
        known: i64,
    },
    /// It is a database of something else.
    Foreign,
    /// It is damaged, or no database at all.
    Corrupt {
        /// What was found.
        cause: String,
    },
    /// The file, or the one that locks it, could not be used.
    Io {
        /// Which one.
        path: PathBuf,
        /// What happened.
        cause: io::Error,
    },
    /// The database said no.
    Sqlite(String),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt { cause: error.to_string() }
            }
            _ => Self::Sqlite(error.to_string()),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { path } => {
                write!(f, "{} is already served by another process", path.display())
            }
            Self::Newer { found, known } => write!(
                f,
                "the state file has tables of version {found}, and this program knows up to {known}: \
                 use a later version of the program"
            ),
            Self::Older { found, known } => write!(
                f,
                "the state file has tables of version {found}, and this program needs {known}: restart \
                 the program that serves it with this version"
            ),
            Self::Foreign => f.write_str("the file is a database of something else"),
            Self::Corrupt { cause } => write!(f, "the state file is damaged: {cause}"),
            Self::Io { path, cause } => write!(f, "{}: {cause}", path.display()),
            Self::Sqlite(cause) => write!(f, "the state file could not be opened: {cause}"),
        }
    }
}

impl std::error::Error for OpenError {}
