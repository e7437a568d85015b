//! The engine on PostgreSQL: a private server, each store in a database of its own.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_event_store::postgres::{PostgresEngine, PostgresSettings};
use sluicegate_event_store::{BoxFuture, Engine};
use sluicegate_tasks::{Context, TaskGroup};
use tokio_postgres::{Client, NoTls};

use super::process::ProcessEngine;
use crate::brokers::{self, Kind, Lent};
use crate::conformance::events::{Rig, Subject};

pub(super) struct Postgres {
    server: Lent,
    /// What this program is started with to be another process.
    again: Option<&'static [&'static str]>,
}

/// A connection, with the task that drives it. Dropped, it ends, and so does its transaction.
struct Connection {
    client: Client,
    _group: TaskGroup,
}

struct Database {
    url: String,
    again: Option<&'static [&'static str]>,
    engine: Arc<PostgresEngine>,
}

impl Postgres {
    pub(super) fn start(again: Option<&'static [&'static str]>) -> Result<Self, String> {
        let server = brokers::lend(Kind::Postgres);
        server
            .map(|server| Self { server, again })
            .ok_or_else(|| "there is no PostgreSQL".to_owned())
    }
}

impl Rig for Postgres {
    fn store(&self) -> BoxFuture<'_, Box<dyn Subject>> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Box::pin(async {
            // Other processes use the same server.
            let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
            let name = format!("engine_{process}_{number}");
            let connection = connect(self.server.url()).await;
            let create = format!("CREATE DATABASE {name}");
            let created = connection.client.batch_execute(&create).await;
            created.expect("it can be created");
            let (server, _) = self.server.url().rsplit_once('/').expect("it names a database");
            let url = format!("{server}/{name}");
            let engine = open(&url).await;
            Box::new(Database { url, again: self.again, engine }) as _
        })
    }

    fn at_once(&self) -> usize {
        // Each check has a database with connections of its own.
        4
    }
}

pub(super) async fn open(url: &str) -> Arc<PostgresEngine> {
    let settings = PostgresSettings::parse(url).expect("it is an address");
    Arc::new(PostgresEngine::open(settings).await.expect("it can be opened"))
}

async fn connect(url: &str) -> Connection {
    let (client, driver) = tokio_postgres::connect(url, NoTls).await.expect("it is there");
    let group = TaskGroup::new("connection", 1).expect("there is one");
    let driving = group.submit_detached("driver", |cx: Context| async move {
        // Its end is heard of by whoever uses the connection.
        drop(cx.until_interrupted(driver).await);
    });
    drop(driving.await.expect("there is room for it"));
    Connection { client, _group: group }
}

impl Subject for Database {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine) as _
    }

    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn Engine>>> {
        Box::pin(async { Some(open(&self.url).await as _) })
    }

    fn in_another_process(&self) -> BoxFuture<'_, Option<Arc<dyn Engine>>> {
        Box::pin(async {
            let engine = ProcessEngine::start(&self.url, self.again?, self.engine()).await;
            Some(Arc::new(engine) as _)
        })
    }

    fn unrelated_transaction(&self) -> BoxFuture<'_, Option<Box<dyn Any + Send>>> {
        Box::pin(async {
            let connection = connect(&self.url).await;
            let begun = connection.client.batch_execute(
                "CREATE TABLE IF NOT EXISTS unrelated (n bigint); BEGIN; INSERT INTO unrelated VALUES (1)",
            );
            begun.await.expect("it begins");
            Some(Box::new(connection) as _)
        })
    }
}
