//! The pools of a router: found by code, added, changed and removed while messages flow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};

use parking_lot::{Mutex, RwLock};
use sluicegate_tasks::{Context, Invalid, Pause, Running, TaskGroup};
use tokio::time::Instant;

use crate::item::Item;
use crate::pool::Pool;
use crate::routed::Place;
use crate::run::{Runner, pump};
use crate::{DEFAULT_POOL, Order, Ordered, PoolSettings, Source, UnknownPool};

/// The pools by their codes.
pub(crate) type ByCode = BTreeMap<Arc<str>, Arc<Pool>>;

/// How a pool was set.
pub(crate) enum Set {
    /// It is new: messages of it may wait in the default pool.
    Added,
    Changed,
    /// It was changed and begins to keep order.
    BeginsOrder(Arc<Pool>),
}

/// The most pools a router can have, draining ones included.
const MOST_POOLS: u32 = 1 << 20;

/// The pools of a router.
pub(crate) struct Pools {
    pub(crate) runner: Arc<Runner>,
    cx: Context,
    by_code: RwLock<Arc<ByCode>>,
    /// Removed, and not quite gone.
    leaving: Mutex<Vec<Arc<Pool>>>,
    /// How often pools came or went, and up to which of these every message was seen in its own pool: until then
    /// order needs a look.
    moves: AtomicU64,
    settled: AtomicU64,
    /// How many messages all pools can hold, those that are leaving included.
    room: AtomicU64,
    /// What the sources must keep in order.
    order: RwLock<Arc<Order>>,
    unknown_pool: RwLock<UnknownPool>,
    /// Whether the router ends: pools that come now are closed from the beginning.
    is_closed: AtomicBool,
    pumps: TaskGroup,
}

impl Pools {
    pub(crate) fn new(runner: Runner) -> Result<Arc<Self>, Invalid> {
        Ok(Arc::new(Self {
            runner: Arc::new(runner),
            cx: Context::new(),
            by_code: RwLock::default(),
            leaving: Mutex::default(),
            moves: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            room: AtomicU64::new(0),
            order: RwLock::default(),
            unknown_pool: RwLock::default(),
            is_closed: AtomicBool::new(false),
            pumps: TaskGroup::new("pumps", MOST_POOLS)?,
        }))
    }

    pub(crate) fn all(&self) -> Arc<ByCode> {
        Arc::clone(&self.by_code.read())
    }

    pub(crate) fn leaving(&self) -> Vec<Arc<Pool>> {
        self.leaving.lock().clone()
    }

    pub(crate) fn get(&self, code: &str) -> Option<Arc<Pool>> {
        self.by_code.read().get(code).cloned()
    }

    /// The pool that messages of this code go to, as far as there is one by now.
    pub(crate) fn takes(&self, code: &str) -> Option<Arc<Pool>> {
        let pools = self.by_code.read();
        pools.get(code).or_else(|| pools.get(DEFAULT_POOL)).cloned()
    }

    /// Adds a pool, or changes one. Where messages are to be taken out nothing starts until the second answer is dropped.
    pub(crate) fn set(
        &self,
        settings: PoolSettings,
    ) -> Result<(Set, Option<Pause<Item>>), Invalid> {
        let set = loop {
            match self.get(&settings.code) {
                Some(pool) => {
                    let Some(pause) = pool.change(settings)? else { break (Set::Changed, None) };
                    self.moves.fetch_add(1, Memory::SeqCst);
                    break (Set::BeginsOrder(pool), Some(pause));
                }
                // Somebody may just have added it, with other settings.
                None if !self.add(settings.clone())?.1 => {}
                None => break (Set::Added, self.pause_default()),
            }
        };
        self.changed();
        Ok(set)
    }

    /// Adds a pool, unless somebody else just has; answers whether it is new.
    fn add(&self, settings: PoolSettings) -> Result<(Arc<Pool>, bool), Invalid> {
        let pool = {
            let mut pools = self.by_code.write();
            if let Some(pool) = pools.get(&settings.code) {
                return Ok((Arc::clone(pool), false));
            }
            let pool = Arc::new(Pool::new(settings)?);
            if self.is_closed.load(Memory::Acquire) {
                pool.close();
            }
            self.moves.fetch_add(1, Memory::SeqCst);
            let mut more = ByCode::clone(&pools);
            more.insert(Arc::clone(&pool.code), Arc::clone(&pool));
            *pools = Arc::new(more);
            pool
        };
        self.changed();
        let (runner, own) = (Arc::clone(&self.runner), Arc::clone(&pool));
        let pump = self.pumps.try_submit(&self.cx, |cx| async move {
            // Ends when the pool is closed; at the very end with the router.
            cx.until_interrupted(pump(runner, own)).await.ok();
        });
        if pump.is_err() {
            pool.close();
        }
        Ok((pool, true))
    }

    /// The pool for messages that have none, made when it is first needed: docs/rules.md#route-2.
    pub(crate) fn default_pool(&self) -> Arc<Pool> {
        if let Some(pool) = self.get(DEFAULT_POOL) {
            return pool;
        }
        let added = self.add(PoolSettings::default_pool());
        added.expect("the default pool's settings are sound").0
    }

    fn pause_default(&self) -> Option<Pause<Item>> {
        self.get(DEFAULT_POOL)
            .map(|pool| pool.sluice.pause("what waits for a pool that came leaves"))
    }

    /// Removes a pool: what waits in it goes back, and what runs goes on. Answers with what must find another pool.
    pub(crate) fn remove(&self, code: &str) -> Option<Vec<Item>> {
        let pool = {
            let mut pools = self.by_code.write();
            let mut left = ByCode::clone(&pools);
            let removed = left.remove(code)?;
            // In both for a moment rather than in none: its order holds on.
            self.leaving.lock().push(Arc::clone(&removed));
            self.moves.fetch_add(1, Memory::SeqCst);
            *pools = Arc::new(left);
            removed
        };
        let homeless = pool.leave();
        self.changed();
        Some(homeless)
    }

    /// Forgets removed pools that are gone; answers whether there were any.
    pub(crate) fn forget_gone(&self) -> bool {
        let mut leaving = self.leaving.lock();
        let before = leaving.len();
        leaving.retain(|pool| !pool.is_gone());
        let some = leaving.len() < before;
        drop(leaving);
        self.changed();
        some
    }

    /// Whether a message may be in another pool than its own.
    pub(crate) fn is_moving(&self) -> bool {
        self.moves() != self.settled.load(Memory::SeqCst)
    }

    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Memory::SeqCst)
    }

    /// All messages are where they belong since so many moves.
    pub(crate) fn settled_down(&self, moves: u64) {
        self.settled.store(moves, Memory::SeqCst);
    }

    /// The very pool in which a message has its place, also one that is leaving.
    pub(crate) fn at(&self, place: &Place) -> Option<Arc<Pool>> {
        let current = self.get(&place.code).into_iter();
        current.chain(self.leaving()).find(|pool| pool.id == place.pool)
    }

    /// What the sources must keep in order.
    pub(crate) fn order(&self) -> Arc<Order> {
        Arc::clone(&self.order.read())
    }

    /// Tells a source what to keep in order. Whoever tells it something older meanwhile tells it again.
    pub(crate) fn tell_order(&self, source: &dyn Source) {
        loop {
            let order = self.order();
            source.keep_order(&order);
            if Arc::ptr_eq(&order, &self.order()) {
                return;
            }
        }
    }

    /// Also what a pool that is leaving still runs, and what goes to the default pool.
    fn find_order(&self) -> Order {
        let (pools, leaving) = (self.all(), self.leaving());
        // Also one that is leaving has messages of pools that do not exist.
        let defaults = leaving.iter().filter(|pool| &*pool.code == DEFAULT_POOL);
        let defaults = pools.get(DEFAULT_POOL).into_iter().chain(defaults);
        let mut kept = defaults.map(|pool| pool.settings().ordered());
        let unordered = match self.unknown_pool() {
            // What is parked holds its group: what waits there for its time must not come after it.
            UnknownPool::Park => Ordered::Groups,
            UnknownPool::Default => Ordered::Nothing,
        };
        let others = kept.find(|ordered| *ordered != Ordered::Nothing).unwrap_or(unordered);
        let mut order = Order::everywhere(others);
        for pool in pools.values() {
            order = order.with(Arc::clone(&pool.code), pool.settings().ordered());
        }
        for pool in leaving {
            let ordered = pool.settings().ordered();
            if ordered != Ordered::Nothing && order.of(&pool.code) == Ordered::Nothing {
                order = order.with(Arc::clone(&pool.code), ordered);
            }
        }
        order
    }

    pub(crate) fn unknown_pool(&self) -> UnknownPool {
        *self.unknown_pool.read()
    }

    pub(crate) fn set_unknown_pool(&self, unknown_pool: UnknownPool) {
        *self.unknown_pool.write() = unknown_pool;
        self.changed();
    }

    pub(crate) fn room(&self) -> u64 {
        self.room.load(Memory::Relaxed)
    }

    /// Works out what follows from the pools that there are.
    fn changed(&self) {
        // Found under the lock: what is found last is what is kept.
        let mut order = self.order.write();
        *order = Arc::new(self.find_order());
        let (pools, leaving) = (self.all(), self.leaving());
        let room = |pool: &Arc<Pool>| {
            let settings = pool.settings();
            u64::from(settings.capacity()) + u64::from(settings.concurrency)
        };
        self.room.store(pools.values().chain(&leaving).map(room).sum(), Memory::Relaxed);
    }

    /// Lets nothing more in, for good: what waits goes back.
    pub(crate) fn close(&self) {
        let pools = {
            let pools = self.by_code.write();
            self.is_closed.store(true, Memory::Release);
            Arc::clone(&pools)
        };
        pools.values().for_each(|pool| pool.close());
    }

    /// Lets what runs end until the deadline. Answers what did not.
    pub(crate) async fn drain(&self, deadline: Instant) -> Vec<Running> {
        let mut pools: Vec<Arc<Pool>> = self.all().values().cloned().collect();
        pools.extend(self.leaving());
        let drained = pools.iter().map(|pool| pool.workers.drain(deadline));
        let drained = futures_util::future::join_all(drained).await;
        // They have ended by themselves: every sluice is closed.
        drop(self.pumps.drain(Instant::now()).await);
        drained.into_iter().flat_map(|drained| drained.abandoned).collect()
    }
}

impl std::fmt::Debug for Pools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pools").field("by_code", &self.by_code).finish_non_exhaustive()
    }
}
