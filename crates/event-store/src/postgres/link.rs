//! The connections that read: one statement each time, with an end to every wait.

use std::time::Duration;

use deadpool_postgres::{Object, Pool, RecyclingMethod};
use sluicegate_postgres_link::{Broken, pool};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::PostgresSettings;

/// How often a statement is begun whose connection turns out to have ended.
const TRIES: usize = 3;

/// A process of the server looks so often whether its client is still there, while it works. Servers before version 14
/// cannot.
const LOOK: &str = "SELECT set_config('client_connection_check_interval', '100', false) \
     WHERE current_setting('client_connection_check_interval', true) IS NOT NULL";

/// What a statement is given.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The way to the database.
#[derive(Debug)]
pub(super) struct Link {
    pool: Pool,
    limit: Duration,
}

impl Link {
    pub(super) fn new(settings: &PostgresSettings, tls: MakeRustlsConnect) -> Self {
        let limit = settings.read_timeout;
        let most = (settings.readers, limit);
        let pool = pool(settings.config(limit), tls, most, RecyclingMethod::Fast);
        Self { pool, limit }
    }

    /// The rows that a statement answers that changes nothing.
    pub(super) async fn rows(
        &self,
        statement: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Broken> {
        let asked = async {
            let mut tries = 1;
            loop {
                let rows = self.ask(statement, values).await;
                // A connection that has ended while it was idle says so when it is used: the next one may work.
                let has_ended =
                    matches!(&rows, Err(broken) if !broken.is_said() && !broken.is_slow());
                if !has_ended || tries == TRIES {
                    return rows;
                }
                tries += 1;
            }
        };
        timeout(self.limit, asked).await.unwrap_or_else(|_| Err(Broken::late()))
    }

    async fn ask(&self, statement: &str, values: Values<'_>) -> Result<Vec<Row>, Broken> {
        let client = self.lend().await?;
        let prepared = client.get()?.prepare_cached(statement).await?;
        let rows = client.get()?.query(&prepared, values).await?;
        client.give_back();
        Ok(rows)
    }

    async fn lend(&self) -> Result<Lent, Broken> {
        let client = Lent { object: Some(self.pool.get().await?) };
        let object = client.get()?;
        if Object::metrics(object).recycle_count == 0 {
            match object.batch_execute(LOOK).await.map_err(Broken::from) {
                // Not every system can tell: there it works until its time is over.
                Err(broken) if !broken.is_said() => return Err(broken),
                _ => {}
            }
        }
        Ok(client)
    }
}

/// A connection whose call may go wrong or be given up: then it is not used again, so that nobody waits behind it. It is
/// closed at once, and the server stops.
struct Lent {
    object: Option<Object>,
}

impl Lent {
    fn get(&self) -> Result<&Object, Broken> {
        self.object.as_ref().ok_or_else(|| Broken::Other("the connection is gone".to_owned()))
    }

    fn give_back(mut self) {
        self.object = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}
