//! A queue of the router: a source that messages are routed from, and the pools they go to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_schedule::Fault;
use sluicegate_tasks::{Context, Invalid};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::intake::{Beside, Dropped, Held, Intake, Recipient, Settling, Subject};
use crate::item::{Item, Past};
use crate::places::{AwaitsRoom, BETWEEN_SMALL_ROOMS};
use crate::pool::Pool;
use crate::pools::Pools;
use crate::routed::{InFlightMessage, Routed};
use crate::window::Window;
use crate::{
    BoxFuture, DEFAULT_DELAY, Delivery, Demand, Fact, KeepsOrder, Message, Openings, Parked,
    Reason, Room, Rooms, Settled, Settlement, Source, SourceError, route,
};

/// How a queue is received from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// How many receive at once.
    pub connections: u32,
    /// How many messages one of them takes at a time.
    pub max_messages: usize,
    /// How many messages are read ahead of pools that have no room, from sources that cannot select; 0 for the paper's
    /// rule, by which they go back for 30 seconds.
    pub window: usize,
}

impl QueueSettings {
    /// How many messages are read ahead unless told.
    pub const WINDOW: usize = 2000;

    /// So many receivers that take so many messages at a time.
    #[must_use]
    pub const fn new(connections: u32, max_messages: usize) -> Self {
        Self { connections, max_messages, window: Self::WINDOW }
    }
}

/// A queue of the router.
pub(crate) type Queue = Intake<RouterQueue>;

/// The router's side of a queue.
pub(crate) struct RouterQueue {
    pub(crate) settings: QueueSettings,
    pub(crate) pools: Arc<Pools>,
    name: Arc<str>,
    /// Whether the source hands out by pool, and in order.
    pub(crate) selects: bool,
    pub(crate) keeps_order: KeepsOrder,
    pub(crate) window: Window,
    openings: Arc<Openings>,
    /// The same for what waits in the window.
    window_openings: Openings,
    /// Queues of the same name that are not quite gone.
    before: Mutex<Vec<Arc<Queue>>>,
    /// Those that came after it.
    after: Mutex<Vec<Weak<Queue>>>,
    /// Whether messages were refused since the last receive: for queues without a window.
    was_refused: AtomicBool,
    looked: Mutex<Option<Instant>>,
    /// Told when a pool has little room that it will tell of soon.
    soon: Notify,
    pub(crate) counts: Counts,
}

/// What a queue has seen.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) received: AtomicU64,
    pub(crate) acked: AtomicU64,
    pub(crate) retried: AtomicU64,
}

/// How long a queue that was removed tries to settle what is done. Then its places are for others.
const TO_SETTLE: Duration = Duration::from_secs(60);
/// How long a receiver without a window waits after it was refused, and how often pools with little room are looked
/// for.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A queue that is not received from yet.
pub(crate) fn new(
    name: Arc<str>,
    settings: QueueSettings,
    source: Arc<dyn Source>,
    pools: &Arc<Pools>,
    before: &[Arc<Queue>],
) -> Result<Arc<Queue>, Invalid> {
    if settings.max_messages == 0 {
        return Err(Invalid::new("max_messages", Fault::Zero));
    }
    let profile = source.profile();
    let recipient = RouterQueue {
        settings,
        pools: Arc::clone(pools),
        name: Arc::clone(&name),
        selects: profile.selects,
        keeps_order: profile.keeps_order,
        window: Window::default(),
        openings: Arc::default(),
        window_openings: Openings::default(),
        before: Mutex::new(before.to_vec()),
        after: Mutex::default(),
        was_refused: AtomicBool::new(false),
        looked: Mutex::default(),
        soon: Notify::new(),
        counts: Counts::default(),
    };
    let dropped = Dropped { after: DEFAULT_DELAY, reason: Reason::Failed };
    Intake::new(name, settings.connections, source, dropped, recipient)
}

impl RouterQueue {
    pub(crate) fn observe(&self, fact: &Fact<'_>) {
        self.pools.runner.observe(fact);
    }

    /// The queues of the same name that still have messages.
    pub(crate) fn leaving_before(&self) -> Vec<Arc<Queue>> {
        let mut before = self.before.lock();
        if before.is_empty() {
            return Vec::new();
        }
        before.retain(|queue| !(queue.is_stopped() && queue.owed.in_flight.is_over()));
        before.clone()
    }

    /// The queues of the same name that came after it.
    pub(crate) fn coming_after(&self) -> Vec<Arc<Queue>> {
        self.after.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a queue that was removed is given up: all that is left is done, and its source hears nothing of it.
    pub(crate) fn gives_up(&self, queue: &Queue) -> bool {
        let Some(left) = queue.owed.in_flight.all_unheard_for(TO_SETTLE) else { return false };
        let cause = format!(
            "the queue was removed, and its source heard nothing of {left} messages that are done: it will deliver them \
             again"
        );
        self.observe(&Fact::SourceFailed { queue: &self.name, doing: "settle", cause: &cause });
        true
    }

    /// Messages went back for want of room.
    pub(crate) fn refused(&self) {
        self.was_refused.store(true, Memory::Relaxed);
    }

    /// A queue of the same name came, while this one still has messages.
    pub(crate) fn is_followed_by(&self, next: &Arc<Queue>) {
        self.after.lock().push(Arc::downgrade(next));
    }

    /// Looks again at what waited for a message that is over.
    fn look_behind(queue: &Arc<Queue>, over: &Routed) {
        for before in queue.recipient.leaving_before() {
            route::look_behind(&before, over);
        }
        route::look_behind(queue, over);
        for after in queue.recipient.coming_after() {
            route::look_behind(&after, over);
        }
    }

    /// Learns what of its messages stays in order, as pools are now.
    pub(crate) fn learn_order(queue: &Arc<Queue>) {
        let order = queue.recipient.pools.order();
        queue.owed.in_flight.each().iter().for_each(|tracked| tracked.entry.set_order(&order));
    }

    /// Pools may have come, gone or changed: whatever waits for one looks again, after what was in one that is gone.
    pub(crate) fn pools_changed(queue: &Arc<Queue>, homeless: Vec<Item>) {
        queue.recipient.pools.tell_order(&*queue.source());
        Self::learn_order(queue);
        queue.look_at_turns();
        queue.recipient.openings.open_all();
        route::look_again(queue, homeless);
    }

    /// Looks from time to time whether pools have room that nobody was told of, for little of it is told of rarely.
    fn look_for_room(&self) {
        let now = Instant::now();
        {
            let mut looked = self.looked.lock();
            if looked.is_some_and(|looked| now - looked < BETWEEN_LOOKS) {
                return;
            }
            *looked = Some(now);
        }
        self.pools.all().values().for_each(|pool| pool.places.tell_of_any());
    }
}

impl Recipient for RouterQueue {
    type Message = Message;
    type Entry = Routed;

    async fn demand(queue: &Arc<Queue>) -> Demand {
        let Self { settings, window, openings, selects, pools, .. } = &queue.recipient;
        // Also what is only to be settled, or parked, is bounded.
        let most = usize::try_from(pools.room()).unwrap_or(usize::MAX);
        queue.owed.in_flight.at_most(most.saturating_add(settings.window)).await;
        queue.recipient.look_for_room();
        if *selects {
            let places = TakenPlaces { queue: Arc::clone(queue), taken: Mutex::default() };
            return Demand::of(settings.max_messages, Arc::new(places), Arc::clone(openings));
        }
        let asked = settings.max_messages.saturating_mul(settings.connections as usize);
        let room = settings.window.saturating_sub(asked);
        let mut is_said = false;
        while timeout(AFTER_REFUSAL, window.at_most(room)).await.is_err() {
            queue.recipient.look_for_room();
            if let Some((pool, waiting)) = window.fullest().filter(|_| !is_said) {
                let (queue_name, pool) = (queue.name(), &pool);
                let fact = Fact::WindowFull { queue: queue_name, pool, waiting };
                queue.recipient.observe(&fact);
                is_said = true;
            }
        }
        if queue.recipient.was_refused.swap(false, Memory::Relaxed) {
            sleep(AFTER_REFUSAL).await;
        }
        Demand::any(settings.max_messages)
    }

    fn take_in(queue: &Arc<Queue>, batch: Vec<Delivery>) {
        let count = batch.len();
        queue.recipient.counts.received.fetch_add(count as u64, Memory::Relaxed);
        queue.recipient.observe(&Fact::Received { queue: queue.name(), count });
        route::take_in(queue, batch);
    }

    /// Lets in what waits in the window, as pools make room.
    async fn background(queue: Arc<Queue>, cx: Context) {
        let openings = &queue.recipient.window_openings;
        loop {
            let mut told = std::pin::pin!(openings.told());
            told.as_mut().enable();
            let opened = openings.opened();
            for code in &opened.pools {
                route::has_room(&queue, code);
            }
            let look = async {
                tokio::select! {
                    biased;
                    () = told => {}
                    () = queue.recipient.soon.notified() => {
                        sleep(BETWEEN_SMALL_ROOMS).await;
                        let pools = queue.recipient.pools.all();
                        pools.values().for_each(|pool| pool.places.tell_of_any());
                    }
                }
            };
            if opened.pools.is_empty() && cx.until_interrupted(look).await.is_err() {
                return;
            }
        }
    }

    fn in_turn(&self) -> bool {
        !self.keeps_order.across_batches() && !self.pools.order().is_nothing()
    }

    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        self.pools.runner.parked.park(parked)
    }

    fn replay_over(&self, over: &[&Routed]) -> BoxFuture<'_, Result<(), SourceError>> {
        let ids = over.iter().map(|entry| Arc::clone(&entry.message.id)).collect();
        self.pools.runner.parked.replay_over(&self.name, ids)
    }

    fn settled(&self, settling: &Settling<Routed>, answer: &Settled) {
        let is_durable = settling.settlement == Settlement::Ack && *answer == Settled::Done;
        if let Some(entry) = settling.entry().filter(|_| is_durable) {
            entry.is_durable();
        }
        let id = match &settling.subject {
            Subject::Tracked(tracked) => Some(&tracked.entry.message.id),
            Subject::Stray(_) => None,
        };
        if let Some(parked) = &settling.parked {
            self.observe(&Fact::Parked {
                queue: &self.name,
                pool: parked.pool.as_ref(),
                id,
                code: parked.code,
                reason: &parked.reason,
            });
        }
        let again = match settling.settlement {
            Settlement::Ack | Settlement::Park => None,
            Settlement::Retry { reason, .. } => Some(reason),
        };
        let count = if again.is_none() { &self.counts.acked } else { &self.counts.retried };
        count.fetch_add(1, Memory::Relaxed);
        let stale = *answer == Settled::Stale;
        self.observe(&Fact::Settled { queue: &self.name, id, again, stale });
    }

    fn ended(queue: &Arc<Queue>, entry: &Routed) {
        entry.leave_place();
        entry.is_over();
        // Nothing waits for what is in its own pool, with its key.
        if queue.recipient.pools.is_moving() {
            Self::look_behind(queue, entry);
        }
    }

    fn superseded_ended(queue: &Arc<Queue>, message: &InFlightMessage) {
        message.entry.is_over();
        Self::look_behind(queue, &message.entry);
    }

    /// Finds places for messages that could not stay where they were.
    fn take_back(queue: &Arc<Queue>, homeless: Vec<(Held<Routed>, Beside)>) {
        let item = |(held, beside): (Held<Routed>, Beside)| {
            Item::new(
                held,
                beside.downcast::<Past>().map_or_else(|_| Past::default(), |past| *past),
            )
        };
        let homeless: Vec<Item> = homeless.into_iter().map(item).collect();
        let moved: Vec<InFlightMessage> =
            homeless.iter().map(|item| Arc::clone(item.held.tracked())).collect();
        // Each keeps the place that it had until it gets another, and whatever comes waits for it.
        route::look_again(queue, homeless);
        // Messages of earlier queues of its name may have waited for one that ran.
        for before in queue.recipient.leaving_before() {
            moved.iter().for_each(|moved| route::look_behind(&before, &moved.entry));
        }
    }

    fn stale(&self, _: usize) {}

    fn expired(&self, count: usize) {
        self.observe(&Fact::Expired { queue: &self.name, count });
    }

    fn source_failed(&self, doing: &'static str, error: &SourceError) {
        self.observe(&Fact::SourceFailed { queue: &self.name, doing, cause: &error.cause });
    }
}

impl AwaitsRoom for Queue {
    fn has_room(self: Arc<Self>, code: &Arc<str>) {
        // Told under whatever lock makes room: nothing is let in here.
        if self.recipient.selects {
            self.recipient.openings.open(Arc::clone(code));
        }
        self.recipient.window_openings.open(Arc::clone(code));
    }

    fn will_have_room(&self) {
        self.recipient.soon.notify_one();
    }
}

/// The places that one receive has taken in pools, until its batch is taken in.
struct TakenPlaces {
    queue: Arc<Queue>,
    taken: Mutex<Vec<(Arc<Pool>, u32)>>,
}

impl Rooms for TakenPlaces {
    fn take(&self, code: &str) -> bool {
        // One that is made when it is first needed has room.
        let Some(pool) = self.queue.recipient.pools.takes(code) else { return true };
        if !pool.places.take() {
            let who: Arc<dyn AwaitsRoom> = Arc::clone(&self.queue) as _;
            pool.places.tell_of_room(&who, &code.into());
            if !pool.places.take() {
                return false;
            }
        }
        let mut taken = self.taken.lock();
        match taken.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &pool)) {
            Some((_, count)) => *count += 1,
            None => taken.push((pool, 1)),
        }
        true
    }

    fn room(&self) -> Room {
        let who: Arc<dyn AwaitsRoom> = Arc::clone(&self.queue) as _;
        let room = |pool: &Arc<Pool>, code: &Arc<str>| match pool.places.room() {
            0 => {
                pool.places.tell_of_room(&who, code);
                pool.places.room()
            }
            room => room,
        };
        let all = self.queue.recipient.pools.all();
        let pools = all.iter().map(|(code, pool)| (Arc::clone(code), room(pool, code))).collect();
        let default = all.get(crate::DEFAULT_POOL);
        let others = default.map_or(u32::MAX, |pool| room(pool, &pool.code));
        Room { pools, others }
    }
}

impl Drop for TakenPlaces {
    fn drop(&mut self) {
        for (pool, count) in self.taken.get_mut().drain(..) {
            pool.places.release(count);
        }
    }
}

impl std::fmt::Debug for RouterQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RouterQueue").field("name", &self.name).finish_non_exhaustive()
    }
}
