//! The suite that every source passes, over standard and over FIFO queues.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{BoxFuture, Source};
use sluicegate_sources::sqs::{SqsSettings, SqsSource};
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject, run};

use crate::stage::{broker, fresh, open, settings, until};

const WINDOW: Duration = Duration::from_secs(8);

struct Server {
    broker: Broker,
    suffix: &'static str,
}

impl Rig for Server {
    fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::all(WINDOW);
        // Windows are the service's, and outlive whoever received.
        abilities.crash_frees = false;
        // Several polls are under way at once, and what has no group is in order with nothing. Within a group of
        // a FIFO queue order holds: see the tests of those.
        abilities.in_order = false;
        // A FIFO queue hands out several of a group at once.
        abilities.keeps_order = false;
        // It does not say which ones it knew.
        abilities.dedupes = false;
        abilities.finds = false;
        abilities.many = 1_000;
        // The emulation is slow where many ask at once.
        abilities.at_once = 8;
        abilities
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        let settings = settings(self.broker.url(), &fresh(self.suffix));
        let settings = settings.with_visibility(visibility).with_wait(Duration::from_secs(2));
        Box::pin(async move { Box::new(Queue::open(settings).await) as _ })
    }
}

struct Queue {
    settings: SqsSettings,
    source: Option<Arc<SqsSource>>,
}

impl Queue {
    async fn open(settings: SqsSettings) -> Self {
        let source = open(settings.clone()).await;
        // A busy machine may not answer at once.
        until("it is reached", || async { source.health().is_ok() }).await;
        Self { settings, source: Some(source) }
    }
}

impl Subject for Queue {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(self.source.as_ref().unwrap()) as _
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.source = None;
            *self = Self::open(self.settings.clone()).await;
        })
    }
}

async fn check(suffix: &'static str) {
    let Some(broker) = broker() else { return };
    let count = run(&Server { broker, suffix }).await;
    println!("{count} checks");
    assert!(count >= 27, "{count} checks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standard_queue_keeps_the_contract() {
    check("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fifo_queue_keeps_the_contract() {
    check(".fifo").await;
}
