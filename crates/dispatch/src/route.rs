//! Routing a batch, in the paper's three phases: dedupe, find the pool, admit.

use std::sync::Arc;
use std::sync::atomic::Ordering as Memory;
use std::time::Duration;

use tokio::time::Instant;

use crate::intake::{Begin, Entry as _, Held};
use crate::places::AwaitsRoom;
use crate::pool::{BatchGroup, Item, Pool};
use crate::queue::Queue;
use crate::routed::{InFlightMessage, Routed};
use crate::window::State;
use crate::{
    DEFAULT_DELAY, DEFAULT_POOL, Delivery, Fact, Malformed, Message, Order, Ordering, Parked,
    ParkedCode, PoolSettings, Reason, Receipt, Settlement, UnknownPool,
};

/// The part of a batch that goes to one pool, in order.
struct Part {
    pool: Arc<Pool>,
    items: Vec<Item>,
}

/// Routes a batch.
pub(crate) fn take_in(queue: &Arc<Queue>, batch: Vec<Delivery>) {
    let fresh = dedupe(queue, batch);
    let fresh = fresh.into_iter().map(|held| Item { held, number: 0, batch: None });
    for mut part in by_pool(queue, fresh) {
        group(&mut part.items);
        admit(queue, part);
    }
}

/// Phase 1: what is here already is not taken in twice.
fn dedupe(queue: &Arc<Queue>, batch: Vec<Delivery>) -> Vec<Held<Routed>> {
    let now = Instant::now();
    let (recipient, order) = (&queue.recipient, queue.recipient.pools.order());
    let leaving = recipient.leaving_before();
    let mut fresh = Vec::with_capacity(batch.len());
    for delivery in batch {
        if leaving.iter().any(|before| runs(before, &delivery)) {
            return_later(queue, delivery);
            continue;
        }
        let is_first = delivery.attempts == 0;
        match queue.begin(routed(queue, &order, delivery), now) {
            Ok(Begin::New(held)) => {
                if is_first {
                    name_unknown_fields(queue, &held.tracked().entry.message);
                }
                fresh.push(held);
            }
            Ok(Begin::Redelivered(tracked)) => {
                let id = &tracked.entry.message.id;
                recipient.observe(&Fact::Redelivered { queue: queue.name(), id });
            }
            Ok(Begin::Requeued { id, receipt }) => {
                recipient.observe(&Fact::Requeued { queue: queue.name(), id: &id });
                queue.owed.settle_stray(receipt, Settlement::Ack, None);
            }
            Err(Delivery { broker_id, receipt, message, .. }) => {
                if let Err(malformed) = message {
                    set_aside(queue, broker_id, receipt, malformed);
                }
            }
        }
    }
    fresh
}

fn runs(before: &Queue, delivery: &Delivery) -> bool {
    let id = delivery.message.as_ref().ok().map(|message| &*message.id);
    before.owed.in_flight.runs(&delivery.broker_id, id)
}

fn routed(queue: &Queue, order: &Order, delivery: Delivery) -> Delivery<Routed> {
    let Delivery { broker_id, receipt, attempts, message } = delivery;
    let message = message.map(|message| {
        let ordered = order.keeps_message(&message);
        Routed::new(message, Arc::clone(queue.name()), ordered)
    });
    Delivery { broker_id, receipt, attempts, message }
}

/// Says which fields of a message nobody knows: they are mostly misspelt.
fn name_unknown_fields(queue: &Queue, message: &Message) {
    for field in &message.unknown_fields {
        let fact = Fact::UnknownField { queue: queue.name(), field, id: &message.id };
        queue.recipient.observe(&fact);
    }
}

fn set_aside(queue: &Queue, broker_id: Arc<str>, receipt: Receipt, malformed: Malformed) {
    queue.recipient.observe(&Fact::Malformed { queue: queue.name(), why: &malformed.why });
    let parked = Parked {
        queue: Arc::clone(queue.name()),
        broker_id,
        pool: None,
        code: ParkedCode::Malformed,
        reason: malformed.why,
        status: None,
        attempts: 0,
        holds_key: false,
        last_error: None,
        message: Err(malformed.raw),
    };
    queue.owed.settle_stray(receipt, Settlement::Park, Some(Box::new(parked)));
}

/// What a queue of the same name that is leaving still runs comes again when that is over:
/// docs/rules.md#dedupe-1.
fn return_later(queue: &Queue, delivery: Delivery) {
    let Delivery { receipt, attempts, message, broker_id } = delivery;
    let id = message.map_or(broker_id, |message| message.id);
    queue.recipient.observe(&Fact::Redelivered { queue: queue.name(), id: &id });
    let settlement = Settlement::Retry { after: DEFAULT_DELAY, attempts, reason: Reason::Draining };
    queue.owed.settle_stray(receipt, settlement, None);
}

/// Phase 2: the pool of each message, in the order in which the batch first names them.
fn by_pool(queue: &Queue, items: impl IntoIterator<Item = Item>) -> Vec<Part> {
    let pools = &queue.recipient.pools;
    let all = pools.all();
    let mut parts: Vec<Part> = Vec::new();
    for item in items {
        let message = &item.held.tracked().entry.message;
        let pool = match all.get(&message.pool) {
            Some(pool) => Arc::clone(pool),
            None => {
                if &*message.pool != DEFAULT_POOL {
                    let (code, id) = (&message.pool, &message.id);
                    queue.recipient.observe(&Fact::UnknownPool { code, id });
                    if pools.unknown_pool() == UnknownPool::Park {
                        park_unknown(item.held);
                        continue;
                    }
                }
                pools.default_pool()
            }
        };
        // Batches are small, and their pools few.
        match parts.iter_mut().find(|part| Arc::ptr_eq(&part.pool, &pool)) {
            Some(part) => part.items.push(item),
            None => parts.push(Part { pool, items: vec![item] }),
        }
    }
    parts
}

fn park_unknown(held: Held<Routed>) {
    let tracked = Arc::clone(held.tracked());
    let Routed { message, queue, .. } = &tracked.entry;
    let parked = Parked {
        queue: Arc::clone(queue),
        broker_id: Arc::clone(&tracked.broker_id),
        pool: Some(Arc::clone(&message.pool)),
        code: ParkedCode::UnknownPool,
        reason: format!("there is no pool {}", message.pool),
        status: None,
        attempts: tracked.attempts(),
        holds_key: false,
        last_error: None,
        message: Ok(message.clone()),
    };
    held.park(Box::new(parked), ());
}

/// What becomes of a part that was not let in.
enum Left {
    Nothing,
    /// It goes back for want of room.
    Refused(Vec<Item>),
    /// Its pool is closed.
    Homeless(Vec<Item>),
}

/// Phase 3: all of a part at once, or it waits in the window until there is room; without a window it goes back:
/// docs/rules.md#route-1 and docs/rules.md#route-4.
fn admit(queue: &Arc<Queue>, part: Part) {
    let Part { pool, items } = part;
    let settings = pool.settings();
    let is_selected = queue.recipient.selects;
    let left = queue.recipient.window.change(|window| {
        // One that closes from now on looks into the window afterwards.
        if pool.is_closed() {
            return Left::Homeless(items);
        }
        let items = hold_behind(queue, &pool, window, items);
        if window.awaits(&pool) {
            window.push(&pool, items);
            return Left::Nothing;
        }
        // What was asked for has its places.
        let fits = is_selected || pool.places.room() as usize >= items.len();
        let refused = match fits {
            true => enter(queue, &pool, items).err().unwrap_or_default(),
            false => items,
        };
        if refused.is_empty() || goes_back(queue, &settings, &refused) {
            return Left::Refused(refused);
        }
        window.push(&pool, refused);
        fill(queue, &pool, window);
        Left::Nothing
    });
    match left {
        Left::Nothing => {}
        Left::Refused(items) => refuse(queue, &pool, items),
        Left::Homeless(items) => rehome(queue, &pool, items),
    }
}

/// Hands back what its pool has no room for.
fn refuse(queue: &Queue, pool: &Pool, items: Vec<Item>) {
    let count = items.len();
    if count == 0 {
        return;
    }
    if !queue.recipient.selects {
        pool.counts.refused.fetch_add(count as u64, Memory::Relaxed);
    }
    queue.recipient.observe(&Fact::PoolFull { pool: &pool.code, count });
    queue.recipient.refused();
    for item in items {
        item.held.hand_back(DEFAULT_DELAY, Reason::PoolFull);
    }
}

/// Finds another pool for what was on its way to one that has closed. Where there is no other the router ends, and
/// it goes back.
fn rehome(queue: &Arc<Queue>, closed: &Arc<Pool>, items: Vec<Item>) {
    let is_last = queue.recipient.pools.takes(&closed.code).is_some_and(|pool| pool.is_closed());
    if !is_last {
        return again(queue, items);
    }
    for item in items {
        item.held.hand_back(Duration::ZERO, Reason::Draining);
    }
}

/// Whether what does not fit goes back to its source: the paper's rule, where there is no window. Not what is
/// larger than its pool (docs/rules.md#route-3), nor what later ones of its group could come before
/// (docs/rules.md#strict-5).
fn goes_back(queue: &Queue, settings: &PoolSettings, refused: &[Item]) -> bool {
    let is_ordered = settings.ordering == Ordering::Strict && !queue.recipient.keeps_order;
    queue.recipient.settings.window == 0
        && !is_ordered
        && refused.len() <= settings.capacity() as usize
}

/// Lets messages in and says so.
fn enter(queue: &Queue, pool: &Arc<Pool>, items: Vec<Item>) -> Result<(), Vec<Item>> {
    if items.is_empty() {
        return Ok(());
    }
    let settings = pool.settings();
    for tracked in pool.admit(items, &settings)? {
        let message = &tracked.entry.message;
        queue.recipient.observe(&Fact::Admitted { pool: &pool.code, message });
        if pool.entered(message, &settings) {
            queue.recipient.observe(&Fact::UngroupedSerial { pool: &pool.code });
        }
    }
    Ok(())
}

/// Lets in what waits for a pool, as far as it has room, and has it tell of more.
fn fill(queue: &Arc<Queue>, pool: &Arc<Pool>, window: &mut State) {
    while window.awaits(pool) && !pool.is_closed() {
        let room = pool.places.room() as usize;
        if room == 0 {
            let who: Arc<dyn AwaitsRoom> = Arc::clone(queue) as _;
            pool.places.tell_of_room(&who, &pool.code);
            if pool.places.room() == 0 {
                return;
            }
            continue;
        }
        let items = window.pop(pool, room);
        if let Err(refused) = enter(queue, pool, items) {
            window.push_front(pool, refused);
            let who: Arc<dyn AwaitsRoom> = Arc::clone(queue) as _;
            pool.places.tell_of_room(&who, &pool.code);
            return;
        }
    }
}

/// Keeps back what must not run beside or before a message of its key that is in another pool, since pools came or
/// went: docs/rules.md#strict-6.
fn hold_behind(queue: &Queue, pool: &Pool, window: &mut State, items: Vec<Item>) -> Vec<Item> {
    if !queue.recipient.awaits_keys() {
        return items;
    }
    let elsewhere = elsewhere(queue, pool);
    let mut free = Vec::with_capacity(items.len());
    for item in items {
        let entry = &item.held.tracked().entry;
        let waits = window.behind.iter().any(|other| other.held.tracked().entry.same_key(entry));
        match waits || elsewhere.iter().any(|other| other.entry.same_key(entry)) {
            true => window.behind.push(item),
            false => free.push(item),
        }
    }
    free
}

/// The messages in other pools that some may have to wait for.
fn elsewhere(queue: &Queue, pool: &Pool) -> Vec<InFlightMessage> {
    let mut all = queue.owed.in_flight.each();
    all.retain(|other| {
        let place = if other.entry.ordered { other.entry.standing().place } else { None };
        place.is_some_and(|place| place.pool != pool.id)
    });
    all
}

/// Lets in what waits for a pool of this code, now that it has room; and finds another pool for what waited for one
/// that is gone.
pub(crate) fn has_room(queue: &Arc<Queue>, code: &str) {
    let homeless = queue.recipient.window.change(|window| {
        if let Some(pool) = queue.recipient.pools.takes(code) {
            fill(queue, &pool, window);
        }
        window.take_closed()
    });
    again(queue, homeless);
}

/// Looks again at what waited for a message of its key that is over.
pub(crate) fn look_behind(queue: &Arc<Queue>, over: &Routed) {
    let is_next = |item: &mut Item| item.held.tracked().entry.same_key(over);
    let waiting: Vec<Item> =
        queue.recipient.window.change(|window| window.behind.extract_if(.., is_next).collect());
    again(queue, waiting);
}

/// Routes messages again. What was received together stays so.
pub(crate) fn again(queue: &Arc<Queue>, items: impl IntoIterator<Item = Item>) {
    for part in by_pool(queue, items) {
        admit(queue, part);
    }
}

/// Brings together what must be handed back together where a pool keeps order within a batch: messages of one group
/// that were received together. In whatever pool they are now: they may wait, and run in another.
fn group(items: &mut [Item]) {
    if items.len() < 2 {
        return;
    }
    let key = |at: &usize| items[*at].held.tracked().entry.message.group.as_deref();
    let mut by_key: Vec<usize> = (0..items.len()).collect();
    by_key.sort_by_key(|at| key(at));
    let groups = by_key.chunk_by(|a, b| key(a) == key(b)).filter(|group| group.len() > 1);
    let groups: Vec<Vec<usize>> = groups.map(<[usize]>::to_vec).collect();
    for group in groups {
        let shared = Arc::<BatchGroup>::default();
        group.into_iter().for_each(|at| items[at].batch = Some(Arc::clone(&shared)));
    }
}
