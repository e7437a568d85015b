//! The tables, and the way from one version of them to the next.
//!
//! Processes of an older version go on while a newer one migrates: a version adds, and keeps what the older call.

use std::time::Duration;

use sluicegate_postgres_link::{Broken, CONNECT, Wire};
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::open_error::OpenError;
use super::settings::PostgresSettings;

/// The version of the tables that is worked with here.
pub(super) const KNOWN: i32 = 2;

const STEPS: [&[&str]; KNOWN as usize] = [
    &[include_str!("sql/tables.sql"), include_str!("sql/read.sql"), include_str!("sql/append.sql")],
    &[include_str!("sql/cursors.sql")],
];

/// How long a migration may take, the wait for others included.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is begun anew, when others make the same at the same time without our lock.
const TRIES: usize = 3;

/// The names that a schema's statements are written with.
#[derive(Clone, Debug)]
pub(super) struct Names {
    schema: String,
    /// Held by who appends.
    lock: i64,
    /// Held by who migrates.
    tables: i64,
}

impl Names {
    pub(super) fn new(schema: &str) -> Self {
        let number = |part: &str| {
            // FNV-1a: the same in every version, for all of them must meet at the same lock.
            let text = format!("sluicegate {part} {schema}");
            let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            text.bytes().fold(0xcbf2_9ce4_8422_2325, mix).cast_signed()
        };
        let (lock, tables) = (number("events"), number("tables of events"));
        Self { schema: schema.to_owned(), lock, tables }
    }

    /// A statement with the names put in.
    pub(super) fn write(&self, statement: &str) -> String {
        statement
            .replace("{s}", &self.schema)
            .replace("{lock}", &self.lock.to_string())
            .replace("{tables}", &self.tables.to_string())
    }

    /// What is notified when events come.
    pub(super) fn channel(&self) -> String {
        format!("{}_events", self.schema)
    }
}

/// Brings the tables up to [`KNOWN`].
pub(super) async fn prepare(
    settings: &PostgresSettings,
    tls: &MakeRustlsConnect,
    names: &Names,
) -> Result<(), OpenError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut wire = Wire::connect(&settings.config(PATIENCE), tls).await?;
        let (client, connection) = wire.parts();
        let migrate = timeout(PATIENCE + CONNECT, migrate(client, names));
        let migrated = tokio::select! {
            biased;
            migrated = migrate => migrated,
            broken = connection => Ok(Err(broken.into())),
        };
        match migrated {
            Ok(Err(Unfit::Broken(Broken::Postgres(error))))
                if tries < TRIES && is_of_a_race(&error) => {}
            Ok(result) => return result.map_err(OpenError::from),
            Err(_) => return Err(Broken::Slow("the tables were not made in time").into()),
        }
    }
}

/// Whether it failed because another made the same: the queue's tables may be in the same schema, and their makers have
/// a lock of their own.
fn is_of_a_race(error: &tokio_postgres::Error) -> bool {
    let codes = [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_SCHEMA];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Why the tables are not what is needed.
enum Unfit {
    Broken(Broken),
    Newer(i32),
    Encoding(String),
}

impl<E: Into<Broken>> From<E> for Unfit {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

impl From<Unfit> for OpenError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Broken(broken) => broken.into(),
            Unfit::Newer(found) => Self::Newer { found, known: KNOWN },
            Unfit::Encoding(found) => Self::Refused(format!(
                "PostgreSQL: the database is encoded in {found}, and cannot hold every text; create one in UTF8"
            )),
        }
    }
}

async fn migrate(client: &mut Client, names: &Names) -> Result<(), Unfit> {
    let encoding: String = client.query_one("SHOW server_encoding", &[]).await?.get(0);
    if encoding != "UTF8" {
        return Err(Unfit::Encoding(encoding));
    }
    if version(client, names).await? == KNOWN {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    // One at a time: whoever comes second finds it done.
    transaction.batch_execute(&names.write("SELECT pg_advisory_xact_lock({tables})")).await?;
    let found = version(transaction.client(), names).await?;
    if found > KNOWN {
        return Err(Unfit::Newer(found));
    }
    if found == 0 {
        // Asked for first: without the right to make one the statement fails even if it is there.
        let there = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";
        if !transaction.query_one(there, &[&names.schema]).await?.get::<_, bool>(0) {
            transaction.batch_execute(&names.write("CREATE SCHEMA {s}")).await?;
        }
        let table =
            "CREATE TABLE {s}.event_version (number int PRIMARY KEY, at timestamptz NOT NULL)";
        transaction.batch_execute(&names.write(table)).await?;
    }
    for steps in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        for step in *steps {
            transaction.batch_execute(&names.write(step)).await?;
        }
    }
    if found < KNOWN {
        let note = names.write("INSERT INTO {s}.event_version VALUES ($1, now())");
        transaction.execute(&note, &[&KNOWN]).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// The version of the tables: zero if there are none.
async fn version(client: &Client, names: &Names) -> Result<i32, tokio_postgres::Error> {
    // Names are looked up in the tables and not by functions, which may remember that there was nothing before the lock
    // was waited for.
    let there = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = $1 AND c.relname = 'event_version')";
    if !client.query_one(there, &[&names.schema]).await?.get::<_, bool>(0) {
        return Ok(0);
    }
    let found =
        client.query_one(&names.write("SELECT max(number) FROM {s}.event_version"), &[]).await?;
    Ok(found.get::<_, Option<i32>>(0).unwrap_or(0))
}
