//! Applying configuration: from the file, from a reload, from a sync. One at a time, and what fails
//! fails alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluicegate_dispatch::{Depth, Severity, Source, SourceError};
use tokio::time::Instant;

use crate::brokers;
use crate::convert;
use crate::daemon::Daemon;
use crate::health::QueueState;
use crate::plan::{Layout, Plan, PoolLimits, plan};
use crate::settings::synced::Synced;
use crate::settings::{Fixed, Problems, QueueSettings, QueueUri, Settings, changes};
use crate::sync::{ConfigSyncer, SyncFailed};
use crate::warnings::Code;

/// What was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// What was put into effect of it.
    layout: Layout,
    /// The last good documents of the endpoints.
    documents: Vec<Synced>,
    /// Queues that are asked for and not open.
    not_open: BTreeMap<String, NotOpen>,
}

/// A queue that is asked for and not open.
#[derive(Clone, Debug)]
pub(crate) struct NotOpen {
    settings: QueueSettings,
    /// Why it could not be opened; `None` while that is first tried.
    pub(crate) why: Option<String>,
}

/// What was last put into effect, for those who only look: nobody waits for what is being applied.
#[derive(Debug, Default)]
pub(crate) struct InEffect {
    /// Pools and queues, as they were asked for.
    pub(crate) layout: Layout,
    /// The documents that were merged over the file.
    pub(crate) documents: Vec<Synced>,
    /// Queues that are asked for and not open, by name. One may have been opened since.
    pub(crate) not_open: BTreeMap<String, NotOpen>,
}

impl NotOpen {
    /// Why it is not.
    pub(crate) fn words(&self) -> &str {
        self.why.as_deref().unwrap_or("it is being opened")
    }
}

impl InEffect {
    /// Where a queue is, without credentials.
    pub(crate) fn queue_uri(&self, name: &str) -> Option<String> {
        self.layout.queues.get(name).map(|queue| queue.uri.to_string())
    }

    /// The queues of the state file that are asked for, by what they are called there.
    pub(crate) fn stored_queues(&self) -> BTreeSet<&str> {
        let not_open = self.not_open.values().map(|queue| &queue.settings);
        let all = self.layout.queues.values().chain(not_open);
        all.filter_map(|settings| match &settings.uri {
            QueueUri::Sqlite { queue } => Some(queue.as_str()),
            _ => None,
        })
        .collect()
    }

    /// These queues and those that are not open, by name.
    pub(crate) fn with_not_open(&self, open: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let not_open = self.not_open.keys().map(|name| Arc::from(name.as_str()));
        let names: BTreeSet<Arc<str>> = open.into_iter().chain(not_open).collect();
        names.into_iter().collect()
    }

    /// The queues that could not be opened, for health.
    pub(crate) fn not_opened(&self) -> Vec<QueueState> {
        let failed = self.not_open.iter().filter(|(_, queue)| queue.why.is_some());
        let state = |(name, queue): (&String, &NotOpen)| QueueState {
            name: name.as_str().into(),
            connected: false,
            trouble: queue.why.clone(),
        };
        failed.map(state).collect()
    }
}

/// What became of a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApplyReport {
    /// Pools that were added or changed.
    pub set_pools: Vec<Arc<str>>,
    /// Pools that were removed.
    pub removed_pools: Vec<Arc<str>>,
    /// Queues that were added, or replaced.
    pub added_queues: Vec<String>,
    /// Queues that were removed, or replaced.
    pub removed_queues: Vec<String>,
    /// Whether the settings of agents changed.
    pub agents: bool,
    /// What could not be put into effect, and why. The rest was.
    pub issues: Vec<String>,
    /// Settings that differ and need a restart.
    pub fixed: Vec<Fixed>,
}

/// Why a reload changed nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotReloaded {
    /// The daemon was started without a file.
    NoFile,
    /// The file is wrong.
    Problems(Problems),
}

impl Daemon {
    /// Reads the file again and applies what can change live.
    ///
    /// # Errors
    /// When there is no file, or it is wrong: then nothing changes.
    pub async fn reload(&self) -> Result<ApplyReport, NotReloaded> {
        let file = self.inner.file.as_deref().ok_or(NotReloaded::NoFile)?;
        let name = file.display().to_string();
        let new = Settings::load(file).map_err(|problems| {
            let words = format!("the file was not read again: {}", problems.summary());
            self.inner.record.raise(Code::ConfigInvalid, Severity::Error, &name[..], words);
            tracing::error!(target: "sluicegate", "not reloaded: {problems}");
            NotReloaded::Problems(problems)
        })?;
        self.inner.record.resolve(Code::ConfigInvalid, &name);
        let fixed = changes(&self.settings(), &new);
        let documents = self.inner.applied.lock().await.documents.clone();
        // What needs a restart stays as it is, whatever the file says by now.
        let mut live = Settings::clone(&self.settings());
        live.pools = new.pools;
        live.queues = new.queues;
        live.router.max_pools = new.router.max_pools;
        live.router.pool_warning_threshold = new.router.pool_warning_threshold;
        live.router.unknown_pool = new.router.unknown_pool;
        let (agents, issue) = self.change_agents(&new.agents);
        let changed = agents != live.agents;
        live.agents = agents;
        live.events.max_concurrent_projections = new.events.max_concurrent_projections;
        live.events.max_projection_tasks = new.events.max_projection_tasks;
        self.set_settings(live);
        let not_bound = self.bound_events().err();
        let mut report = self.apply(documents).await;
        report.issues.extend(issue);
        report.issues.extend(not_bound.map(|invalid| format!("events: {invalid}")));
        report.agents = changed;
        report.fixed = fixed;
        Ok(report)
    }

    /// Asks the endpoints again and applies what they say.
    ///
    /// # Errors
    /// When one of them gave nothing in all tries: then everybody is told, and what was applied stays.
    pub async fn sync(&self) -> Result<ApplyReport, SyncFailed> {
        let settings = self.settings();
        let syncer = ConfigSyncer::new(self.inner.fetch.clone(), &settings.router);
        let documents = syncer
            .documents(&self.inner.cx, |failed| tracing::warn!("config sync: {failed}"))
            .await
            .inspect_err(|failed| {
                let warning = Severity::Warning;
                self.inner.record.raise(
                    Code::ConfigSyncFailed,
                    warning,
                    "config",
                    failed.to_string(),
                );
            })?;
        self.inner.record.resolve(Code::ConfigSyncFailed, "config");
        Ok(self.apply(documents).await)
    }

    /// Puts the file and these documents into effect.
    pub(crate) async fn apply(&self, documents: Vec<Synced>) -> ApplyReport {
        let mut applied = self.inner.applied.lock().await;
        let settings = self.settings();
        let mut report = ApplyReport::default();
        let desired = settings.merged(&documents);
        self.left_out(&desired.left_out);
        report.issues.extend(desired.left_out.iter().cloned());
        let wanted = convert::layout(desired);
        let limits = PoolLimits {
            most: settings.router.max_pools,
            warn_from: settings.router.pool_warning_threshold,
        };
        self.inner.router.set_unknown_pool(convert::unknown_pool(settings.router.unknown_pool));
        let plan = plan(&applied.layout, &wanted, limits);
        self.pools(&plan, &mut applied.layout, &mut report);
        applied.documents = documents;
        self.expect(&plan, &mut applied);
        self.show(&applied);
        self.queues(&plan, &mut applied, &mut report).await;
        self.show(&applied);
        for issue in &report.issues {
            tracing::warn!("configuration: {issue}");
        }
        report
    }

    /// What is left out of the documents is warned of until it is mended.
    fn left_out(&self, left_out: &[String]) {
        const SUBJECT: &str = "documents";
        if left_out.is_empty() {
            self.inner.record.resolve(Code::ConfigSyncFailed, SUBJECT);
            return;
        }
        let words = format!("left out of the synced configuration: {}", left_out.join("; "));
        self.inner.record.raise(Code::ConfigSyncFailed, Severity::Warning, SUBJECT, words);
    }

    fn show(&self, applied: &Applied) {
        let (layout, documents) = (applied.layout.clone(), applied.documents.clone());
        let not_open = applied.not_open.clone();
        *self.inner.in_effect.write() = Arc::new(InEffect { layout, documents, not_open });
    }

    /// Notes which queues are to be opened: until they are, they are not unknown.
    fn expect(&self, plan: &Plan, applied: &mut Applied) {
        let mut before = std::mem::take(&mut applied.not_open);
        for settings in &plan.add_queues {
            let why = before.remove(&settings.name).and_then(|queue| queue.why);
            let queue = NotOpen { settings: settings.clone(), why };
            applied.not_open.insert(settings.name.clone(), queue);
        }
        for name in before.keys() {
            self.inner.record.resolve(Code::ConsumerRestartFailed, name);
        }
    }

    fn pools(&self, plan: &Plan, layout: &mut Layout, report: &mut ApplyReport) {
        for code in &plan.remove_pools {
            self.inner.router.remove_pool(code);
            layout.pools.remove(code);
            report.removed_pools.push(Arc::clone(code));
        }
        for settings in &plan.set_pools {
            match self.inner.router.set_pool(settings.clone()) {
                Ok(()) => {
                    layout.pools.insert(Arc::clone(&settings.code), settings.clone());
                    report.set_pools.push(Arc::clone(&settings.code));
                }
                Err(invalid) => report.issues.push(format!("pool {}: {invalid}", settings.code)),
            }
        }
        for code in &plan.refused_pools {
            let words = format!("pool {code} was not created: there are too many pools");
            self.inner.record.raise(
                Code::PoolLimit,
                Severity::Critical,
                Arc::clone(code),
                &words[..],
            );
            report.issues.push(words);
        }
        if plan.many_pools {
            let words = format!("there are {} pools", layout.pools.len());
            self.inner.record.raise(Code::PoolLimit, Severity::Warning, "pools", words);
        }
    }

    async fn queues(&self, plan: &Plan, applied: &mut Applied, report: &mut ApplyReport) {
        for name in &plan.remove_queues {
            report.issues.extend(self.stays_in_file(plan, applied, name).await);
            // Before it is waited for: whoever gives up here leaves what is true.
            applied.layout.queues.remove(name);
            self.inner.router.remove_queue(name, Instant::now() + convert::LONG).await;
            report.removed_queues.push(name.clone());
        }
        for settings in &plan.add_queues {
            match self.open_queue(settings, applied).await {
                Ok(()) => report.added_queues.push(settings.name.clone()),
                Err(words) => report.issues.push(words),
            }
        }
    }

    /// What stays in the state file when a queue is removed, and nobody receives.
    async fn stays_in_file(&self, plan: &Plan, applied: &Applied, name: &str) -> Option<String> {
        let uri = &applied.layout.queues.get(name)?.uri;
        let is_stored = matches!(uri, QueueUri::Sqlite { .. });
        if !is_stored || plan.add_queues.iter().any(|queue| queue.uri == *uri) {
            return None;
        }
        let Depth { waiting, delayed, out } = self.depth(name).await?;
        let count = waiting + delayed + out;
        (count > 0).then(|| {
            format!(
                "queue {name} was removed with {count} messages in it: they stay in the state file, and come \
                 when a queue has the uri {uri} again"
            )
        })
    }

    /// Opens a queue that is asked for. What keeps it from that is warned of until it is open.
    async fn open_queue(
        &self,
        settings: &QueueSettings,
        applied: &mut Applied,
    ) -> Result<(), String> {
        let name = settings.name.as_str();
        let Err(why) = self.add_queue(settings).await else {
            self.inner.record.resolve(Code::ConsumerRestartFailed, name);
            applied.not_open.remove(name);
            applied.layout.queues.insert(name.to_owned(), settings.clone());
            // Before anything is waited for: whoever gives up here leaves what is true.
            self.show(applied);
            self.connected(name).await;
            return Ok(());
        };
        let words = format!("queue {name} was not opened: {why}");
        let code = Code::ConsumerRestartFailed;
        self.inner.record.raise(code, Severity::Critical, name, &words[..]);
        let queue = NotOpen { settings: settings.clone(), why: Some(why) };
        applied.not_open.insert(name.to_owned(), queue);
        self.show(applied);
        Err(words)
    }

    /// Tries once more to open queues that could not be opened: someone may have helped. Returns whether some still
    /// are not open.
    pub(crate) async fn open_missing(&self) -> bool {
        let names: Vec<String> = self.in_effect().not_open.keys().cloned().collect();
        for name in names {
            // Held for one queue at a time: whoever has something new to apply need not wait for all.
            let mut applied = self.inner.applied.lock().await;
            let Some(queue) = applied.not_open.get(&name) else { continue };
            let settings = queue.settings.clone();
            // Why not is warned of there.
            self.open_queue(&settings, &mut applied).await.ok();
        }
        !self.in_effect().not_open.is_empty()
    }

    async fn add_queue(&self, settings: &QueueSettings) -> Result<(), String> {
        let source = self.source(settings).await.map_err(|error| error.to_string())?;
        let told = convert::queue(settings);
        let added = self.inner.router.add_queue(settings.name.as_str(), told, source).await;
        match added {
            Ok(true) => Ok(()),
            Ok(false) => Err("there is one of that name already".to_owned()),
            Err(invalid) => Err(invalid.to_string()),
        }
    }

    /// Notes that a queue answers, so that nobody waits for its first poll to know.
    async fn connected(&self, name: &str) {
        if self.depth(name).await.is_some() {
            self.inner.pulse.connected(&name.into());
        }
    }

    /// Makes the source of a queue.
    async fn source(&self, settings: &QueueSettings) -> Result<Arc<dyn Source>, SourceError> {
        match &settings.uri {
            QueueUri::Sqlite { queue } => {
                let window = settings.visibility_timeout;
                let source = self.inner.store.queue(queue.as_str(), window).await?;
                Ok(Arc::new(source))
            }
            QueueUri::Events(uri) => {
                let store = self.events().await.map_err(|error| SourceError::new(error.cause))?;
                Ok(brokers::open_events(settings, uri, Arc::clone(store.engine())).await?)
            }
            other => match brokers::open(settings, self.running()).await {
                Some(opened) => Ok(opened?),
                None => Err(SourceError::new(format!("{other} is not available in this build"))),
            },
        }
    }

    /// How many messages the pools run at once at most.
    fn running(&self) -> u32 {
        let in_effect = self.in_effect();
        let pools = in_effect.layout.pools.values();
        pools.fold(0, |sum, pool| sum.saturating_add(pool.concurrency))
    }

    /// Makes a new source for a queue that has stalled.
    pub(crate) async fn restart_queue(&self, name: &Arc<str>) -> Result<(), String> {
        let stalled = {
            let applied = self.inner.applied.lock().await;
            let settings = applied.layout.queues.get(&**name).cloned();
            settings.zip(self.inner.router.source(name))
        };
        let (settings, stalled) =
            stalled.ok_or_else(|| "it is not configured any more".to_owned())?;
        let source = self.source(&settings).await.map_err(|error| error.to_string())?;
        // Changed meanwhile, it has another source, perhaps at another address: then that one stays.
        let restarted = self.inner.router.restart_queue(name, &stalled, source).await;
        restarted.map(drop).map_err(|invalid| invalid.to_string())
    }
}

impl NotReloaded {
    /// Why, in a line. What is wrong with a file was said in the log, where it was read.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::NoFile => self.to_string(),
            Self::Problems(problems) => problems.summary(),
        }
    }
}

impl std::fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoFile => f.write_str("the daemon was started without a configuration file"),
            Self::Problems(problems) => write!(f, "{problems}"),
        }
    }
}

impl std::error::Error for NotReloaded {}
