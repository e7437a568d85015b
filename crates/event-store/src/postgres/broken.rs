//! What goes wrong between us and the database.

use std::error::Error as _;
use std::fmt;

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

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

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// The database said so, or could not be reached.
    Postgres(Error),
    /// It took too long.
    Slow(&'static str),
    /// Something else.
    Other(String),
}

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

impl Broken {
    /// Whether the database said so itself, and goes on: then the transaction is over.
    pub(super) fn is_said(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        // After a fatal error the connection ends, and it is not said when it came.
        let severity = error.as_db_error().and_then(|known| known.parsed_severity());
        severity == Some(tokio_postgres::error::Severity::Error)
    }

    /// Whether it was the time that ran out.
    pub(super) fn is_slow(&self) -> bool {
        match self {
            Self::Slow(_) => true,
            Self::Postgres(error) => error.code() == Some(&SqlState::QUERY_CANCELED),
            Self::Other(_) => false,
        }
    }

    /// What to do about those whose batch ended like this and is not there.
    pub(super) fn remedy(&self) -> Remedy {
        let Self::Postgres(error) = self else { return Remedy::Again };
        if !self.is_said() {
            return Remedy::Again;
        }
        match error.code().map_or("", SqlState::code) {
            // Deadlocks and the like; statements that were prepared for tables that have changed.
            code if code.starts_with("40") => Remedy::Again,
            "0A000" | "26000" => Remedy::Again,
            // The lock is not to be had, the disk is full, the server is read-only.
            "55P03" | "25006" => Remedy::None,
            code if code.starts_with("53") => Remedy::None,
            _ => Remedy::Singly,
        }
    }

    /// Whether only a person can help.
    fn is_refusal(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        let Some(code) = error.code() else { return is_about_trust(error) };
        let refusals = [
            SqlState::INVALID_CATALOG_NAME,
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ];
        code.code().starts_with("28") || refusals.contains(code)
    }

    fn advice(&self) -> &'static str {
        let Self::Postgres(error) = self else { return "" };
        let Some(code) = error.code() else {
            let text = chain(error);
            return if text.contains("does not support TLS") {
                "; turn TLS on in the server, or say sslmode=disable"
            } else if text.contains("ertificate") {
                "; name its authority with ca=FILE, or say sslmode=disable"
            } else if text.contains("password") {
                "; put the password into the address"
            } else {
                ""
            };
        };
        match code.code() {
            "28P01" => "; check the user and the password in the address",
            "28000" => "; check the user in the address, and pg_hba.conf",
            "3D000" => "; create the database, or check its name in the address",
            "42501" => {
                "; grant CREATE on the database, or create the schema and make the user its owner"
            }
            "25006" => "; connect to the primary server",
            _ => "",
        }
    }
}

/// Whether a connection failed for want of trust, not of a way.
fn is_about_trust(error: &Error) -> bool {
    let text = chain(error);
    ["ertificate", "does not support TLS", "password missing", "invalid configuration"]
        .iter()
        .any(|part| text.contains(part))
}

/// An error with its causes. None of them shows a secret.
fn chain(error: &Error) -> String {
    if let Some(known) = error.as_db_error() {
        return format!("{} ({})", known.message(), known.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(error) => write!(f, "PostgreSQL: {}{}", chain(error), self.advice()),
            Self::Slow(why) => write!(f, "PostgreSQL: {why}"),
            Self::Other(why) => write!(f, "PostgreSQL: {why}"),
        }
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<PoolError> for Broken {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Postgres(error),
            PoolError::Timeout(TimeoutType::Wait) => Self::Slow("all connections are in use"),
            PoolError::Timeout(_) => Self::Slow("the database did not answer in time"),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<Broken> for EngineError {
    fn from(broken: Broken) -> Self {
        Self::new(broken)
    }
}

impl From<Broken> for OpenError {
    fn from(broken: Broken) -> Self {
        let text = broken.to_string();
        if broken.is_refusal() { Self::Refused(text) } else { Self::Unreachable(text) }
    }
}
