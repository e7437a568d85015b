//! PostgreSQL, beside bare INSERTs of the same rows by the same client: a connection for each writer, and one statement
//! for the rows of an append.

use std::time::{Duration, Instant};

use sluicegate_event_store::EventStore;
use sluicegate_event_store::postgres::{PostgresEngine, PostgresSettings};
use sluicegate_testkit::brokers::{Broker, Kind, start};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, Statement};

use super::load::{self, COURSES, Plain, STUDENTS, TYPES};
use super::turns::{CROWDS, Crowd, Extent, fill, medians, ours, tasks};
use crate::report::{Promise, Report, Row};

/// What one that has few events has.
const FEW: u64 = 1_000;

/// All rows of an append in one statement, as a client would write it that is in a hurry.
const ONE: &str = "WITH e AS (
        INSERT INTO bare.events (position, time, token, bytes, type, tags, data)
        VALUES (nextval('bare.positions'), clock_timestamp(), $1, $2, $3, $4, $5::text::json) RETURNING position
    )
    INSERT INTO bare.event_keys (key, position) SELECT k.key, e.position FROM e, unnest($6::text[]) AS k (key)";
const MANY: &str = "WITH i AS (
        SELECT nextval('bare.positions') AS position, t.*
        FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[]) AS t (token, bytes, type, tags, data)
    ), e AS (
        INSERT INTO bare.events (position, time, token, bytes, type, tags, data)
        SELECT position, clock_timestamp(), token, bytes, type, tags::text[], data::json FROM i
    )
    INSERT INTO bare.event_keys (key, position)
    SELECT k.key, i.position FROM i, unnest(i.tags::text[] || (':' || i.type)) AS k (key)";

/// A server, durable, with our tables and the bare ones.
struct Scene {
    store: EventStore,
    bare: Bare,
    _server: Broker,
}

impl Scene {
    fn filled(runtime: &Runtime, present: u64) -> Result<Self, String> {
        let server = start(Kind::Postgres).map_err(|error| error.to_string())?;
        let scene = runtime.block_on(Self::prepare(server.url(), present));
        let (store, bare) = scene?;
        Ok(Self { store, bare, _server: server })
    }

    async fn prepare(url: &str, present: u64) -> Result<(EventStore, Bare), String> {
        let (client, _driven) = connect(url).await?;
        // As it is set up by default, but for checkpoints in the middle of a turn.
        for setting in ["fsync = on", "full_page_writes = on", "max_wal_size = '8GB'"] {
            run(&client, &format!("ALTER SYSTEM SET {setting}")).await?;
        }
        run(&client, "ALTER SYSTEM SET checkpoint_timeout = '1h'").await?;
        run(&client, "SELECT pg_reload_conf()").await?;
        while value(&client, "SHOW fsync").await? != "on" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let store = open(url, "sluicegate").await?;
        run(&client, &filling(present)).await?;
        for table in
            ["sluicegate.events", "sluicegate.event_keys", "bare.events", "bare.event_keys"]
        {
            run(&client, &format!("VACUUM ANALYZE {table}")).await?;
        }
        run(&client, "CHECKPOINT").await?;
        Ok((store, Bare { url: url.to_owned(), writers: Mutex::default() }))
    }
}

async fn open(url: &str, schema: &str) -> Result<EventStore, String> {
    let settings = PostgresSettings::parse(&format!("{url}?schema={schema}"));
    let settings = settings.map_err(|error| error.to_string())?;
    let engine = PostgresEngine::open(settings).await.map_err(|error| error.to_string())?;
    Ok(EventStore::new(engine))
}

/// The bare tables, and so many events for both.
fn filling(present: u64) -> String {
    let padding = "x".repeat(80);
    format!(
        "CREATE SCHEMA bare;
        CREATE TABLE bare.events (LIKE sluicegate.events INCLUDING ALL);
        CREATE TABLE bare.event_keys (LIKE sluicegate.event_keys INCLUDING ALL);
        CREATE SEQUENCE bare.positions;
        INSERT INTO bare.events (position, time, token, bytes, type, tags, data)
        SELECT n, now(), n, 150, 'Type' || n % {TYPES},
            ARRAY['course:c' || n * 7919 % {COURSES}, 'order:f' || n, 'student:s' || n * 7919 % {STUDENTS}],
            ('{{\"n\":' || n || ',\"text\":\"{padding}\"}}')::json
        FROM generate_series(1, {present}::bigint) AS n;
        INSERT INTO bare.event_keys (key, position)
        SELECT k.key, e.position FROM bare.events e, unnest(e.tags || (':' || e.type)) AS k (key) ORDER BY 1, 2;
        SET sluicegate.appends_to = 'sluicegate';
        INSERT INTO sluicegate.events SELECT * FROM bare.events ORDER BY position;
        INSERT INTO sluicegate.event_keys SELECT * FROM bare.event_keys ORDER BY key, position;
        RESET sluicegate.appends_to;
        SELECT setval('bare.positions', {present} + 1), setval('sluicegate.event_positions', {present} + 1);"
    )
}

/// Appends under conditions, for a profiler.
pub(super) fn spin(
    runtime: &Runtime,
    crowd: Crowd,
    present: u64,
    turn: Duration,
) -> Result<f64, String> {
    let scene = Scene::filled(runtime, present)?;
    ours(runtime, &scene.store, crowd, turn, true)
}

pub(super) fn run_all(
    report: &mut Report,
    runtime: &Runtime,
    extent: Extent,
) -> Result<(), String> {
    for (n, present) in extent.present.iter().enumerate() {
        eprintln!("PostgreSQL: {present} events …");
        let scene = Scene::filled(runtime, *present)?;
        for crowd in CROWDS {
            append(report, runtime, extent, &scene, *present, crowd)?;
        }
        if n + 1 == extent.present.len() {
            for writers in [1, 64] {
                // One that is short again: it grows while it is measured.
                let name = format!("short_{writers}");
                let short = runtime.block_on(open(&scene.bare.url, &name))?;
                fill(runtime, &short, FEW)?;
                super::cost(
                    report,
                    runtime,
                    extent,
                    "PostgreSQL",
                    writers,
                    [&scene.store, &short],
                )?;
            }
        }
    }
    Ok(())
}

fn append(
    report: &mut Report,
    runtime: &Runtime,
    extent: Extent,
    scene: &Scene,
    present: u64,
    crowd: Crowd,
) -> Result<(), String> {
    runtime.block_on(scene.bare.connect(crowd))?;
    let [append, append_if, bare] = medians(
        extent,
        crowd,
        [
            &|crowd, turn| ours(runtime, &scene.store, crowd, turn, false),
            &|crowd, turn| ours(runtime, &scene.store, crowd, turn, true),
            &|crowd, turn| scene.bare.insert(runtime, crowd, turn),
        ],
    )?;
    let least = match (crowd.writers, crowd.batch) {
        (1, 1) => Some(0.7),
        (16, 1) => Some(1.2),
        (64, 1) => Some(1.5),
        (_, 64) => Some(0.8),
        _ => None,
    };
    for (name, rate) in [("append", append), ("append_if", append_if)] {
        let what = super::named(&format!("PostgreSQL {name}"), crowd, present);
        let row = Row::new(what, "/s", rate).beside("bare INSERTs", bare);
        let promised = |least| row.clone().promised(Promise::RatioAtLeast(least));
        report.rows.push(least.map_or_else(|| row.clone(), promised));
    }
    Ok(())
}

/// The bare tables, and a connection for each who writes to them.
struct Bare {
    url: String,
    writers: Mutex<Vec<std::sync::Arc<Writer>>>,
}

struct Writer {
    client: Client,
    one: Statement,
    many: Statement,
    driven: Driven,
}

/// What drives a connection: it ends with it.
struct Driven(JoinHandle<()>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Bare {
    /// Has a connection for each writer before anybody's turn begins.
    async fn connect(&self, crowd: Crowd) -> Result<(), String> {
        let mut writers = self.writers.lock().await;
        while (writers.len() as u64) < crowd.writers {
            let (client, driven) = connect(&self.url).await?;
            let one = client.prepare(ONE).await.map_err(|error| error.to_string())?;
            let many = client.prepare(MANY).await.map_err(|error| error.to_string())?;
            writers.push(std::sync::Arc::new(Writer { client, one, many, driven }));
        }
        Ok(())
    }

    fn insert(&self, runtime: &Runtime, crowd: Crowd, turn: Duration) -> Result<f64, String> {
        let writers = self.writers.blocking_lock();
        tasks(runtime, crowd, turn, |n, end| {
            let writer = writers.get(n as usize).cloned();
            async move {
                let writer = writer.ok_or("there are more writers than connections")?;
                let mut count = 0;
                while Instant::now() < end {
                    writer.insert(&load::some(crowd.batch)).await?;
                    count += crowd.batch;
                }
                Ok(count)
            }
        })
    }
}

impl Writer {
    async fn insert(&self, events: &[Plain]) -> Result<(), String> {
        debug_assert!(!self.driven.0.is_finished(), "it lives as long as its client");
        let inserted = match events {
            [event] => self.insert_one(event).await,
            events => self.insert_many(events).await,
        };
        inserted.map(drop).map_err(|error| error.to_string())
    }

    async fn insert_one(&self, event: &Plain) -> Result<u64, tokio_postgres::Error> {
        let tags = event.tags.as_slice();
        let mut keys = tags.to_vec();
        keys.push(format!(":{}", event.event_type));
        let (token, bytes) = (1_i64, bytes(event));
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&token, &bytes, &event.event_type, &tags, &event.data, &keys];
        self.client.execute(&self.one, &values).await
    }

    async fn insert_many(&self, events: &[Plain]) -> Result<u64, tokio_postgres::Error> {
        let tokens = vec![1_i64; events.len()];
        let sizes: Vec<i32> = events.iter().map(bytes).collect();
        let types: Vec<&str> = events.iter().map(|event| &*event.event_type).collect();
        let tags: Vec<String> =
            events.iter().map(|event| format!("{{{}}}", event.tags.join(","))).collect();
        let datas: Vec<&str> = events.iter().map(|event| &*event.data).collect();
        self.client.execute(&self.many, &[&tokens, &sizes, &types, &tags, &datas]).await
    }
}

fn bytes(event: &Plain) -> i32 {
    let tags: usize = event.tags.iter().map(String::len).sum();
    i32::try_from(event.event_type.len() + tags + event.data.len()).unwrap_or(i32::MAX)
}

async fn connect(url: &str) -> Result<(Client, Driven), String> {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.map_err(|error| error.to_string())?;
    let driven = tokio::spawn(async {
        // Whoever uses it hears of its end.
        connection.await.ok();
    });
    Ok((client, Driven(driven)))
}

async fn run(client: &Client, statements: &str) -> Result<(), String> {
    client.batch_execute(statements).await.map_err(|error| format!("{statements}: {error:?}"))
}

async fn value(client: &Client, statement: &str) -> Result<String, String> {
    let row = client.query_one(statement, &[]).await.map_err(|error| error.to_string())?;
    Ok(row.get(0))
}
