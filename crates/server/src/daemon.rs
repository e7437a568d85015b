//! The daemon: a router on the state file, kept as the configuration wants it.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use parking_lot::{Mutex as Lock, RwLock};
use sluicegate_dispatch::{
    Publication, PublishError, Published, Router, ShutdownReport, SourceError,
};
use sluicegate_executors::Breakers;
use sluicegate_executors::http::{HttpExecutor, OwnAddresses};
use sluicegate_sources::sqlite::{OpenError, Store};
use sluicegate_tasks::{Context, Invalid, TaskGroup};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::agents::AgentPool;
use crate::alerts::Alerter;
use crate::apply::{Applied, InEffect};
use crate::event_log::EventLog;
use crate::failing::Told;
use crate::fetch::Fetch;
use crate::health::{Health, Outages, Probe, Pulse, StateFile, assess};
use crate::names::Names;
use crate::record::Record;
use crate::settings::{QueueUri, Settings, UnknownPool};
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
    /// Where its API is served: no message may call it there.
    own: OwnAddresses,
    pub(crate) record: Arc<Record>,
    pub(crate) fetch: Fetch,
    pub(crate) pulse: Pulse,
    pub(crate) alerter: Alerter,
    pub(crate) agents: AgentPool,
    pub(crate) events: EventLog,
    /// Which queues are down.
    pub(crate) outages: Lock<Outages>,
    /// Which groups were said to be stuck.
    pub(crate) stuck_groups: Lock<Told>,
    /// Which pools were said to have messages that fail.
    pub(crate) failing_pools: Lock<Told>,
    /// Whether the state file can be written.
    pub(crate) state: Lock<StateFile>,
    /// Held while configuration is applied: one at a time.
    pub(crate) applied: Mutex<Applied>,
    /// What was last applied, for those who only look.
    pub(crate) in_effect: RwLock<Arc<InEffect>>,
    /// Ends when the daemon does: at the beginning of its end.
    pub(crate) cx: Context,
    /// Ends when there is nothing more to tell.
    over: Context,
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
    /// Agents cannot run.
    Agents(String),
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
    /// The queue is configured and could not be opened yet.
    NotOpen {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// Some of them ask for pools that do not exist, and that is not wanted.
    UnknownPools(Vec<UnknownPoolOf>),
    /// The queue did not take them.
    Refused(PublishError),
}

/// A message that asks for a pool that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPoolOf {
    /// Its place among those that were to be published.
    pub index: usize,
    /// The message.
    pub id: Arc<str>,
    /// The pool it asks for.
    pub pool: Arc<str>,
    /// What could be meant.
    pub instead: String,
}

/// How long receivers have at a shutdown, of the time there is in all.
const RECEIVERS: Duration = Duration::from_secs(25);
/// How long chores have to notice a shutdown.
const CHORES: Duration = Duration::from_millis(500);

/// What goes on, is nowhere else among what health looks at, and is an issue.
const INCIDENTS: [Code; 7] = [
    Code::ConfigInvalid,
    Code::GroupBlocked,
    Code::GroupStuck,
    Code::MessagesFailing,
    Code::BreakerOpen,
    Code::AgentNotStarted,
    Code::AgentsFailing,
];

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
        let own = OwnAddresses::default();
        let http = HttpExecutor::new(convert::http(&settings.http, own.clone()), record.clone())
            .map_err(StartError::Settings)?;
        let http = Arc::new(http);
        let router = Router::new(http.clone(), Arc::new(store.clone()), record.clone())
            .map_err(StartError::Settings)?;
        let cx = Context::new();
        let fetch = Fetch::new();
        let alerter = Alerter::new(&settings.alerts, record.clone(), fetch.clone())
            .map_err(StartError::Settings)?;
        let inner = Inner {
            loaded: RwLock::new(Loaded::new(settings)),
            file,
            router,
            store,
            http,
            own,
            record,
            fetch,
            pulse: Pulse::new(),
            alerter,
            agents: AgentPool::default(),
            events: EventLog::default(),
            outages: Lock::default(),
            stuck_groups: Lock::default(),
            failing_pools: Lock::default(),
            state: Lock::default(),
            applied: Mutex::default(),
            in_effect: RwLock::default(),
            chores: TaskGroup::builder("chores", chores::COUNT)
                .service_context(cx.clone())
                .build()
                .map_err(StartError::Settings)?,
            cx,
            over: Context::new(),
            started: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Asks for the first configuration, applies it, and begins to receive and to keep house.
    ///
    /// # Errors
    /// When the first configuration could not be had in all tries. A [`shutdown`](Daemon::shutdown)
    /// then sees to it that whoever is to be alerted is.
    pub async fn begin(&self) -> Result<(), StartError> {
        self.inner.alerter.start().await;
        Box::pin(self.begin_agents()).await?;
        Box::pin(self.begin_events()).await;
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
            // Boxed: whoever embeds a daemon should not run into the compiler's limits.
            Box::pin(self.apply(documents)).await;
        }
        self.inner.started.store(true, Ordering::Release);
        self.feel();
        chores::start(self, &self.inner.chores).await;
        Ok(())
    }

    /// Ends the daemon in the paper's four steps: chores, receivers, pools, what is left. Agents end beside the
    /// router, for as long as their requests may run. Alerts come last, and have a few seconds.
    pub async fn shutdown(&self) -> ShutdownReport {
        self.inner.ending.store(true, Ordering::Release);
        let now = Instant::now();
        let drain = self.settings().server.drain;
        self.inner.cx.cancel();
        drop(self.inner.chores.drain(now + CHORES).await);
        let stop_by = now + RECEIVERS.min(drain);
        let router = self.inner.router.shutdown(stop_by, now + drain);
        let (report, ()) =
            self.alive(async { tokio::join!(router, Box::pin(self.end_agents())) }).await;
        if report.unsettled > 0 {
            let warning = sluicegate_dispatch::Severity::Warning;
            let words = format!("{} messages could not be handed back", report.unsettled);
            self.inner.record.raise(Code::ShutdownCleanupErrors, warning, "router", words);
        }
        self.inner.alerter.finish().await;
        self.inner.over.cancel();
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
        // Looked at first: a queue that is opened meanwhile is not unknown.
        let in_effect = self.in_effect();
        let router = &self.inner.router;
        let name: Arc<str> = match queue {
            Some(queue) => queue.into(),
            None => match &in_effect.with_not_open(router.queues())[..] {
                [only] => Arc::clone(only),
                _ => "default".into(),
            },
        };
        let Some(source) = router.source(&name) else {
            let name = name.to_string();
            return Err(match in_effect.not_open.get(&name) {
                Some(queue) => NotPublished::NotOpen { name, why: queue.words().to_owned() },
                None => NotPublished::UnknownQueue { name, known: self.queue_names() },
            });
        };
        self.refuse_unknown_pools(&messages)?;
        source.publish(messages).await.map_err(NotPublished::Refused)
    }

    /// The queues that there are, and those that are to be opened.
    pub(crate) fn queue_names(&self) -> Vec<Arc<str>> {
        // Looked at first: one that is opened meanwhile is in both, not in none.
        let in_effect = self.in_effect();
        in_effect.with_not_open(self.inner.router.queues())
    }

    fn refuse_unknown_pools(&self, messages: &[Publication]) -> Result<(), NotPublished> {
        if self.settings().router.unknown_pool != UnknownPool::Refuse {
            return Ok(());
        }
        let router = &self.inner.router;
        let names = LazyCell::new(|| Names::of_pools(router));
        let unknown = |(index, publication): (usize, &Publication)| {
            let message = &publication.message;
            if router.pool(&message.pool).is_some() {
                return None;
            }
            let (id, pool) = (Arc::clone(&message.id), Arc::clone(&message.pool));
            let instead = names.instead_of(&pool)?;
            Some(UnknownPoolOf { index, id, pool, instead })
        };
        let unknown: Vec<_> = messages.iter().enumerate().filter_map(unknown).collect();
        if unknown.is_empty() { Ok(()) } else { Err(NotPublished::UnknownPools(unknown)) }
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

    /// Says where its API is served: no message calls it there from now on. Whoever binds the listener says so before
    /// [`begin`](Daemon::begin), so that none is called before that.
    pub fn listens_at(&self, bound: SocketAddr) {
        self.inner.own.add(bound);
    }

    /// Where its API is served.
    pub(crate) fn own_addresses(&self) -> &OwnAddresses {
        &self.inner.own
    }

    /// The file that the settings came from.
    #[must_use]
    pub fn file(&self) -> Option<String> {
        self.inner.file.as_ref().map(|file| file.display().to_string())
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

    /// Ends when nothing more happens: what waits for events waits under it.
    pub(crate) fn over(&self) -> &Context {
        &self.inner.over
    }

    /// Ends when the daemon does.
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

    /// What was last applied.
    pub(crate) fn in_effect(&self) -> Arc<InEffect> {
        Arc::clone(&self.inner.in_effect.read())
    }

    /// The names of the queues in the state file.
    pub(crate) fn embedded_queues(&self) -> BTreeSet<String> {
        let in_effect = self.in_effect();
        let queues = in_effect.layout.queues.values();
        let embedded = queues.filter(|queue| matches!(queue.uri, QueueUri::Sqlite { .. }));
        embedded.map(|queue| queue.name.clone()).collect()
    }

    /// Why the state file cannot be written, if so.
    pub(crate) fn state_trouble(&self) -> Option<String> {
        let known = self.inner.state.lock().trouble().map(str::to_owned);
        known.or_else(|| self.inner.store.failure())
    }

    /// Looks how the router gets on.
    pub(crate) fn feel(&self) {
        let longest = crate::health::longest_attempt(self.settings().http.timeout);
        let seen = crate::health::Seen::of(&self.inner.router, &self.inner.record.rests);
        self.inner.pulse.feel(Instant::now(), seen, longest);
        // Looked at often, it is known since when.
        self.stalled_agents();
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
        inputs.state = self.state_trouble();
        inputs.queues.extend(self.in_effect().not_opened());
        inputs.events = self.event_state();
        inputs.stalls.extend(self.stalled_agents());
        if probe == Probe::Overall {
            let open = INCIDENTS.into_iter().flat_map(|code| self.record().warnings.open(code));
            inputs.incidents = open.map(|warning| warning.message.to_string()).collect();
        }
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
            Self::Agents(why) => write!(f, "agents: {why}"),
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
            Self::NotOpen { name, why } => write!(f, "the queue `{name}` is not open yet: {why}"),
            Self::UnknownPools(unknown) => {
                write!(f, "{} messages ask for pools that do not exist", unknown.len())
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
