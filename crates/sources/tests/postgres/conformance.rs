//! PostgreSQL through the suite of sources.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{BoxFuture, Source};
use sluicegate_sources::postgres::{PostgresSettings, PostgresSource};
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject, run};
use tokio::time::Instant;

use crate::stage::{PATIENCE, Sql, database, lent};

struct Queues {
    url: String,
    made: AtomicUsize,
    /// Opened one after another: all at once they would wait for each other's connections.
    door: tokio::sync::Mutex<()>,
    window: Duration,
}

impl Rig for Queues {
    fn abilities(&self) -> Abilities {
        Abilities::all(self.window).selecting().discarding()
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let url = format!("{}?queue=orders%20{number}", self.url);
        let settings = PostgresSettings::parse(&url).unwrap().with_visibility(visibility);
        let settings = settings.with_connections(2);
        let (name, plain) = (settings.queue().to_owned(), self.url.clone());
        Box::pin(async move {
            let _one = self.door.lock().await;
            let source = Some(opened(&settings).await);
            Box::new(Queue { settings, source, name, plain }) as _
        })
    }
}

/// A queue that works: on a busy machine it may be opened before it is reached.
async fn opened(settings: &PostgresSettings) -> Arc<PostgresSource> {
    let source = Arc::new(PostgresSource::open(settings.clone()).await.unwrap());
    let end = Instant::now() + PATIENCE;
    while source.depth().await.is_err() {
        assert!(Instant::now() < end, "{:?}", source.health());
    }
    source
}

struct Queue {
    settings: PostgresSettings,
    source: Option<Arc<PostgresSource>>,
    name: String,
    plain: String,
}

impl Subject for Queue {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(self.source.as_ref().unwrap()) as _
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.source = None;
            // What it had claimed is another's when its window ends.
            let sql = Sql::connect(&self.plain).await;
            let out = format!(
                "SELECT count(*) FROM sluicegate.messages m JOIN sluicegate.queues q ON q.id = m.queue \
                 WHERE q.name = '{name}' AND token IS NOT NULL AND until > clock_timestamp()",
                name = self.name
            );
            sql.until("free", &out, 0).await;
            self.source =
                Some(Arc::new(PostgresSource::open(self.settings.clone()).await.unwrap()));
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (made, door) = (AtomicUsize::new(0), tokio::sync::Mutex::new(()));
    let queues = Queues { url, made, door, window: Duration::from_secs(6) };
    let count = run(&queues).await;
    assert!(count > 40, "{count} checks");
}
