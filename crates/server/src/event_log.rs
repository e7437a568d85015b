//! The event store of the daemon: in the state file or in PostgreSQL, opened once, and bounded by the settings.
//!
//! One in the state file is opened when it is first used. One in PostgreSQL is opened at the start; while it is not reached,
//! the daemon runs without it and is not ready.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex as Lock, RwLock};
use sluicegate_event_store::postgres::{self, OpenError, PostgresEngine, PostgresSettings};
use sluicegate_event_store::{
    Engine, EventStore, Invalid, Settings as Bounds, SqliteEngine, StoreStats,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::daemon::Daemon;
use crate::health::QueueState;
use crate::settings::{EventSettings, EventUrl};

/// How long nobody tries to open it again after that has failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the start waits for it.
const AT_START: Duration = Duration::from_secs(3);
/// What it is called where things that can fail are named.
pub(crate) const NAME: &str = "event store";

/// Asks a database whether events could be kept there; the state file always can.
///
/// # Errors
/// [`OpenError::Unreachable`] if nobody can tell now, and everything else if they cannot.
pub async fn probe_events(url: &EventUrl) -> Result<(), OpenError> {
    match url {
        EventUrl::State => Ok(()),
        EventUrl::Postgres(url) => postgres::probe(&PostgresSettings::parse(url.expose())?).await,
    }
}

/// The store, once it is open.
#[derive(Default)]
pub(crate) struct EventLog {
    store: RwLock<Option<EventStore>>,
    /// Held by whoever opens it; when that failed last, and why.
    opening: Mutex<Option<(Instant, EventsNotOpen)>>,
    /// What keeps it from working, as far as is known.
    trouble: Lock<Option<String>>,
}

/// Why there is no event store now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsNotOpen {
    /// What happened.
    pub cause: String,
}

impl EventLog {
    /// The store, if it is open.
    pub(crate) fn store(&self) -> Option<EventStore> {
        self.store.read().clone()
    }

    /// What it has done, and does; `None` if it is not open.
    pub(crate) fn stats(&self) -> Option<StoreStats> {
        self.store.read().as_ref().map(EventStore::stats)
    }
}

impl Daemon {
    /// The event store, which is opened if it is not.
    ///
    /// # Cancel safety
    /// Dropped, it may be open or not.
    ///
    /// # Errors
    /// It could not be opened. It is tried again, by whoever asks and, if it is in PostgreSQL, from time to time.
    pub async fn events(&self) -> Result<EventStore, EventsNotOpen> {
        let log = &self.inner.events;
        if let Some(store) = log.store() {
            return Ok(store);
        }
        let mut failed = log.opening.lock().await;
        if let Some(store) = log.store() {
            return Ok(store);
        }
        let recent = failed.as_ref().filter(|(at, _)| at.elapsed() < PAUSE);
        if let Some((_, why)) = recent {
            return Err(why.clone());
        }
        match self.open_events().await {
            Ok(store) => {
                *log.store.write() = Some(store.clone());
                *log.trouble.lock() = None;
                // What a reload has changed since then counts.
                self.bound_events().map_err(|invalid| EventsNotOpen::new(&invalid))?;
                Ok(store)
            }
            Err(why) => {
                *log.trouble.lock() = Some(why.cause.clone());
                *failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    async fn open_events(&self) -> Result<EventStore, EventsNotOpen> {
        let settings = self.settings();
        let engine: Arc<dyn Engine> = match &settings.events.url {
            EventUrl::State => {
                let file = self.inner.store.file();
                let opened = SqliteEngine::within(file).await;
                Arc::new(opened.map_err(|error| EventsNotOpen::new(&error))?)
            }
            EventUrl::Postgres(url) => {
                let address = PostgresSettings::parse(url.expose());
                let address = address.map_err(|error| EventsNotOpen::new(&error))?;
                let opened = PostgresEngine::open(address).await;
                Arc::new(opened.map_err(|error| EventsNotOpen::new(&error))?)
            }
        };
        let store = EventStore::with_engine(engine, bounds(&settings.events, Bounds::default()));
        store.map_err(|invalid| EventsNotOpen::new(&invalid))
    }

    /// Bounds the store as the settings say now.
    pub(crate) fn bound_events(&self) -> Result<(), Invalid> {
        let Some(store) = self.inner.events.store() else { return Ok(()) };
        store.change(bounds(&self.settings().events, store.settings()))
    }

    /// Opens a store on another machine, and waits a little for that.
    pub(crate) async fn begin_events(&self) {
        if matches!(self.settings().events.url, EventUrl::Postgres(_))
            && let Ok(Err(why)) = timeout(AT_START, self.events()).await
        {
            tracing::warn!(target: "sluicegate", "the event store is not open: {why}");
        }
    }

    /// Looks whether a store on another machine is there, and opens it if it is not open.
    pub(crate) async fn look_at_events(&self) {
        let log = &self.inner.events;
        let Some(store) = log.store() else {
            // Why not is kept there.
            self.events().await.ok();
            return;
        };
        let trouble = store.head().await.err().map(|error| error.to_string());
        *log.trouble.lock() = trouble;
    }

    /// How a store on another machine is, in the words of health; `None` for one in the state file.
    pub(crate) fn event_state(&self) -> Option<QueueState> {
        let EventUrl::Postgres(_) = self.settings().events.url else { return None };
        let log = &self.inner.events;
        Some(QueueState {
            name: NAME.into(),
            connected: log.store.read().is_some(),
            trouble: log.trouble.lock().clone(),
        })
    }
}

/// What bounds a store.
fn bounds(settings: &EventSettings, others: Bounds) -> Bounds {
    Bounds {
        max_concurrent_projections: settings.max_concurrent_projections,
        max_projection_tasks: settings.max_projection_tasks,
        ..others
    }
}

impl EventsNotOpen {
    fn new(cause: &dyn fmt::Display) -> Self {
        Self { cause: cause.to_string() }
    }
}

impl fmt::Display for EventsNotOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for EventsNotOpen {}
