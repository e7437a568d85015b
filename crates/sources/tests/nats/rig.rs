//! Private servers, and queues on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Message, Reason, Receipt, Settle, Settled, Settlement, Source,
};
use sluicegate_sources::Content;
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject};
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server of one's own; `None` where none is installed.
pub(crate) fn server() -> Option<Broker> {
    start_or_skip(Kind::Nats)
}

/// The address of a queue on a server.
pub(crate) fn uri(base: &str, queue: &str) -> String {
    format!("{base}?stream={queue}&consumer=workers&subject={queue}.in")
}

/// A queue of this name on a server.
pub(crate) async fn open(base: &str, queue: &str, window: Duration) -> NatsSource<Message> {
    let settings = NatsSettings::parse(&uri(base, queue)).unwrap().with_visibility(window);
    ready(settings).await
}

/// Opens a queue that works. On a busy machine the server may take longer than opening waits for it.
pub(crate) async fn ready<M: Content>(settings: NatsSettings) -> NatsSource<M> {
    let source = NatsSource::open(settings).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while let Err(why) = source.health() {
        assert!(Instant::now() < deadline, "it does not open: {why}");
        sleep(Duration::from_millis(20)).await;
    }
    source
}

/// Queues on one server, each with a stream of its own.
pub(crate) struct Streams {
    pub(crate) broker: Broker,
    pub(crate) window: Duration,
    pub(crate) made: AtomicUsize,
}

impl Rig for Streams {
    fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::all(self.window);
        // What is delayed is among the delivered and not acknowledged for the server.
        abilities.counts_delayed = false;
        abilities.keeps_order = false;
        abilities.finds = false;
        abilities
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let (base, name) = (self.broker.url().to_owned(), format!("q{number}"));
        Box::pin(async move {
            let source = Some(Arc::new(open(&base, &name, visibility).await));
            Box::new(Queue { base, name, visibility, source }) as _
        })
    }
}

struct Queue {
    base: String,
    name: String,
    visibility: Duration,
    source: Option<Arc<NatsSource<Message>>>,
}

impl Subject for Queue {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(self.source.as_ref().unwrap()) as _
    }

    fn publish_raw(&self, body: &str) -> BoxFuture<'_, ()> {
        let body = body.to_owned();
        Box::pin(async move { publish_raw(&self.base, &self.name, body).await })
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.source = None;
            self.source = Some(Arc::new(open(&self.base, &self.name, self.visibility).await));
        })
    }
}

/// Publishes a body as any client would.
pub(crate) async fn publish_raw(base: &str, queue: &str, body: impl Into<bytes::Bytes>) {
    let client = async_nats::connect(base).await.unwrap();
    let context = async_nats::jetstream::new(client);
    context.publish(format!("{queue}.in"), body.into()).await.unwrap().await.unwrap();
}

/// Exactly so many deliveries, however many calls it takes; failures on the way are waited out.
pub(crate) async fn receive<M: Content>(source: &NatsSource<M>, count: usize) -> Vec<Delivery<M>> {
    let mut received = Vec::new();
    let all = async {
        while received.len() < count {
            match source.receive(Demand::any(count - received.len())).await {
                Ok(more) => received.extend(more),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let in_time = timeout(PATIENCE, all).await.is_ok();
    assert!(in_time, "{} of {count} came", received.len());
    received
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<String> {
    let id = |delivery: &Delivery| match &delivery.message {
        Ok(message) => message.id.to_string(),
        Err(malformed) => format!("malformed: {}", malformed.why),
    };
    deliveries.iter().map(id).collect()
}

pub(crate) const fn again(after: Duration) -> Settlement {
    Settlement::Retry { after, attempts: 1, reason: Reason::Failed }
}

pub(crate) async fn settle(
    source: &NatsSource<Message>,
    receipt: &Receipt,
    settlement: Settlement,
) -> Settled {
    let settle = Settle { receipt: receipt.clone(), settlement };
    let mut last = None;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match source.settle(vec![settle.clone()]).await {
            Ok(mut settled) => match settled.remove(0) {
                Settled::Failed(error) => last = Some(error),
                settled => return settled,
            },
            Err(error) => last = Some(error),
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("it was not settled: {last:?}");
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
