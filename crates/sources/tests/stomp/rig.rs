//! Queues of a private broker, and what is done to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{BoxFuture, Demand, Message, Source};
use sluicegate_sources::stomp::{StompSettings, StompSource};
use sluicegate_testkit::brokers::Broker;
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject};

static NAMES: AtomicUsize = AtomicUsize::new(0);

/// A name that no other queue has.
pub(crate) fn fresh_name() -> String {
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("q.{}.{number}", std::process::id())
}

/// A queue of this broker.
pub(crate) fn settings(broker: &Broker, queue: &str) -> StompSettings {
    let uri = format!("activemq://{}/{queue}", broker.address());
    StompSettings::parse(&uri).unwrap()
}

/// Makes queues on one broker.
pub(crate) struct Queues {
    pub(crate) broker: Broker,
    pub(crate) window: Duration,
}

impl Rig for Queues {
    fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::all(self.window);
        // What was sent ahead is counted, and the broker sends when it likes.
        abilities.counts_at_once = false;
        // The broker has no place for a delayed message in the line.
        abilities.keeps_order = false;
        abilities.dedupes = false;
        abilities.finds = false;
        abilities
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        let settings = settings(&self.broker, &fresh_name()).with_visibility(visibility);
        Box::pin(async { Box::new(Queue::open(settings).await) as _ })
    }
}

/// One queue, received from and published to over one connection.
pub(crate) struct Queue {
    settings: StompSettings,
    source: Option<Arc<StompSource<Message>>>,
}

impl Queue {
    pub(crate) async fn open(settings: StompSettings) -> Self {
        let source: super::stage::Queue = StompSource::open(settings.clone()).await.unwrap();
        // The broker counts what it has sent here, and sends nothing before it is asked to.
        source.receive(Demand::any(0)).await.unwrap();
        Self { settings, source: Some(Arc::new(source)) }
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
