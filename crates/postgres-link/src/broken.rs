//! What goes wrong between us and the database.

use std::error::Error as _;
use std::fmt;

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Why there is no answer, without any secret.
#[derive(Debug)]
pub enum Broken {
    /// The database said so, or could not be reached.
    Postgres(Error),
    /// It took too long.
    Slow(&'static str),
    /// Something else.
    Other(String),
}

impl Broken {
    /// Nobody answered in time.
    #[must_use]
    pub const fn late() -> Self {
        Self::Slow("the database did not answer in time")
    }

    /// What the database calls it, where it said anything.
    #[must_use]
    pub fn code(&self) -> Option<&SqlState> {
        let Self::Postgres(error) = self else { return None };
        error.code()
    }

    /// Whether the database said so itself, and goes on: then the transaction is over.
    #[must_use]
    pub fn is_said(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        // After a fatal error the connection ends, and it is not said when it came.
        let severity = error.as_db_error().and_then(|known| known.parsed_severity());
        severity == Some(tokio_postgres::error::Severity::Error)
    }

    /// Whether it was the time that ran out.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Slow(_)) || self.code() == Some(&SqlState::QUERY_CANCELED)
    }

    /// Whether only a person can help.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
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

impl std::error::Error for Broken {}

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
            PoolError::Timeout(_) => Self::late(),
            other => Self::Other(other.to_string()),
        }
    }
}
