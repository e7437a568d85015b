//! The router: pools, queues, and the ways between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use sluicegate_tasks::{Context, Invalid, Running};
use tokio::time::Instant;

use crate::pools::Pools;
use crate::queue::{self, Queue, QueueSettings, RouterQueue};
use crate::routed::InFlightMessage;
use crate::run::Runner;
use crate::{
    DEFAULT_POOL, Executor, Observer, ParkedStore, PoolSettings, Reason, Settlement, Source,
    UnknownPool,
};

/// Routes messages from queues through pools to an executor.
///
/// Clones are the same router. It does its work in the background until
/// [`shutdown`](Router::shutdown).
#[derive(Clone, Debug)]
pub struct Router {
    pub(crate) pools: Arc<Pools>,
    pub(crate) queues: Arc<Queues>,
}

/// The queues of a router.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_name: RwLock<BTreeMap<Arc<str>, Arc<Queue>>>,
    /// Removed, and not quite gone.
    leaving: Mutex<Vec<Arc<Queue>>>,
}

/// Why a message could not be acknowledged by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AckError {
    /// It is not here.
    NotHere,
    /// It runs, or is being settled.
    Busy,
}

/// How a shutdown went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Queues whose receivers did not stop in time.
    pub stuck_queues: Vec<Arc<str>>,
    /// What still ran when it was cancelled and did not end.
    pub abandoned: Vec<Running>,
    /// Messages that could be neither settled nor handed back. Their sources deliver them again.
    pub unsettled: u64,
}

/// How long the last settlements may take, after everything else is over.
const LAST_SETTLEMENTS: std::time::Duration = std::time::Duration::from_secs(5);

impl Router {
    /// A router without pools and queues.
    ///
    /// # Errors
    /// None that is known; the kernel checks its limits.
    pub fn new(
        executor: Arc<dyn Executor>,
        parked: Arc<dyn ParkedStore>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Invalid> {
        let runner = Runner { executor, parked, observer, cx: Context::new() };
        Ok(Self { pools: Pools::new(runner)?, queues: Arc::default() })
    }

    /// Adds a pool, or changes one, at once and for what waits in it.
    ///
    /// # Errors
    /// Names the setting that cannot work; then nothing changes.
    pub fn set_pool(&self, settings: PoolSettings) -> Result<(), Invalid> {
        let code = Arc::clone(&settings.code);
        let is_new = self.pools.get(&code).is_none();
        self.pools.set(settings)?;
        if is_new {
            self.bring_home(&code);
        }
        self.pools_changed();
        Ok(())
    }

    /// What waits in the default pool goes back, to come again for its own: docs/rules.md#pool-5.
    fn bring_home(&self, code: &Arc<str>) {
        for (_, tracked) in self.queues.in_flight() {
            let Some(place) = tracked.entry.standing().place else { continue };
            if &*place.code != DEFAULT_POOL || tracked.entry.message.pool != *code {
                continue;
            }
            let item = self.pools.at(&place).and_then(|pool| pool.withdraw(place.item));
            if let Some(item) = item {
                item.held.hand_back(std::time::Duration::ZERO, Reason::Draining);
            }
        }
    }

    /// What becomes of messages whose pool does not exist.
    pub fn set_unknown_pool(&self, unknown_pool: UnknownPool) {
        self.pools.set_unknown_pool(unknown_pool);
    }

    /// The settings of a pool.
    #[must_use]
    pub fn pool(&self, code: &str) -> Option<Arc<PoolSettings>> {
        self.pools.get(code).map(|pool| pool.settings())
    }

    /// The codes of all pools that are not leaving.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<str>> {
        self.pools.all().keys().cloned().collect()
    }

    /// Removes a pool: what waits in it goes back, what runs goes on, and it is gone when that has
    /// ended. `false` if there is none.
    pub fn remove_pool(&self, code: &str) -> bool {
        let removed = self.pools.remove(code);
        if removed {
            self.pools_changed();
        }
        removed
    }

    /// Adds a queue and begins to receive from it. `false` if there is one of that name.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub async fn add_queue(
        &self,
        name: impl Into<Arc<str>>,
        settings: QueueSettings,
        source: Arc<dyn Source>,
    ) -> Result<bool, Invalid> {
        let name = name.into();
        let before = self.queues.leaving_of(&name);
        source.keep_order(&self.pools.order());
        let queue = queue::new(Arc::clone(&name), settings, source, &self.pools, before)?;
        {
            let mut queues = self.queues.by_name.write();
            if queues.contains_key(&name) {
                return Ok(false);
            }
            queues.insert(name, Arc::clone(&queue));
        }
        // Pools may have changed meanwhile.
        queue.source().keep_order(&self.pools.order());
        queue.start().await;
        Ok(true)
    }

    /// Removes a queue: nothing more is received, and what is here is finished and settled. `false`
    /// if there is none.
    pub async fn remove_queue(&self, name: &str, deadline: Instant) -> bool {
        let queue = {
            let mut queues = self.queues.by_name.write();
            let Some(queue) = queues.remove(name) else { return false };
            self.queues.leaving.lock().push(Arc::clone(&queue));
            queue
        };
        queue.stop(deadline).await;
        true
    }

    /// The names of the queues, in order; those that are leaving are not among them.
    #[must_use]
    pub fn queues(&self) -> Vec<Arc<str>> {
        self.queues.by_name.read().keys().cloned().collect()
    }

    /// The source of a queue.
    #[must_use]
    pub fn source(&self, queue: &str) -> Option<Arc<dyn Source>> {
        self.queues.by_name.read().get(queue).map(|queue| queue.source())
    }

    /// The queues from which nothing, not even nothing, has been heard for a minute.
    #[must_use]
    pub fn stalled_queues(&self) -> Vec<Arc<str>> {
        let queues = self.queues.by_name.read();
        let stalled = queues.values().filter(|queue| queue.is_stalled());
        stalled.map(|queue| Arc::clone(queue.name())).collect()
    }

    /// Goes on with a new source in place of one that has stalled. `false` if there is no such queue.
    ///
    /// # Errors
    /// None that is known; the kernel checks its limits.
    pub async fn restart_queue(
        &self,
        name: &str,
        source: Arc<dyn Source>,
    ) -> Result<bool, Invalid> {
        let Some(queue) = self.queues.by_name.read().get(name).cloned() else { return Ok(false) };
        source.keep_order(&self.pools.order());
        queue.restart(source).await?;
        Ok(true)
    }

    /// Forgets removed pools and queues that have ended. Returns how many are left.
    pub async fn clean_up(&self) -> usize {
        if self.pools.forget_gone() {
            self.pools_changed();
        }
        let done: Vec<Arc<Queue>> = {
            let is_done =
                |queue: &mut Arc<Queue>| queue.is_stopped() && queue.owed.in_flight.is_empty();
            self.queues.leaving.lock().extract_if(.., is_done).collect()
        };
        for queue in done {
            queue.close(Instant::now()).await;
        }
        if self.pools.is_moving() && self.all_at_home() {
            self.pools.settled_down();
        }
        self.pools.leaving().len() + self.queues.leaving.lock().len()
    }

    /// Whether every message is in the pool that it would go to now.
    fn all_at_home(&self) -> bool {
        let is_home = |tracked: &InFlightMessage| {
            let pool = self.pools.takes(&tracked.entry.message.pool);
            let place = tracked.entry.standing().place;
            place.is_none_or(|place| pool.is_some_and(|pool| pool.id == place.pool))
        };
        let is_quiet = |queue: &Arc<Queue>| queue.recipient.window.is_quiet();
        self.pools.leaving().is_empty()
            && self.queues.all().iter().all(is_quiet)
            && self.queues.in_flight().iter().all(|(_, tracked)| is_home(tracked))
    }

    /// How many messages are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queues.all().iter().map(|queue| queue.owed.in_flight.len()).sum()
    }

    /// How many messages pools and windows could hold: more in flight is a leak.
    #[must_use]
    pub fn room(&self) -> u64 {
        let window = |queue: &Arc<Queue>| {
            let QueueSettings { connections, max_messages, window } = queue.recipient.settings;
            (window + max_messages * connections as usize) as u64
        };
        self.pools.room() + self.queues.all().iter().map(window).sum::<u64>()
    }

    /// Settles a message as done that waits here, by hand.
    ///
    /// # Errors
    /// It is not here, or not waiting.
    pub fn ack(&self, id: &str) -> Result<(), AckError> {
        let (queue, tracked) = self.queues.find(id).ok_or(AckError::NotHere)?;
        let item = match tracked.entry.standing().place {
            Some(place) => self.pools.at(&place).and_then(|pool| pool.withdraw(place.item)),
            None => queue.recipient.window.withdraw(&tracked),
        };
        let item = item.ok_or(AckError::Busy)?;
        if self.pools.runner.is_replayed(&tracked) {
            item.held.settle_replayed(());
        } else {
            item.held.settle(Settlement::Ack);
        }
        Ok(())
    }

    /// Ends the router in order: stops receiving, hands back what waits, lets what runs end, settles.
    /// Receivers have until `stop_by`, running messages until `drain_by`; then they are cancelled.
    pub async fn shutdown(&self, stop_by: Instant, drain_by: Instant) -> ShutdownReport {
        let mut report = ShutdownReport::default();
        let queues = self.queues.all();
        let stopped = join_all(queues.iter().map(|queue| queue.stop(stop_by))).await;
        for (queue, stopped) in queues.iter().zip(stopped) {
            if !stopped {
                report.stuck_queues.push(Arc::clone(queue.name()));
            }
        }
        self.pools.close();
        // Nothing comes into a window any more.
        for item in queues.iter().flat_map(|queue| queue.recipient.window.take_all()) {
            item.held.hand_back(std::time::Duration::ZERO, Reason::Draining);
        }
        report.abandoned = self.pools.drain(drain_by).await;
        let settle_by = drain_by.max(Instant::now() + LAST_SETTLEMENTS);
        for left in join_all(queues.iter().map(|queue| queue.close(settle_by))).await {
            report.unsettled += left;
        }
        report
    }

    fn pools_changed(&self) {
        for queue in self.queues.all() {
            RouterQueue::pools_changed(&queue);
        }
    }
}

impl Queues {
    pub(crate) fn all(&self) -> Vec<Arc<Queue>> {
        let mut all: Vec<Arc<Queue>> = self.by_name.read().values().cloned().collect();
        all.extend(self.leaving.lock().iter().cloned());
        all
    }

    pub(crate) fn is_leaving(&self, queue: &Arc<Queue>) -> bool {
        self.leaving.lock().iter().any(|leaving| Arc::ptr_eq(leaving, queue))
    }

    fn leaving_of(&self, name: &Arc<str>) -> Vec<Arc<Queue>> {
        self.leaving.lock().iter().filter(|queue| queue.name() == name).cloned().collect()
    }

    /// All messages that are here, oldest first within their queue.
    pub(crate) fn in_flight(&self) -> Vec<(Arc<Queue>, InFlightMessage)> {
        let of = |queue: Arc<Queue>| {
            let all = queue.owed.in_flight.all();
            all.into_iter().map(move |tracked| (Arc::clone(&queue), tracked))
        };
        self.all().into_iter().flat_map(of).collect()
    }

    pub(crate) fn find(&self, id: &str) -> Option<(Arc<Queue>, InFlightMessage)> {
        self.all()
            .into_iter()
            .find_map(|queue| queue.owed.in_flight.find(id).map(|tracked| (queue, tracked)))
    }
}

impl std::fmt::Display for AckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotHere => "no message of that id is in flight",
            Self::Busy => "the message is running or being settled",
        })
    }
}

impl std::error::Error for AckError {}
