//! What the tests of a queue of events are written in.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    Delivery, Demand, Message, Order, Reason, Settle, Settled, Settlement, Source,
};
use sluicegate_event_store::{Append, Engine, MemoryEngine, NewEvent};
use sluicegate_sources::events::{EventsSettings, EventsSource};
use tokio::time::{Instant, timeout};

use crate::rig::QUEUE;

/// How long anything may take that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A queue of events, and the store that it is of.
pub(crate) struct Stage {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) source: EventsSource<Message>,
}

pub(crate) fn settings() -> EventsSettings {
    let uri = "events:?key=k&types=Said&pool=STRICT&target=http%3A%2F%2Flocalhost%2Fin";
    EventsSettings::parse(uri).unwrap()
}

/// An event of a key.
pub(crate) fn said(key: &str) -> NewEvent {
    NewEvent::of("Said").tag("k", key)
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::of(Arc::new(MemoryEngine::new()), settings()).await
    }

    /// A queue whose keys are kept in order.
    pub(crate) async fn of(engine: Arc<dyn Engine>, settings: EventsSettings) -> Self {
        let source = EventsSource::open(Arc::clone(&engine), QUEUE, settings).await.unwrap();
        Source::<Message>::keep_order(&source, &Arc::new(Order::of_pools(["STRICT"])));
        Self { engine, source }
    }

    /// Opens the queue again, without a word to who had it.
    pub(crate) async fn crash(self) -> Self {
        let Self { engine, source } = self;
        drop(source);
        Self::of(engine, settings()).await
    }

    pub(crate) async fn append(&self, events: impl IntoIterator<Item = NewEvent>) {
        let events: Vec<NewEvent> = events.into_iter().collect();
        for batch in events.chunks(1_000) {
            let append = Append::new(batch.to_vec(), None).unwrap();
            self.engine.append(append).await.unwrap();
        }
    }

    /// Exactly so many, however many calls it takes.
    pub(crate) async fn take(&self, count: usize) -> Vec<Delivery> {
        let (mut all, end) = (Vec::new(), Instant::now() + PATIENCE);
        while all.len() < count {
            let some = self.source.receive(Demand::any(count - all.len())).await.unwrap();
            all.extend(some);
            assert!(Instant::now() < end, "{} of {count} came", all.len());
        }
        all
    }

    /// All that can be had now.
    pub(crate) async fn all(&self) -> Vec<Delivery> {
        let receive = self.source.receive(Demand::any(10_000));
        timeout(Duration::from_millis(300), receive).await.map_or(Vec::new(), Result::unwrap)
    }

    pub(crate) async fn settle(&self, of: &[Delivery], how: Settlement) -> Vec<Settled> {
        let settle =
            |delivery: &Delivery| Settle { receipt: delivery.receipt.clone(), settlement: how };
        self.source.settle(of.iter().map(settle).collect()).await.unwrap()
    }

    pub(crate) async fn done(&self, of: &[Delivery]) {
        for batch in of.chunks(1_000) {
            let settled = self.settle(batch, Settlement::Ack).await;
            assert_eq!(settled, vec![Settled::Done; batch.len()]);
        }
    }

    /// What is stored of the cursor. Who had the queue has it no more.
    pub(crate) async fn stored(&self) -> Option<String> {
        self.engine.cursors().unwrap().take(QUEUE).await.unwrap().state
    }
}

pub(crate) fn again(after: Duration, attempts: u32) -> Settlement {
    Settlement::Retry { after, attempts, reason: Reason::Failed }
}

/// The positions of deliveries.
pub(crate) fn positions(of: &[Delivery]) -> Vec<u64> {
    let number = |delivery: &Delivery| {
        let id = &delivery.message.as_ref().unwrap().id;
        id.strip_prefix(&format!("{QUEUE}:")).unwrap().parse().unwrap()
    };
    of.iter().map(number).collect()
}
