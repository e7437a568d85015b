//! The connections of a source: one statement each time, with an end to every wait.

use std::error::Error as _;
use std::time::Duration;

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::{CONNECT, PostgresSettings};
use crate::OpenError;

/// How long a call waits for its answer: longer than the database may work on it.
const ANSWER: Duration = Duration::from_secs(15);
/// How long it takes to see whether an idle connection still works.
const RECYCLE: Duration = Duration::from_secs(3);
/// How long to wait before the database is asked again whether it did something.
const ASKED_AGAIN: Duration = Duration::from_millis(250);
/// How often a statement is begun anew that the database gave up for another's sake.
const TRIES: usize = 4;

/// What a statement is given.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The way to the database.
#[derive(Debug)]
pub(crate) struct Link {
    pool: Pool,
    /// What the last call met with.
    failure: Mutex<Option<SourceError>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The database said so, or could not be reached.
    Postgres(Error),
    /// It took too long.
    Slow(&'static str),
    /// Something else.
    Other(String),
}

impl Link {
    pub(crate) fn new(settings: &PostgresSettings, tls: MakeRustlsConnect) -> Self {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Verified };
        let manager = Manager::from_config(settings.config.clone(), tls, recycling);
        let pool = Pool::builder(manager)
            .max_size(settings.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(ANSWER))
            .create_timeout(Some(CONNECT))
            .recycle_timeout(Some(RECYCLE))
            .build()
            .expect("timeouts have their runtime");
        Self { pool, failure: Mutex::new(None) }
    }

    /// A connection.
    pub(crate) async fn connect(&self) -> Result<Object, Broken> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => Broken::Postgres(error),
            PoolError::Timeout(TimeoutType::Wait) => Broken::Slow("all connections are in use"),
            PoolError::Timeout(_) => Broken::Slow("the database did not answer in time"),
            other => Broken::Other(other.to_string()),
        })
    }

    /// The rows that one statement answers. Dropped, it is as if it was cut off: the database did
    /// all of it or nothing.
    pub(crate) async fn rows(
        &self,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, SourceError> {
        let mut result = self.try_rows(statement, values).await;
        for _ in 1..TRIES {
            // It gave up before it changed anything.
            if !matches!(&result, Err(broken) if broken.is_conflict()) {
                break;
            }
            result = self.try_rows(statement, values).await;
        }
        let result = result.map_err(SourceError::from);
        self.note(result.as_ref().err());
        result
    }

    /// The same for a statement that may be done again: once it is not known whether the database did it, it is asked
    /// until it has answered. Whoever does not wait for that knows that it is not known.
    pub(crate) async fn rows_for_sure(
        &self,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, SourceError> {
        let mut is_unknown = false;
        loop {
            let broken = match self.connect().await {
                Err(broken) => broken,
                Ok(client) => match Self::ask(client, statement, values).await {
                    Ok(rows) => {
                        self.note(None);
                        return Ok(rows);
                    }
                    Err(broken) => {
                        is_unknown |= !broken.is_said() && !broken.is_conflict();
                        broken
                    }
                },
            };
            let may_go_on = is_unknown || broken.is_conflict();
            let error = SourceError::from(broken);
            self.note(Some(&error));
            if !may_go_on {
                return Err(error);
            }
            sleep(ASKED_AGAIN).await;
        }
    }

    async fn try_rows(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, Broken> {
        Self::ask(self.connect().await?, statement, values).await
    }

    async fn ask(client: Object, statement: &str, values: Values<'_>) -> Result<Vec<Row>, Broken> {
        let query = async {
            let statement = client.prepare_cached(statement).await?;
            client.query(&statement, values).await
        };
        match timeout(ANSWER, query).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                // What is prepared may not fit the tables any more, and a new connection knows
                // nothing of it.
                drop(Object::take(client));
                Err(Broken::Postgres(error))
            }
            Err(_) => {
                // Whatever it waits for, nobody else is to wait behind it.
                drop(Object::take(client));
                Err(Broken::Slow("the database did not answer in time"))
            }
        }
    }

    /// Remembers how the last call ended.
    pub(crate) fn note(&self, failure: Option<&SourceError>) {
        let mut known = self.failure.lock();
        if known.as_ref() != failure {
            *known = failure.cloned();
        }
    }

    /// What keeps it from working, as of the last call.
    pub(crate) fn failure(&self) -> Option<SourceError> {
        self.failure.lock().clone()
    }
}

impl Broken {
    /// Whether the database said so itself: then it did nothing.
    fn is_said(&self) -> bool {
        matches!(self, Self::Postgres(error) if error.code().is_some())
    }

    fn is_conflict(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        let again = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
        error.code().is_some_and(|code| again.contains(code))
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

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Postgres(error) => write!(f, "{}{}", chain(error), self.advice()),
            Self::Slow(why) => f.write_str(why),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<Broken> for SourceError {
    fn from(broken: Broken) -> Self {
        Self::new(format_args!("PostgreSQL: {broken}"))
    }
}

impl From<Broken> for OpenError {
    fn from(broken: Broken) -> Self {
        let text = format!("PostgreSQL: {broken}");
        if broken.is_refusal() { Self::Refused(text) } else { Self::Unreachable(text) }
    }
}
