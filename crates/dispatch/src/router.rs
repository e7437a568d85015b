//! The router: pools, queues, and the ways between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use sluicegate_tasks::{Context, Invalid, Running, TaskGroup};
use tokio::time::Instant;

use crate::in_flight::{Place, Tracked};
use crate::pool::Pool;
use crate::queue::{Queue, QueueSettings};
use crate::{
    DEFAULT_POOL, Executor, Fact, Observer, Order, Ordering, ParkedStore, PoolSettings, Settlement,
    Source, run,
};

pub(crate) type Pools = BTreeMap<Arc<str>, Arc<Pool>>;

/// Routes messages from queues through pools to an executor.
///
/// Clones are the same router. It does its work in the background until
/// [`shutdown`](Router::shutdown).
#[derive(Clone, Debug)]
pub struct Router {
    pub(crate) core: Arc<Core>,
}

/// What all parts of a router share.
pub(crate) struct Core {
    pub(crate) cx: Context,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) parked: Arc<dyn ParkedStore>,
    observer: Arc<dyn Observer>,
    pools: RwLock<Arc<Pools>>,
    /// How many messages all pools can hold, those that are leaving included.
    room: AtomicU64,
    queues: RwLock<BTreeMap<Arc<str>, Arc<Queue>>>,
    leaving: Mutex<Leaving>,
    pumps: TaskGroup,
}

/// What was removed and is not quite gone.
#[derive(Default)]
struct Leaving {
    pools: Vec<Arc<Pool>>,
    queues: Vec<Arc<Queue>>,
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

/// The most pools a router can have, draining ones included.
const MOST_POOLS: u32 = 1 << 20;

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
        let core = Core {
            cx: Context::new(),
            executor,
            parked,
            observer,
            pools: RwLock::default(),
            room: AtomicU64::new(0),
            queues: RwLock::default(),
            leaving: Mutex::default(),
            pumps: TaskGroup::new("pumps", MOST_POOLS)?,
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// Adds a pool, or changes one, at once and for what waits in it.
    ///
    /// # Errors
    /// Names the setting that cannot work; then nothing changes.
    pub fn set_pool(&self, settings: PoolSettings) -> Result<(), Invalid> {
        let known = self.core.pools().get(&settings.code).cloned();
        match known {
            Some(pool) => pool.change(settings)?,
            None => {
                self.core.add_pool(settings)?;
            }
        }
        self.core.pools_changed();
        Ok(())
    }

    /// The settings of a pool.
    #[must_use]
    pub fn pool(&self, code: &str) -> Option<Arc<PoolSettings>> {
        self.core.pools().get(code).map(|pool| pool.settings())
    }

    /// The codes of all pools that are not leaving.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<str>> {
        self.core.pools().keys().cloned().collect()
    }

    /// Removes a pool: what waits in it goes back, what runs goes on, and it is gone when that has
    /// ended. `false` if there is none.
    pub fn remove_pool(&self, code: &str) -> bool {
        let removed = {
            let mut pools = self.core.pools.write();
            let mut left = Pools::clone(&pools);
            let removed = left.remove(code);
            *pools = Arc::new(left);
            removed
        };
        let Some(pool) = removed else { return false };
        pool.close();
        self.core.leaving.lock().pools.push(pool);
        self.core.pools_changed();
        true
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
        let queue = Queue::new(Arc::clone(&name), settings, source)?;
        queue.source().keep_order(&self.core.order());
        {
            let mut queues = self.core.queues.write();
            if queues.contains_key(&name) {
                return Ok(false);
            }
            queues.insert(name, Arc::clone(&queue));
        }
        queue.start(&self.core).await;
        Ok(true)
    }

    /// Removes a queue: nothing more is received, and what is here is finished and settled. `false`
    /// if there is none.
    pub async fn remove_queue(&self, name: &str, deadline: Instant) -> bool {
        let Some(queue) = self.core.queues.write().remove(name) else { return false };
        self.core.leaving.lock().queues.push(Arc::clone(&queue));
        queue.stop(deadline).await;
        true
    }

    /// The names of the queues, in order; those that are leaving are not among them.
    #[must_use]
    pub fn queues(&self) -> Vec<Arc<str>> {
        self.core.queues.read().keys().cloned().collect()
    }

    /// The source of a queue.
    #[must_use]
    pub fn source(&self, queue: &str) -> Option<Arc<dyn Source>> {
        self.core.queues.read().get(queue).map(|queue| queue.source())
    }

    /// The queues from which nothing, not even nothing, has been heard for a minute.
    #[must_use]
    pub fn stalled_queues(&self) -> Vec<Arc<str>> {
        let queues = self.core.queues.read();
        queues.values().filter(|queue| queue.stalled()).map(|queue| queue.name.clone()).collect()
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
        let Some(queue) = self.core.queues.read().get(name).cloned() else { return Ok(false) };
        source.keep_order(&self.core.order());
        queue.restart(&self.core, source).await?;
        Ok(true)
    }

    /// Forgets removed pools and queues that have ended. Returns how many are left.
    pub async fn clean_up(&self) -> usize {
        let done: Vec<Arc<Queue>> = {
            let mut leaving = self.core.leaving.lock();
            leaving.pools.retain(|pool| !pool.is_gone());
            leaving
                .queues
                .extract_if(.., |queue| queue.is_stopped() && queue.ledger.in_flight.is_empty())
                .collect()
        };
        self.core.count_room();
        for queue in done {
            queue.close(Instant::now()).await;
        }
        let leaving = self.core.leaving.lock();
        leaving.pools.len() + leaving.queues.len()
    }

    /// How many messages are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.core.all_queues().iter().map(|queue| queue.ledger.in_flight.len()).sum()
    }

    /// How many messages pools could hold, waiting and running: more in flight is a leak.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.core.room()
    }

    /// Settles a message as done that waits here, by hand.
    ///
    /// # Errors
    /// It is not here, or not waiting.
    pub fn ack(&self, id: &str) -> Result<(), AckError> {
        let tracked = self.core.find(id).ok_or(AckError::NotHere)?;
        let place = tracked.1.standing().place.ok_or(AckError::Busy)?;
        let pool = self.core.pool_at(&place).ok_or(AckError::Busy)?;
        let item = pool.sluice.withdraw(place.item).ok_or(AckError::Busy)?;
        pool.left(&tracked.1.message);
        item.held.settle(Settlement::Ack, None, None, None);
        Ok(())
    }

    /// Ends the router in order: stops receiving, hands back what waits, lets what runs end, settles.
    /// Receivers have until `stop_by`, running messages until `drain_by`; then they are cancelled.
    pub async fn shutdown(&self, stop_by: Instant, drain_by: Instant) -> ShutdownReport {
        let mut report = ShutdownReport::default();
        let queues = self.core.all_queues();
        let stopped = join_all(queues.iter().map(|queue| queue.stop(stop_by))).await;
        for (queue, stopped) in queues.iter().zip(stopped) {
            if !stopped {
                report.stuck_queues.push(Arc::clone(&queue.name));
            }
        }
        let mut pools: Vec<Arc<Pool>> = self.core.pools().values().cloned().collect();
        pools.extend(self.core.leaving.lock().pools.iter().cloned());
        pools.iter().for_each(|pool| pool.close());
        for drained in join_all(pools.iter().map(|pool| pool.crew.drain(drain_by))).await {
            report.abandoned.extend(drained.abandoned);
        }
        // They have ended by themselves: every sluice is closed.
        drop(self.core.pumps.drain(Instant::now()).await);
        let settle_by = drain_by.max(Instant::now() + LAST_SETTLEMENTS);
        for left in join_all(queues.iter().map(|queue| queue.close(settle_by))).await {
            report.unsettled += left;
        }
        report
    }
}

/// How long the last settlements may take, after everything else is over.
const LAST_SETTLEMENTS: std::time::Duration = std::time::Duration::from_secs(5);

impl Core {
    pub(crate) fn observe(&self, fact: &Fact<'_>) {
        self.observer.observe(fact);
    }

    pub(crate) fn pools(&self) -> Arc<Pools> {
        Arc::clone(&self.pools.read())
    }

    /// The pool for messages that have none, made when it is first needed: docs/rules.md#route-2.
    pub(crate) fn default_pool(self: &Arc<Self>) -> Arc<Pool> {
        if let Some(pool) = self.pools().get(DEFAULT_POOL) {
            return Arc::clone(pool);
        }
        let added = self.add_pool(PoolSettings::default_pool());
        added.expect("the default pool's settings are sound")
    }

    /// Adds a pool, unless somebody else just has.
    fn add_pool(self: &Arc<Self>, settings: PoolSettings) -> Result<Arc<Pool>, Invalid> {
        let pool = {
            let mut pools = self.pools.write();
            if let Some(pool) = pools.get(&settings.code) {
                return Ok(Arc::clone(pool));
            }
            let pool = Arc::new(Pool::new(settings)?);
            let mut more = Pools::clone(&pools);
            more.insert(Arc::clone(&pool.code), Arc::clone(&pool));
            *pools = Arc::new(more);
            pool
        };
        self.count_room();
        let (core, own) = (Arc::clone(self), Arc::clone(&pool));
        let pump = self.pumps.try_submit(&self.cx, |cx| async move {
            // Ends when the pool is closed; at the very end with the router.
            cx.until_interrupted(run::pump(core, own)).await.ok();
        });
        if pump.is_err() {
            pool.close();
        }
        Ok(pool)
    }

    pub(crate) fn all_queues(&self) -> Vec<Arc<Queue>> {
        let mut all: Vec<Arc<Queue>> = self.queues.read().values().cloned().collect();
        all.extend(self.leaving.lock().queues.iter().cloned());
        all
    }

    pub(crate) fn leaving_pools(&self) -> Vec<Arc<Pool>> {
        self.leaving.lock().pools.clone()
    }

    pub(crate) fn is_leaving(&self, queue: &Arc<Queue>) -> bool {
        self.leaving.lock().queues.iter().any(|leaving| Arc::ptr_eq(leaving, queue))
    }

    /// The queues of the same name that are not quite gone.
    pub(crate) fn leaving_before(&self, queue: &Arc<Queue>) -> Vec<Arc<Queue>> {
        let same = |other: &&Arc<Queue>| other.name == queue.name && !Arc::ptr_eq(other, queue);
        self.leaving.lock().queues.iter().filter(same).cloned().collect()
    }

    /// The very pool in which a message has its place, also one that is leaving.
    pub(crate) fn pool_at(&self, place: &Place) -> Option<Arc<Pool>> {
        let current = self.pools().get(&place.code).cloned();
        let all = current.into_iter().chain(self.leaving_pools());
        all.into_iter().find(|pool| pool.id == place.pool)
    }

    /// All messages that are here, oldest first within their queue.
    pub(crate) fn in_flight(&self) -> Vec<Arc<Tracked>> {
        self.all_queues().iter().flat_map(|queue| queue.ledger.in_flight.all()).collect()
    }

    pub(crate) fn find(&self, id: &str) -> Option<(Arc<Queue>, Arc<Tracked>)> {
        self.all_queues()
            .into_iter()
            .find_map(|queue| queue.ledger.in_flight.find(id).map(|tracked| (queue, tracked)))
    }

    /// Whether any pool keeps order across deliveries.
    pub(crate) fn keeps_order(&self) -> bool {
        self.pools().values().any(|pool| pool.settings().ordering == Ordering::Strict)
    }

    /// What the sources must keep in order.
    fn order(&self) -> Arc<Order> {
        let pools = self.pools();
        let strict = |pool: &&Arc<Pool>| pool.settings().ordering == Ordering::Strict;
        Arc::new(Order::of_pools(pools.values().filter(strict).map(|pool| Arc::clone(&pool.code))))
    }

    pub(crate) fn room(&self) -> u64 {
        self.room.load(Memory::Relaxed)
    }

    fn count_room(&self) {
        let (pools, leaving) = (self.pools(), self.leaving_pools());
        let room = |pool: &Arc<Pool>| {
            let settings = pool.settings();
            u64::from(settings.capacity()) + u64::from(settings.concurrency)
        };
        self.room.store(pools.values().chain(&leaving).map(room).sum(), Memory::Relaxed);
    }

    fn pools_changed(&self) {
        self.count_room();
        self.tell_sources();
    }

    /// Tells the sources what stays in order across deliveries.
    fn tell_sources(&self) {
        let order = self.order();
        for queue in self.all_queues() {
            queue.source().keep_order(&order);
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("pools", &self.pools).finish_non_exhaustive()
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
