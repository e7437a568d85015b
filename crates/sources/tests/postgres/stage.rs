//! What the tests of PostgreSQL are written in.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{
    Delivery, Demand, Publication, Reason, Settle, Settled, Settlement, Source,
};
use sluicegate_sources::postgres::{PostgresSettings, PostgresSource};
use sluicegate_tasks::{Context, TaskGroup};
use sluicegate_testkit::brokers::{self, Broker, Kind, Lent};
use sluicegate_testkit::conformance::source::publication_in;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, NoTls, Row};

/// How long anything may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The server of this run, or one of one's own.
pub(crate) fn lent() -> Option<Lent> {
    brokers::lend(Kind::Postgres)
}

/// A server of one's own, to break.
pub(crate) fn own() -> Option<Broker> {
    brokers::start_or_skip(Kind::Postgres)
}

/// A fresh database: its address without parameters.
pub(crate) async fn database(server: &str) -> String {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    // Other processes use the same server.
    let name = format!("test_{}_{number}", std::process::id());
    let sql = Sql::connect(server).await;
    sql.run(&format!("DROP DATABASE IF EXISTS {name}")).await;
    sql.run(&format!("CREATE DATABASE {name}")).await;
    let (start, _) = server.rsplit_once('/').unwrap();
    format!("{start}/{name}")
}

pub(crate) fn settings(url: &str, visibility: Duration) -> PostgresSettings {
    PostgresSettings::parse(&format!("{url}?queue=orders")).unwrap().with_visibility(visibility)
}

pub(crate) async fn open(url: &str, visibility: Duration) -> PostgresSource {
    PostgresSource::open(settings(url, visibility)).await.unwrap()
}

/// A connection of one's own, to look behind the source.
pub(crate) struct Sql {
    client: Client,
    _group: TaskGroup,
}

impl Sql {
    pub(crate) async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let group = TaskGroup::new("sql", 1).unwrap();
        let drive = |cx: Context| async move {
            cx.until_interrupted(connection).await.map(|ended| ended.ok()).ok();
        };
        assert!(group.submit_detached("connection", drive).await.is_ok());
        Self { client, _group: group }
    }

    pub(crate) async fn run(&self, statement: &str) {
        self.client.batch_execute(statement).await.unwrap();
    }

    /// Why a statement does not work.
    pub(crate) async fn refused(&self, statement: &str) -> String {
        let error = self.client.batch_execute(statement).await.unwrap_err();
        error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
    }

    pub(crate) async fn rows(&self, statement: &str) -> Vec<Row> {
        self.client.query(statement, &[]).await.unwrap()
    }

    /// Waits until a count is this.
    pub(crate) async fn until(&self, what: &str, statement: &str, count: i64) {
        let end = Instant::now() + PATIENCE;
        while self.number(statement).await != count {
            assert!(Instant::now() < end, "never {what}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn number(&self, statement: &str) -> i64 {
        self.rows(statement).await[0].get(0)
    }
}

/// Waits for something that must happen.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "never {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Exactly so many deliveries, whatever goes wrong on the way, in the order in which they were published.
pub(crate) async fn receive(source: &PostgresSource, count: usize) -> Vec<Delivery> {
    let end = Instant::now() + PATIENCE;
    let mut received = Vec::new();
    while received.len() < count {
        assert!(Instant::now() < end, "{} of {count} came: {:?}", received.len(), ids(&received));
        match timeout(PATIENCE, source.receive(Demand::any(count - received.len()))).await.unwrap()
        {
            Ok(more) => received.extend(more),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
    received.sort_by_key(|delivery| delivery.receipt.tag);
    received
}

pub(crate) fn id(delivery: &Delivery) -> String {
    delivery.message.as_ref().map_or_else(|bad| bad.why.clone(), |message| message.id.to_string())
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(id).collect()
}

pub(crate) fn again(after: Duration, attempts: u32) -> Settlement {
    Settlement::Retry { after, attempts, reason: Reason::Failed }
}

pub(crate) fn gone(delivery: &Delivery) -> Settle {
    Settle { receipt: delivery.receipt.clone(), settlement: Settlement::Ack }
}

pub(crate) async fn done(source: &PostgresSource, deliveries: &[Delivery]) {
    let settled = source.settle(deliveries.iter().map(gone).collect()).await.unwrap();
    assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
}

pub(crate) fn strict(id: &str, group: &str) -> Publication {
    publication_in(id, "STRICT", Some(group), false)
}
