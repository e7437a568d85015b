//! RabbitMQ through the suite of sources.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{BoxFuture, Envelope, Source};
use sluicegate_sources::amqp::{AmqpSettings, AmqpSource, Delays, Queue, Topology};
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject, run};

use crate::stage::{name, settings, shared};

struct Queues {
    url: &'static str,
    window: Duration,
    many: usize,
    crashes: bool,
    topology: fn(&str) -> Topology,
}

impl Rig for Queues {
    fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::all(self.window);
        // Order across deliveries, ids seen before and a search are not the broker's.
        (abilities.keeps_order, abilities.dedupes, abilities.finds) = (false, false, false);
        (abilities.many, abilities.crashes) = (self.many, self.crashes);
        abilities
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        Box::pin(async move {
            let queue = name("suite");
            let topology = (self.topology)(&queue);
            // Making a quorum queue takes seconds on a busy machine, and the checks need many
            // delays within a window; waiting in them has a test of its own.
            let settings = settings(self.url, &queue).with_visibility(visibility);
            let settings = settings.with_delays(Delays::Classic);
            Box::new(Opened::open(settings.with_topology(topology)).await) as _
        })
    }
}

struct Opened {
    settings: AmqpSettings,
    source: Option<Arc<AmqpSource>>,
}

impl Opened {
    async fn open(settings: AmqpSettings) -> Self {
        let source = Some(Arc::new(AmqpSource::open(settings.clone()).await.unwrap()));
        Self { settings, source }
    }
}

impl Subject for Opened {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(self.source.as_ref().unwrap()) as _
    }

    fn publish_raw(&self, body: &str) -> BoxFuture<'_, ()> {
        let body = body.to_owned().into();
        Box::pin(async move {
            let source = self.source.as_ref().unwrap();
            let raw = vec![Envelope { body, ..Envelope::default() }];
            source.connection().publish("", source.queue(), raw).await.unwrap();
        })
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.source = None;
            *self = Self::open(self.settings.clone()).await;
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let Some(url) = shared() else { return };
    let topology = |_: &str| Topology::new();
    let queues =
        Queues { url, window: Duration::from_secs(6), many: 10_000, crashes: true, topology };
    let count = run(&queues).await;
    assert!(count > 20, "{count} checks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract_with_quorum_queues() {
    let Some(url) = shared() else { return };
    let topology = |queue: &str| Topology::new().with_queue(Queue::new(queue).quorum());
    // A quorum queue hands out again in another order than it did first, which the checks of a
    // crash look at; that nothing is lost is checked in `breaks`.
    let queues =
        Queues { url, window: Duration::from_secs(6), many: 500, crashes: false, topology };
    run(&queues).await;
}
