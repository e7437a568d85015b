//! The connections of a source: one statement each time, with an end to every wait.

use std::time::Duration;

use deadpool_postgres::{Object, Pool, RecyclingMethod};
use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use sluicegate_postgres_link::{Broken, Wrong, pool};
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::PostgresSettings;
use crate::OpenError;

/// How long a call waits for its answer: longer than the database may work on it.
const ANSWER: Duration = Duration::from_secs(15);
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

impl Link {
    pub(crate) fn new(settings: &PostgresSettings, tls: MakeRustlsConnect) -> Self {
        let most = (settings.connections, ANSWER);
        let pool = pool(settings.address.config.clone(), tls, most, RecyclingMethod::Verified);
        Self { pool, failure: Mutex::new(None) }
    }

    /// A connection.
    pub(crate) async fn connect(&self) -> Result<Object, Broken> {
        Ok(self.pool.get().await?)
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
            if !matches!(&result, Err(broken) if is_conflict(broken)) {
                break;
            }
            result = self.try_rows(statement, values).await;
        }
        let result = result.map_err(SourceError::new);
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
                        is_unknown |= !broken.is_said() && !is_conflict(&broken);
                        broken
                    }
                },
            };
            let may_go_on = is_unknown || is_conflict(&broken);
            let error = SourceError::new(broken);
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
                Err(Broken::late())
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

/// Whether the database gave it up for another's sake, and nothing was changed.
fn is_conflict(broken: &Broken) -> bool {
    let again = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    broken.code().is_some_and(|code| again.contains(code))
}

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
