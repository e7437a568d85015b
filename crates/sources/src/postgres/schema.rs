//! The tables, and the way from one version of them to the next.

use deadpool_postgres::Object;
use sluicegate_postgres_link::Broken;
use tokio_postgres::Client;

use crate::OpenError;

/// The version of the tables that this daemon works with.
const KNOWN: i32 = 5;

const TABLES: &str = include_str!("sql/tables.sql");
const MESSAGES: &str = include_str!("sql/messages.sql");
const INDEXES: &str = include_str!("sql/indexes.sql");
const FUNCTIONS: [&str; 7] = [
    include_str!("sql/keys.sql"),
    include_str!("sql/publish.sql"),
    PUT_BACK,
    SETTLE,
    REST,
    include_str!("sql/claim.sql"),
    OUTBOX,
];
const PUT_BACK: &str = include_str!("sql/put_back.sql");
const SETTLE: &str = include_str!("sql/settle.sql");
const REST: &str = include_str!("sql/rest.sql");
const OUTBOX: &str = include_str!("sql/outbox.sql");
/// The old tables are put aside, and then taken over.
const FROM_1: &str = include_str!("sql/from_1.sql");
const COPY_1: &str = include_str!("sql/copy_1.sql");
const FROM_2: &str = include_str!("sql/from_2.sql");

/// What makes the tables of [`KNOWN`] out of those of a version.
fn steps(found: i32) -> Vec<&'static str> {
    let mut steps = match found {
        0 => vec![TABLES, MESSAGES, INDEXES],
        1 => vec![FROM_1, MESSAGES, COPY_1, INDEXES],
        2 => return vec![FROM_2, SETTLE, REST, PUT_BACK, OUTBOX],
        3 => return vec![PUT_BACK, OUTBOX],
        4 => return vec![OUTBOX],
        _ => return Vec::new(),
    };
    steps.extend(FUNCTIONS);
    steps
}

/// The names that a schema's statements are written with.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) schema: String,
    /// The class of the locks on queues. Queues are numbered from one; zero is for the tables.
    pub(crate) lock: i32,
    /// The class of the locks that those who live hold.
    pub(crate) life: i32,
}

impl Names {
    pub(crate) fn new(schema: &str) -> Self {
        let class = |part: &str| {
            // FNV-1a: the same in every version, for all of them must meet at the same lock.
            let text = format!("sluicegate {part} {schema}");
            let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            text.bytes().fold(0x811C_9DC5, mix).cast_signed()
        };
        Self { schema: schema.to_owned(), lock: class("queues"), life: class("instances") }
    }

    /// A statement with the names put in.
    pub(crate) fn write(&self, statement: &str) -> String {
        statement
            .replace("{s}", &self.schema)
            .replace("{lock}", &self.lock.to_string())
            .replace("{life}", &self.life.to_string())
    }

    /// What is notified when messages come to a queue.
    pub(crate) fn channel(&self, queue: i32) -> String {
        format!("{}_{queue}", self.schema)
    }
}

/// Why the tables are not what is needed.
pub(crate) enum Unfit {
    Broken(Broken),
    Newer(i32),
}

impl From<tokio_postgres::Error> for Unfit {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Broken(error.into())
    }
}

impl From<Unfit> for OpenError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Broken(broken) => broken.into(),
            Unfit::Newer(found) => Self::Refused(format!(
                "PostgreSQL: the tables are of version {found}, made by a newer sluicegate; this one \
                 knows version {KNOWN}"
            )),
        }
    }
}

/// The version of the tables: zero if there are none.
async fn version(client: &Client, names: &Names) -> Result<i32, tokio_postgres::Error> {
    // Names are looked up in the tables and not by functions, which may remember that there was
    // nothing before the lock was waited for.
    let there = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE n.nspname = $1 AND c.relname = 'version')";
    if !client.query_one(there, &[&names.schema]).await?.get::<_, bool>(0) {
        return Ok(0);
    }
    let found = client.query_one(&names.write("SELECT max(number) FROM {s}.version"), &[]).await?;
    Ok(found.get::<_, Option<i32>>(0).unwrap_or(0))
}

/// Brings the tables up to what this version knows, and makes the queue; answers its number.
pub(crate) async fn prepare(client: &mut Object, names: &Names, queue: &str) -> Result<i32, Unfit> {
    let find = names.write("SELECT id FROM {s}.queues WHERE name = $1");
    let found = version(client, names).await?;
    if found == KNOWN
        && let Some(row) = client.query_opt(&find, &[&queue]).await?
    {
        return Ok(row.get(0));
    }
    let transaction = client.transaction().await?;
    // One at a time: whoever comes second finds it done.
    let lock = names
        .write("SET LOCAL statement_timeout = '5min'; SELECT pg_advisory_xact_lock({lock}, 0)");
    transaction.batch_execute(&lock).await?;
    let found = version(transaction.client(), names).await?;
    if found > KNOWN {
        return Err(Unfit::Newer(found));
    }
    if found == 0 {
        // Asked for first: with the right to make one the statement fails even if it is there.
        let there = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";
        if !transaction.query_one(there, &[&names.schema]).await?.get::<_, bool>(0) {
            transaction.batch_execute(&names.write("CREATE SCHEMA {s}")).await?;
        }
        let table = "CREATE TABLE {s}.version (number int PRIMARY KEY, at timestamptz NOT NULL)";
        transaction.batch_execute(&names.write(table)).await?;
    }
    // It takes as long as there is much to take over.
    transaction.batch_execute("SET LOCAL statement_timeout = 0").await?;
    for step in steps(found) {
        transaction.batch_execute(&names.write(step)).await?;
    }
    if found < KNOWN {
        let note = names.write("INSERT INTO {s}.version VALUES ($1, now())");
        transaction.execute(&note, &[&KNOWN]).await?;
    }
    let make = names.write("INSERT INTO {s}.queues (name) VALUES ($1) ON CONFLICT DO NOTHING");
    transaction.execute(&make, &[&queue]).await?;
    let id = transaction.query_one(&find, &[&queue]).await?.get(0);
    transaction.commit().await?;
    Ok(id)
}

/// Whether [`prepare`] would work. Changes nothing.
pub(crate) async fn inspect(client: &Client, names: &Names) -> Result<(), OpenError> {
    let broken = |error: tokio_postgres::Error| OpenError::from(Broken::from(error));
    let found = version(client, names).await.map_err(broken)?;
    if found > KNOWN {
        return Err(Unfit::Newer(found).into());
    }
    let may = match found {
        0 => {
            "SELECT coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace \
             WHERE nspname = $1), has_database_privilege(current_database(), 'CREATE'))"
        }
        _ => {
            "SELECT has_table_privilege(format('%I.messages', $1::text), 'INSERT, UPDATE, DELETE')"
        }
    };
    let may = client.query_one(may, &[&names.schema]).await.map_err(broken)?;
    if may.get(0) {
        return Ok(());
    }
    Err(OpenError::Refused(format!(
        "PostgreSQL: the user may not make or use the tables in the schema {}; grant CREATE on the \
         database, or create the schema and make the user its owner",
        names.schema
    )))
}
