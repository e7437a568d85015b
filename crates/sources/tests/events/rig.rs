//! Queues of events for the suite of sources: a publication is appended as an event whose data is its body.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Discarded, Found, FoundState, Malformed, Message, Order,
    Profile, Publication, PublishError, Published, PutBack, Receipt, Rest, Settle, Settled, Source,
    SourceError,
};
use sluicegate_event_store::{Append, Engine, MemoryEngine, NewEvent, SqliteEngine};
use sluicegate_sources::events::{EventsSettings, EventsSource};
use sluicegate_sources::wire;
use sluicegate_sqlite_file::OpenError;
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject};
use tempfile::TempDir;
use tokio::task::yield_now;
use tokio::time::Instant;

pub(crate) const QUEUE: &str = "told";

/// Queues in memory, or in files.
pub(crate) struct Queues {
    pub(crate) window: Duration,
    pub(crate) in_files: bool,
}

impl Rig for Queues {
    fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::all(self.window).discarding();
        abilities.keeps_rests = true;
        // An event says neither when nor how urgently nor by which pool it is delivered, and is appended as often as it
        // is; that the one pool has no room is looked at in `demand`.
        (abilities.schedules, abilities.prioritises) = (false, false);
        (abilities.names_pools, abilities.dedupes) = (false, false);
        if self.in_files {
            abilities.at_once = 20;
        }
        abilities
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        Box::pin(async move {
            let folder = self.in_files.then(|| tempfile::tempdir().unwrap());
            let engine: Arc<dyn Engine> = match &folder {
                Some(folder) => Arc::new(SqliteEngine::open(file(folder)).await.unwrap()),
                None => Arc::new(MemoryEngine::new()),
            };
            let names = Arc::new(Mutex::default());
            let source = opened(&engine, visibility, &names).await;
            Box::new(Queue { folder, visibility, names, open: Some((engine, source)) }) as _
        })
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("events.db")
}

/// Opens a file again: its task that stores the cursor may be on its way out.
pub(crate) async fn reopened(path: PathBuf) -> SqliteEngine {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match SqliteEngine::open(&path).await {
            Err(OpenError::Served { .. }) if Instant::now() < end => yield_now().await,
            opened => return opened.unwrap(),
        }
    }
}

/// What messages are called by who published them, and by us.
type Names = Arc<Mutex<HashMap<String, String>>>;

async fn opened(engine: &Arc<dyn Engine>, window: Duration, names: &Names) -> Arc<Translated> {
    let uri = "events:?key=group&pool=STRICT&target=http%3A%2F%2Flocalhost%2Fin";
    let settings = EventsSettings::parse(uri).unwrap().with_visibility(window);
    let source = EventsSource::open(Arc::clone(engine), QUEUE, settings).await.unwrap();
    Arc::new(Translated { source, names: Arc::clone(names) })
}

struct Queue {
    folder: Option<TempDir>,
    visibility: Duration,
    names: Names,
    open: Option<(Arc<dyn Engine>, Arc<Translated>)>,
}

impl Subject for Queue {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.open.as_ref().unwrap().1) as _
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        let (engine, _) = self.open.as_ref().unwrap();
        let event = |Publication { message, body, .. }: &Publication| {
            let event = NewEvent::of("Told").tag("x", 1).json(body);
            // Any text may be a group here, and not every text is a tag.
            let hex =
                |text: &Arc<str>| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
            match message.group.as_ref() {
                Some(group) => event.tag("group", hex(group)),
                None => event,
            }
        };
        Box::pin(async move {
            let append = Append::new(messages.iter().map(event).collect(), None).unwrap();
            let last = engine.append(append).await.unwrap().get();
            let accepted = messages.len() as u64;
            let mut names = self.names.lock();
            for (position, published) in (last + 1 - accepted..).zip(messages) {
                names.insert(published.message.id.to_string(), format!("{QUEUE}:{position}"));
            }
            Ok(Published { accepted, duplicates: 0 })
        })
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let (mut engine, source) = self.open.take().unwrap();
            drop(source);
            if let Some(folder) = &self.folder {
                drop(engine);
                engine = Arc::new(reopened(file(folder)).await);
            }
            let source = opened(&engine, self.visibility, &self.names).await;
            self.open = Some((engine, source));
        })
    }
}

/// A source of events whose messages are what was published.
struct Translated {
    source: EventsSource<Message>,
    names: Names,
}

impl Translated {
    fn ours(&self, id: &str) -> String {
        self.names.lock().get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    fn theirs(&self, id: &str) -> Arc<str> {
        let names = self.names.lock();
        names.iter().find(|(_, ours)| **ours == *id).unwrap().0.as_str().into()
    }
}

/// What was published, out of what is delivered of its event.
fn published(message: Message) -> Result<Message, Malformed> {
    let payload: serde_json::Value = serde_json::from_str(&message.payload.unwrap()).unwrap();
    let body = payload["data"].as_str().unwrap();
    wire::parse(body.as_bytes()).map(|incoming| incoming.message)
}

impl Source for Translated {
    fn profile(&self) -> Profile {
        Source::<Message>::profile(&self.source)
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        let received = self.source.receive(demand);
        let translated = |delivery: Delivery| Delivery {
            message: delivery.message.and_then(published),
            ..delivery
        };
        Box::pin(async move { Ok(received.await?.into_iter().map(translated).collect()) })
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        self.source.settle(settle)
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        self.source.extend(receipts)
    }

    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        self.source.rest(rests)
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        self.source.depth()
    }

    fn health(&self) -> Result<(), SourceError> {
        self.source.health()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.source.stop()
    }

    fn put_back(&self, messages: Vec<PutBack>) -> BoxFuture<'_, Result<(), PublishError>> {
        self.source.put_back(messages)
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        Box::pin(async move {
            let found = self.source.find(&self.ours(id)).await?;
            Ok(found.map(|found| match found.state {
                FoundState::Behind(head) => {
                    Found { state: FoundState::Behind(self.theirs(&head)), ..found }
                }
                _ => found,
            }))
        })
    }

    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discarded, SourceError>> {
        Box::pin(async move { self.source.discard(&self.ours(id)).await })
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.source.keep_order(order);
    }
}
