//! The router: pools, queues, and the ways between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use sluicegate_tasks::{Invalid, Running};
use tokio::time::Instant;

use crate::intake::Entry as _;
use crate::item::Item;
use crate::pool::Pool;
use crate::pools::{Pools, Set};
use crate::queue::{self, Queue, QueueSettings, RouterQueue};
use crate::routed::{Acking, InFlightMessage};
use crate::run::Runner;
use crate::window::State;
use crate::{
    Executor, Observer, Ordering, ParkedStore, PoolSettings, Settlement, Source, UnknownPool, route,
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
    /// Whether the router ends: changed under the lock of `by_name`.
    is_ending: AtomicBool,
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
        let runner = Runner::new(executor, parked, observer);
        Ok(Self { pools: Pools::new(runner)?, queues: Arc::default() })
    }

    /// Adds a pool, or changes one, at once and for what waits in it.
    ///
    /// # Errors
    /// Names the setting that cannot work; then nothing changes.
    pub fn set_pool(&self, settings: PoolSettings) -> Result<(), Invalid> {
        let code = Arc::clone(&settings.code);
        let (set, pause) = self.pools.set(settings)?;
        for queue in self.queues.oldest_first() {
            RouterQueue::learn_order(&queue);
            match &set {
                Set::Added => route::bring_home(&queue, &code),
                Set::BeginsOrder(pool) => route::let_in_again(&queue, pool),
                Set::Changed => {}
            }
        }
        // Only now what waits where messages were taken out starts again: those of one queue leave their keys free for what
        // the next queue has there.
        drop(pause);
        self.pools_changed();
        self.settle_down();
        Ok(())
    }

    /// What becomes of messages whose pool does not exist.
    pub fn set_unknown_pool(&self, unknown_pool: UnknownPool) {
        self.pools.set_unknown_pool(unknown_pool);
        self.pools_changed();
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
        let Some(mut homeless) = self.pools.remove(code) else { return false };
        for queue in self.queues.oldest_first() {
            let own = homeless.extract_if(.., |item| item.held.is_of(&queue.owed)).collect();
            RouterQueue::pools_changed(&queue, own);
        }
        true
    }

    /// Adds a queue and begins to receive from it. `false` if there is one of that name, or the router has ended.
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
        self.pools.tell_order(&*source);
        let queue = {
            let mut queues = self.queues.by_name.write();
            if self.queues.is_ending() || queues.contains_key(&name) {
                return Ok(false);
            }
            let before = self.queues.leaving_of(&name);
            let queue = queue::new(Arc::clone(&name), settings, source, &self.pools, &before)?;
            before.iter().for_each(|before| before.recipient.is_followed_by(&queue));
            queues.insert(name, Arc::clone(&queue));
            queue
        };
        // Pools may have changed meanwhile.
        self.pools.tell_order(&*queue.source());
        queue.start();
        Ok(true)
    }

    /// Removes a queue: nothing more is received, what was read ahead goes back, and what is in pools is finished and
    /// settled. Waits for its receivers until the deadline. `false` if there is none.
    ///
    /// # Cancel safety
    /// It is removed as a whole, also if nobody waits for that.
    pub async fn remove_queue(&self, name: &str, deadline: Instant) -> bool {
        let queue = {
            let mut queues = self.queues.by_name.write();
            let Some(queue) = queues.remove(name) else { return false };
            self.queues.leaving.lock().push(Arc::clone(&queue));
            queue
        };
        queue.stop_and(deadline, hand_back_window).await;
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

    /// Goes on with a new source in place of one that has stalled. `false` if there is no such queue, or if it has another
    /// source than that by now: it was changed meanwhile.
    ///
    /// # Errors
    /// None that is known; the kernel checks its limits.
    pub async fn restart_queue(
        &self,
        name: &str,
        stalled: &Arc<dyn Source>,
        source: Arc<dyn Source>,
    ) -> Result<bool, Invalid> {
        let Some(queue) = self.queues.by_name.read().get(name).cloned() else { return Ok(false) };
        self.pools.tell_order(&*source);
        let is_restarted = queue.restart(stalled, source)?;
        self.pools.tell_order(&*queue.source());
        Ok(is_restarted)
    }

    /// Forgets removed pools and queues that have ended. Returns how many are left.
    pub async fn clean_up(&self) -> usize {
        if self.pools.forget_gone() {
            self.pools_changed();
        }
        let leaving = self.queues.leaving.lock().clone();
        let is_done = |queue: &Arc<Queue>| {
            queue.is_stopped()
                && (queue.owed.in_flight.is_over() || queue.recipient.gives_up(queue))
        };
        for queue in leaving.into_iter().filter(is_done) {
            queue.close(Instant::now()).await;
            queue.forget();
            self.queues.leaving.lock().retain(|other| !Arc::ptr_eq(other, &queue));
        }
        self.settle_down();
        self.pools.leaving().len() + self.queues.leaving.lock().len()
    }

    /// Says so if every message is where it belongs: from then on order needs no look at other pools.
    fn settle_down(&self) {
        let moves = self.pools.moves();
        if self.pools.is_moving() && self.all_at_home() {
            self.pools.settled_down(moves);
        }
    }

    /// Whether every message is in the pool that it would go to now.
    fn all_at_home(&self) -> bool {
        let is_home = |tracked: &InFlightMessage| {
            let standing = tracked.entry.standing();
            let Some(place) = standing.place else { return true };
            let message = &tracked.entry.message;
            let has_turn = place.has_key && !standing.is_displaced;
            let has_key = |pool: &Pool| has_turn || pool.settings().key_name(message).is_none();
            let pool = self.pools.takes(&message.pool);
            pool.is_some_and(|pool| pool.id == place.pool && has_key(&pool))
        };
        let each =
            || self.queues.all().into_iter().map(|queue| queue.owed.in_flight.each_that_may_run());
        let is_quiet = || {
            let leaving = self.queues.leaving.lock().clone();
            leaving.iter().all(|queue| queue.recipient.window.len() == 0)
                && self.queues.all().iter().all(|queue| queue.recipient.window.is_quiet())
        };
        // First, whoever routes by pools that were before ends; last, nobody has come to wait for one that is over.
        self.pools.leaving().is_empty()
            && is_quiet()
            && each().flatten().all(|tracked| is_home(&tracked))
            && is_quiet()
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

    /// Settles a message as done that waits here, by hand. One that must stay in order is settled when it is its turn, and
    /// the next of its group waits until its source knows: docs/rules.md#strict-1.
    ///
    /// # Errors
    /// It is not here, or not waiting.
    pub fn ack(&self, id: &str) -> Result<(), AckError> {
        self.begin_ack(id).map(drop)
    }

    /// The same, for whoever wants to hear when its source knows; also if somebody has done so before.
    ///
    /// # Errors
    /// It is not here, or not waiting.
    pub fn begin_ack(&self, id: &str) -> Result<Acking, AckError> {
        let (queue, tracked) = self.queues.find(id).ok_or(AckError::NotHere)?;
        let standing = tracked.entry.standing();
        if let Some(acking) = tracked.entry.acking() {
            // It may have begun to rest since.
            if let Some(pool) = standing.place.as_ref().and_then(|place| self.pools.at(place)) {
                standing.place.iter().for_each(|place| {
                    pool.sluice.release(place.item);
                });
            }
            return Ok(acking);
        }
        let is_replayed = self.pools.runner.is_replayed(&tracked);
        let pool = match &standing.place {
            Some(place) => Some(self.pools.at(place).ok_or(AckError::Busy)?),
            None => None,
        };
        let is_strict = |pool: &Arc<Pool>| pool.settings().ordering == Ordering::Strict;
        if tracked.entry.is_ordered() || pool.as_ref().is_some_and(is_strict) {
            if tracked.is_settling() {
                return Err(AckError::Busy);
            }
            let acking = tracked.entry.ack(is_replayed).ok_or(AckError::Busy)?;
            // Of a head that waits to be tried again it is the turn now.
            if let (Some(pool), Some(place)) = (pool, standing.place) {
                pool.sluice.release(place.item);
            }
            return Ok(acking);
        }
        let item = match pool.zip(standing.place) {
            Some((pool, place)) => pool.withdraw(place.item),
            None => queue.recipient.window.withdraw(&tracked),
        };
        let item = item.ok_or(AckError::Busy)?;
        // Before it is settled: whoever waits hears of that.
        let acking = tracked.entry.ack(is_replayed).ok_or(AckError::Busy)?;
        if is_replayed {
            item.held.settle_replayed(());
        } else {
            item.held.settle(Settlement::Ack);
        }
        Ok(acking)
    }

    /// Ends the router in order: stops receiving, hands back what waits, lets what runs end, settles.
    /// Receivers have until `stop_by`, running messages until `drain_by`; then they are cancelled.
    pub async fn shutdown(&self, stop_by: Instant, drain_by: Instant) -> ShutdownReport {
        let mut report = ShutdownReport::default();
        let queues = self.queues.end();
        let stopped = join_all(queues.iter().map(|queue| queue.stop(stop_by))).await;
        for (queue, stopped) in queues.iter().zip(stopped) {
            if !stopped {
                report.stuck_queues.push(Arc::clone(queue.name()));
            }
        }
        self.pools.close();
        // Nothing comes into a window any more.
        queues.iter().for_each(hand_back_window);
        report.abandoned = self.pools.drain(drain_by).await;
        let settle_by = drain_by.max(Instant::now() + LAST_SETTLEMENTS);
        for left in join_all(queues.iter().map(|queue| queue.close(settle_by))).await {
            report.unsettled += left;
        }
        report
    }

    fn pools_changed(&self) {
        for queue in self.queues.oldest_first() {
            RouterQueue::pools_changed(&queue, Vec::new());
        }
    }
}

fn hand_back_window(queue: &Arc<Queue>) {
    queue.recipient.window.change(State::take_all).into_iter().for_each(Item::drain);
}

impl Queues {
    /// Lets no more come; answers with those that there are.
    fn end(&self) -> Vec<Arc<Queue>> {
        let queues = self.by_name.write();
        self.is_ending.store(true, Memory::Release);
        drop(queues);
        self.all()
    }

    fn is_ending(&self) -> bool {
        self.is_ending.load(Memory::Acquire)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Queue>> {
        let mut all: Vec<Arc<Queue>> = self.by_name.read().values().cloned().collect();
        all.extend(self.leaving.lock().iter().cloned());
        all
    }

    /// All of them; of those of one name the first that came is first, and so are its messages.
    fn oldest_first(&self) -> Vec<Arc<Queue>> {
        let queues = self.by_name.read();
        let mut all = self.leaving.lock().clone();
        all.extend(queues.values().cloned());
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
