//! Routing a batch, in the paper's three phases: dedupe, find the pool, admit.

use std::sync::Arc;

use sluicegate_tasks::Context;
use tokio::time::Instant;

use crate::ledger::{Held, Taken};
use crate::pool::{Fellows, Item, Pool};
use crate::queue::Queue;
use crate::router::Core;
use crate::{
    DEFAULT_DELAY, DEFAULT_POOL, Delivery, Fact, Malformed, Message, OnExhausted, Ordering, Parked,
    ParkedCode, PoolSettings, Reason, Receipt, Settlement,
};

/// The part of a batch that goes to one pool, in order.
struct Part {
    pool: Arc<Pool>,
    held: Vec<Held>,
}

/// Routes a batch. Returns the pools it went to.
///
/// Dropped while it waits for room, it hands back what is not admitted yet.
pub(crate) async fn route(
    core: &Arc<Core>,
    queue: &Arc<Queue>,
    batch: Vec<Delivery>,
    cx: &Context,
) -> Vec<Arc<Pool>> {
    let fresh = dedupe(core, queue, batch);
    let parts = by_pool(core, fresh);
    let pools = parts.iter().map(|part| Arc::clone(&part.pool)).collect();
    let mut waiting = Vec::new();
    for part in parts {
        waiting.extend(admit(core, queue, part));
    }
    for part in waiting {
        admit_in_pieces(core, part, cx).await;
    }
    pools
}

/// Phase 1: what is here already is not taken in twice.
fn dedupe(core: &Core, queue: &Arc<Queue>, batch: Vec<Delivery>) -> Vec<Held> {
    let now = Instant::now();
    let leaving = core.leaving_before(queue);
    let mut fresh = Vec::with_capacity(batch.len());
    for delivery in batch {
        if leaving.iter().any(|before| before.ledger.in_flight.runs(&delivery)) {
            return_later(core, queue, delivery);
            continue;
        }
        let is_first = delivery.attempts == 0;
        match queue.ledger.begin(delivery, now) {
            Taken::New(held) => {
                if is_first {
                    name_unknown_fields(core, queue, &held.tracked().message);
                }
                fresh.push(held);
            }
            Taken::Redelivered { id } => {
                core.observe(&Fact::Redelivered { queue: &queue.name, id: &id });
            }
            Taken::Requeued { id, receipt } => {
                core.observe(&Fact::Requeued { queue: &queue.name, id: &id });
                queue.ledger.end_stray(receipt, Settlement::Ack, None);
            }
            Taken::Malformed { broker_id, receipt, malformed } => {
                set_aside(core, queue, broker_id, receipt, malformed);
            }
        }
    }
    fresh
}

/// Says which fields of a message nobody knows: they are mostly misspelt.
fn name_unknown_fields(core: &Core, queue: &Queue, message: &Message) {
    for field in &message.unknown_fields {
        core.observe(&Fact::UnknownField { queue: &queue.name, field, id: &message.id });
    }
}

fn set_aside(
    core: &Core,
    queue: &Queue,
    broker_id: Arc<str>,
    receipt: Receipt,
    malformed: Malformed,
) {
    core.observe(&Fact::Malformed { queue: &queue.name, why: &malformed.why });
    let parked = Parked {
        queue: Arc::clone(&queue.name),
        broker_id,
        pool: None,
        code: ParkedCode::Malformed,
        reason: malformed.why,
        status: None,
        attempts: 0,
        holds_key: false,
        message: Err(malformed.raw),
    };
    queue.ledger.end_stray(receipt, Settlement::Ack, Some(Box::new(parked)));
}

/// What a queue of the same name that is leaving still runs comes again when that is over:
/// docs/rules.md#dedupe-1.
fn return_later(core: &Core, queue: &Queue, delivery: Delivery) {
    let Delivery { receipt, attempts, message, broker_id } = delivery;
    let id = message.map_or(broker_id, |message| message.id);
    core.observe(&Fact::Redelivered { queue: &queue.name, id: &id });
    let settlement = Settlement::Retry { after: DEFAULT_DELAY, attempts, reason: Reason::Draining };
    queue.ledger.end_stray(receipt, settlement, None);
}

/// Phase 2: the pool of each message, in the order in which the batch first names them.
fn by_pool(core: &Arc<Core>, fresh: Vec<Held>) -> Vec<Part> {
    let pools = core.pools();
    let mut parts: Vec<Part> = Vec::new();
    for held in fresh {
        let message = &held.tracked().message;
        let pool = match pools.get(&message.pool) {
            Some(pool) => Arc::clone(pool),
            None => {
                if &*message.pool != DEFAULT_POOL {
                    let (code, id) = (&message.pool, &message.id);
                    core.observe(&Fact::UnknownPool { code, id });
                }
                core.default_pool()
            }
        };
        // Batches are small, and their pools few.
        match parts.iter_mut().find(|part| Arc::ptr_eq(&part.pool, &pool)) {
            Some(part) => part.held.push(held),
            None => parts.push(Part { pool, held: vec![held] }),
        }
    }
    parts
}

/// Phase 3: all of a part or none of it: docs/rules.md#route-1. Returns a part that has to wait: it is
/// larger than its pool, or must not be handed back.
fn admit(core: &Arc<Core>, queue: &Queue, part: Part) -> Option<Part> {
    let Part { pool, held } = part;
    let settings = pool.settings();
    let held = without_parked_keys(core, &pool, &settings, held);
    if held.len() > pool.sluice.capacity() as usize {
        return Some(Part { pool, held });
    }
    let items = fellowship(&settings, held);
    if let Err(refused) = enter(core, &pool, items) {
        // Handed back, later ones of its groups could come before it: docs/rules.md#strict-5.
        let is_ordered =
            settings.ordering == Ordering::Strict && !queue.source().profile().keeps_order;
        if is_ordered && !pool.is_closed() {
            let held = refused.into_iter().map(|item| item.held).collect();
            return Some(Part { pool, held });
        }
        hand_back(core, &pool, refused);
    }
    None
}

/// Lets messages in and says so.
fn enter(core: &Arc<Core>, pool: &Arc<Pool>, items: Vec<Item>) -> Result<(), Vec<Item>> {
    if items.is_empty() {
        return Ok(());
    }
    let settings = pool.settings();
    for tracked in pool.admit(items, &settings)? {
        core.observe(&Fact::Admitted { pool: &pool.code, message: &tracked.message });
        if pool.entered(&tracked.message, &settings) {
            core.observe(&Fact::UngroupedSerial { pool: &pool.code });
        }
    }
    Ok(())
}

fn hand_back(core: &Core, pool: &Pool, refused: Vec<Item>) {
    core.observe(&Fact::PoolFull { pool: &pool.code, count: refused.len() });
    for item in refused {
        item.held.hand_back(DEFAULT_DELAY, Reason::PoolFull);
    }
}

/// Lets a part in that is larger than its pool, piece by piece as room appears:
/// docs/rules.md#route-3.
async fn admit_in_pieces(core: &Arc<Core>, part: Part, cx: &Context) {
    let Part { pool, held } = part;
    let mut rest: std::collections::VecDeque<Item> = fellowship(&pool.settings(), held).into();
    while !rest.is_empty() {
        let piece = rest.len().min(pool.sluice.capacity().max(1) as usize).min(64);
        let room = pool.sluice.room_for(piece as u32);
        if cx.until_interrupted(room).await.is_err() {
            return give_up(rest, std::time::Duration::ZERO, Reason::Draining);
        }
        let items: Vec<Item> = rest.drain(..piece).collect();
        let items = still_free(core, &pool, items);
        if let Err(refused) = enter(core, &pool, items) {
            if pool.is_closed() {
                let all = refused.into_iter().chain(rest);
                return give_up(all, DEFAULT_DELAY, Reason::PoolFull);
            }
            refused.into_iter().rev().for_each(|item| rest.push_front(item));
        }
    }
}

/// Without what belongs to a key that was parked while it waited.
fn still_free(core: &Core, pool: &Pool, items: Vec<Item>) -> Vec<Item> {
    let settings = pool.settings();
    if settings.ordering != Ordering::Strict {
        return items;
    }
    let held = items.into_iter().map(|item| item.held).collect();
    fellowship(&settings, without_parked_keys(core, pool, &settings, held))
}

/// Hands back what waited for room that will not come.
fn give_up(items: impl IntoIterator<Item = Item>, after: std::time::Duration, reason: Reason) {
    for item in items {
        item.held.hand_back(after, reason);
    }
}

/// What belongs to a key that is parked with its tail is parked too: docs/rules.md#strict-4.
fn without_parked_keys(
    core: &Core,
    pool: &Pool,
    settings: &PoolSettings,
    held: Vec<Held>,
) -> Vec<Held> {
    if settings.ordering != Ordering::Strict || settings.on_exhausted != OnExhausted::Park {
        return held;
    }
    let mut free = Vec::with_capacity(held.len());
    for held in held {
        let tracked = held.tracked();
        let parked = settings.key(&tracked.message).filter(|key| {
            let parked = &core.parked;
            pool.parks_key(held.queue(), key)
                || (parked.holds_key(held.queue(), &pool.code, key)
                    && !parked.lets_pass(held.queue(), &tracked.message.id))
        });
        match parked {
            Some(key) => park_in_tail(pool, held, &key),
            None => free.push(held),
        }
    }
    free
}

/// Parks a message behind a parked one of its key. Until it is kept, the key is taken for parked, also
/// if somebody frees it meanwhile.
pub(crate) fn park_in_tail(pool: &Pool, held: Held, key: &Arc<str>) {
    let tracked = held.tracked();
    let parked = Parked {
        queue: Arc::clone(held.queue()),
        broker_id: Arc::clone(&tracked.broker_id),
        pool: Some(Arc::clone(&pool.code)),
        code: ParkedCode::KeyParked,
        reason: "an earlier message of its group is parked".to_owned(),
        status: None,
        attempts: tracked.attempts(),
        holds_key: true,
        message: Ok(tracked.message.clone()),
    };
    let parking = pool.park_key(held.queue(), key);
    held.settle(Settlement::Ack, Some(Box::new(parked)), None, Some(parking));
}

/// Brings together what must be handed back together: messages of one group, in the order of the
/// batch, where the pool keeps order within a batch.
fn fellowship(settings: &PoolSettings, held: Vec<Held>) -> Vec<Item> {
    if settings.ordering != Ordering::Batch || held.len() < 2 {
        return held.into_iter().map(|held| Item { held, fellows: None }).collect();
    }
    let keys: Vec<_> = held.iter().map(|held| settings.key_name(&held.tracked().message)).collect();
    let mut by_key: Vec<usize> = (0..held.len()).filter(|at| keys[*at].is_some()).collect();
    by_key.sort_unstable_by_key(|at| keys[*at]);
    let mut fellows: Vec<Option<Arc<Fellows>>> = vec![None; held.len()];
    for group in by_key.chunk_by(|a, b| keys[*a] == keys[*b]).filter(|group| group.len() > 1) {
        let shared = Arc::<Fellows>::default();
        group.iter().for_each(|at| fellows[*at] = Some(Arc::clone(&shared)));
    }
    let with = |(held, fellows)| Item { held, fellows };
    held.into_iter().zip(fellows).map(with).collect()
}
