//! The daemon: a router on the state file, kept as the configuration wants it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use parking_lot::RwLock;
use sluicegate_dispatch::{
    Publication, PublishError, Published, Router, ShutdownReport, SourceError,
};
use sluicegate_executors::Breakers;
use sluicegate_executors::http::HttpExecutor;
use sluicegate_sources::sqlite::{OpenError, Store};
use sluicegate_tasks::{Context, Invalid, TaskGroup};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::alerts::Told;
use crate::apply::Applied;
use crate::fetch::Fetch;
use crate::health::{Health, Probe, Pulse, assess};
use crate::record::Record;
use crate::settings::Settings;
use crate::sync::{ConfigSyncer, SyncFailed};
use crate::time::Wall;
use crate::warnings::Code;
use crate::{chores, convert};

/// A daemon. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    loaded: RwLock<Loaded>,
    /// Where the settings came from, for a reload.
    pub(crate) file: Option<PathBuf>,
    pub(crate) router: Router,
    pub(crate) store: Store,
    http: Arc<HttpExecutor>,
    pub(crate) record: Arc<Record>,
    pub(crate) fetch: Fetch,
    pub(crate) pulse: Pulse,
    pub(crate) told: Told,
    /// Held while configuration is applied: one at a time.
    pub(crate) applied: Mutex<Applied>,
    /// Where the queues were when that was last looked at.
    uris: RwLock<BTreeMap<String, String>>,
    /// Ends when the daemon does.
    pub(crate) cx: Context,
    chores: TaskGroup,
    started: AtomicBool,
    ending: AtomicBool,
}

/// The settings, and what is made of them once for all who ask.
#[derive(Clone, Debug)]
struct Loaded {
    settings: Arc<Settings>,
    /// The private ranges that targets may be in.
    allowed: Arc<[IpNet]>,
}

impl Loaded {
    fn new(settings: Settings) -> Self {
        let allowed = convert::allowed(&settings.http).into();
        Self { settings: Arc::new(settings), allowed }
    }
}

/// Why a daemon could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The state file could not be opened.
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: OpenError,
    },
    /// A setting cannot work.
    Settings(Invalid),
    /// The first configuration could not be had.
    Sync(SyncFailed),
}

/// Why messages were not taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotPublished {
    /// The daemon is ending.
    ShuttingDown,
    /// There is no queue of that name.
    UnknownQueue {
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<Arc<str>>,
    },
    /// The queue did not take them.
    Refused(PublishError),
}

/// How long receivers have at a shutdown, of the time there is in all.
const RECEIVERS: Duration = Duration::from_secs(25);
/// How long chores have to notice a shutdown.
const CHORES: Duration = Duration::from_millis(500);

impl Daemon {
    /// Opens the state file and makes a router. Nothing is received before
    /// [`begin`](Daemon::begin).
    ///
    /// # Errors
    /// Says what could not be opened or used.
    pub async fn open(settings: Settings, file: Option<PathBuf>) -> Result<Self, StartError> {
        let path = settings.state.path.clone();
        let store =
            Store::open_serving(&path).await.map_err(|cause| StartError::Store { path, cause })?;
        let record = Record::new(Arc::new(Wall));
        let http = HttpExecutor::new(convert::http(&settings.http), record.clone())
            .map_err(StartError::Settings)?;
        let http = Arc::new(http);
        let router = Router::new(http.clone(), Arc::new(store.clone()), record.clone())
            .map_err(StartError::Settings)?;
        let cx = Context::new();
        let inner = Inner {
            loaded: RwLock::new(Loaded::new(settings)),
            file,
            router,
            store,
            http,
            record,
            fetch: Fetch::new(),
            pulse: Pulse::new(),
            told: Told::default(),
            applied: Mutex::default(),
            uris: RwLock::default(),
            chores: TaskGroup::builder("chores", chores::COUNT)
                .service_context(cx.clone())
                .build()
                .map_err(StartError::Settings)?,
            cx,
            started: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Asks for the first configuration, applies it, and begins to receive and to keep house.
    ///
    /// # Errors
    /// When the first configuration could not be had in all tries.
    pub async fn begin(&self) -> Result<(), StartError> {
        let settings = self.settings();
        if settings.router.enabled {
            let syncer = ConfigSyncer::new(self.inner.fetch.clone(), &settings.router);
            let documents = syncer
                .documents(&self.inner.cx, |failed| tracing::warn!("config sync: {failed}"))
                .await
                .inspect_err(|failed| {
                    let critical = sluicegate_dispatch::Severity::Critical;
                    let words = failed.to_string();
                    self.inner.record.raise(Code::ConfigSyncFailed, critical, "config", words);
                })
                .map_err(StartError::Sync)?;
            self.apply(documents).await;
        }
        self.inner.started.store(true, Ordering::Release);
        self.feel();
        chores::start(self, &self.inner.chores).await;
        Ok(())
    }

    /// Ends the daemon in the paper's four steps: chores, receivers, pools, what is left.
    pub async fn shutdown(&self) -> ShutdownReport {
        self.inner.ending.store(true, Ordering::Release);
        let now = Instant::now();
        let drain = self.settings().server.drain;
        self.inner.cx.cancel();
        drop(self.inner.chores.drain(now + CHORES).await);
        let stop_by = now + RECEIVERS.min(drain);
        let report = self.alive(self.inner.router.shutdown(stop_by, now + drain)).await;
        if report.unsettled > 0 {
            let warning = sluicegate_dispatch::Severity::Warning;
            let words = format!("{} messages could not be handed back", report.unsettled);
            self.inner.record.raise(Code::ShutdownCleanupErrors, warning, "router", words);
        }
        report
    }

    /// Waits for something that may take long, and shows meanwhile that it is alive.
    async fn alive<T>(&self, until: impl Future<Output = T>) -> T {
        let mut until = pin!(until);
        loop {
            match timeout(chores::LEFTOVERS, until.as_mut()).await {
                Ok(done) => return done,
                Err(_) => self.feel(),
            }
        }
    }

    /// Takes messages into a queue: the one named, or the only one, or `default`.
    ///
    /// # Errors
    /// Says why none was taken in.
    pub async fn publish(
        &self,
        queue: Option<&str>,
        messages: Vec<Publication>,
    ) -> Result<Published, NotPublished> {
        if self.is_ending() {
            return Err(NotPublished::ShuttingDown);
        }
        let router = &self.inner.router;
        let name: Arc<str> = match queue {
            Some(queue) => queue.into(),
            None => match &router.queues()[..] {
                [only] => Arc::clone(only),
                _ => "default".into(),
            },
        };
        let Some(source) = router.source(&name) else {
            let (name, known) = (name.to_string(), router.queues());
            return Err(NotPublished::UnknownQueue { name, known });
        };
        source.publish(messages).await.map_err(NotPublished::Refused)
    }

    /// The settings as they were last read.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.inner.loaded.read().settings)
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        *self.inner.loaded.write() = Loaded::new(settings);
    }

    /// The private ranges that targets may be in.
    pub(crate) fn allowed(&self) -> Arc<[IpNet]> {
        Arc::clone(&self.inner.loaded.read().allowed)
    }

    /// The router.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.inner.router
    }

    /// The state file.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Warnings, metrics and the feed.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.inner.record
    }

    /// The breakers of targets.
    #[must_use]
    pub fn breakers(&self) -> &Breakers {
        self.inner.http.breakers()
    }

    /// Ends when the daemon does: what waits for events waits under it.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.inner.cx
    }

    /// What it does now and then, by name.
    #[must_use]
    pub fn chores(&self) -> Vec<String> {
        self.inner.chores.running().into_iter().map(|running| running.name).collect()
    }

    /// Whether it is ending.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.inner.ending.load(Ordering::Acquire)
    }

    /// Where the queues are that were asked for, by their names, without credentials. While
    /// configuration is being applied it is what was known before.
    pub(crate) fn queue_uris(&self) -> BTreeMap<String, String> {
        if let Ok(applied) = self.inner.applied.try_lock() {
            *self.inner.uris.write() = applied.queue_uris();
        }
        self.inner.uris.read().clone()
    }

    /// Looks how the router gets on.
    pub(crate) fn feel(&self) {
        let longest = crate::health::longest_attempt(self.settings().http.timeout);
        let seen = crate::health::Seen::of(&self.inner.router, &self.inner.record.rests);
        self.inner.pulse.feel(Instant::now(), seen, longest);
    }

    /// How it is.
    #[must_use]
    pub fn health(&self, probe: Probe) -> Health {
        // Whether it lives is said by those who feel its pulse, not by whoever asks.
        if probe != Probe::Live && self.inner.started.load(Ordering::Acquire) {
            self.feel();
        }
        let mut inputs = self.inner.pulse.inputs(Instant::now());
        inputs.started = self.inner.started.load(Ordering::Acquire);
        inputs.ending = self.is_ending();
        assess(probe, &inputs)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon")
            .field("settings", &self.loaded.read().settings)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store { path, cause } => {
                write!(f, "state file {} cannot be opened: {cause}", path.display())
            }
            Self::Settings(invalid) => write!(f, "{invalid}"),
            Self::Sync(failed) => write!(f, "the first configuration could not be had: {failed}"),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Display for NotPublished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShuttingDown => f.write_str("the daemon is shutting down"),
            Self::UnknownQueue { name, known } => {
                let known: Vec<&str> = known.iter().map(|name| &**name).collect();
                write!(f, "there is no queue `{name}`; there are: {}", known.join(", "))
            }
            Self::Refused(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for NotPublished {}

impl From<SourceError> for NotPublished {
    fn from(error: SourceError) -> Self {
        Self::Refused(PublishError::Source(error))
    }
}
