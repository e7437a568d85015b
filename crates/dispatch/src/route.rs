//! Routing a batch, in the paper's three phases: dedupe, find the pool, admit.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering as Memory;
use std::time::Duration;

use tokio::time::Instant;

use crate::intake::{Begun, Entry as _, Held};
use crate::item::{BatchGroup, Item, Past};
use crate::places::AwaitsRoom;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::routed::{InFlightMessage, Line, Now, Place, Routed};
use crate::window::State;
use crate::{
    DEFAULT_DELAY, DEFAULT_POOL, Delivery, Fact, MIN_DELAY, Malformed, Message, Order, Ordering,
    Parked, ParkedCode, PoolSettings, Reason, Receipt, Settlement, UnknownPool,
};

/// The part of a batch that goes to one pool, in order.
struct Part {
    pool: Arc<Pool>,
    items: Vec<Item>,
}

/// What happened while messages were routed. It is told when that is over: whoever hears may ask the router.
#[derive(Default)]
struct Happened {
    /// Whether the messages are new: of others it was said already that their pool does not exist.
    is_new: bool,
    /// Messages whose pool does not exist.
    unknown: Vec<InFlightMessage>,
    admitted: Vec<(Arc<Pool>, Vec<InFlightMessage>)>,
    /// Pools in which messages without a group wait for each other beside idle permits.
    serial: Vec<Arc<Pool>>,
    /// What goes back for want of room.
    refused: Vec<(Arc<Pool>, Vec<Item>)>,
}

/// Routes a batch.
pub(crate) fn take_in(queue: &Arc<Queue>, batch: Vec<Delivery>) {
    let order = queue.recipient.pools.order();
    let fresh = dedupe(queue, batch, &order).into_iter();
    let items = fresh.map(|held| Item::new(held, Past::default()));
    route(queue, |_, happened| {
        happened.is_new = true;
        let items: Vec<Item> = items.collect();
        let now = queue.recipient.pools.order();
        if !Arc::ptr_eq(&order, &now) {
            items.iter().for_each(|item| item.held.tracked().entry.set_order(&now));
        }
        items
    });
}

/// Finds pools for messages and lets them in. The window is changed by one at a time, from where they are found to
/// where they wait or run: so nobody comes before those that were here.
fn route(queue: &Arc<Queue>, find: impl FnOnce(&mut State, &mut Happened) -> Vec<Item>) {
    let mut happened = Happened::default();
    queue.recipient.window.change(|window| {
        let items = find(window, &mut happened);
        let mut parts = by_pool(queue, items, &mut happened);
        if happened.is_new {
            parts.iter_mut().for_each(|part| group(&mut part.items));
        }
        for part in parts {
            admit(queue, window, part, &mut happened);
        }
    });
    happened.tell(queue);
}

impl Happened {
    fn tell(self, queue: &Queue) {
        let recipient = &queue.recipient;
        for tracked in &self.unknown {
            let Message { pool: code, id, .. } = &tracked.entry.message;
            recipient.observe(&Fact::UnknownPool { code, id });
        }
        for (pool, all) in &self.admitted {
            for tracked in all {
                let message = &tracked.entry.message;
                recipient.observe(&Fact::Admitted { pool: &pool.code, message });
            }
        }
        for pool in &self.serial {
            recipient.observe(&Fact::UngroupedSerial { pool: &pool.code });
        }
        for (pool, items) in self.refused {
            refuse(queue, &pool, items);
        }
    }
}

/// Phase 1: what is here already is not taken in twice.
fn dedupe(queue: &Arc<Queue>, batch: Vec<Delivery>, order: &Order) -> Vec<Held<Routed>> {
    let now = Instant::now();
    let recipient = &queue.recipient;
    let leaving = recipient.leaving_before();
    let mut fresh = Vec::with_capacity(batch.len());
    for delivery in batch {
        if leaving.iter().any(|before| runs(before, &delivery)) {
            let Delivery { receipt, attempts, message, broker_id } = delivery;
            let id = message.map_or_else(|_| Arc::clone(&broker_id), |message| message.id);
            return_later(queue, &id, broker_id, receipt, attempts, DEFAULT_DELAY);
            continue;
        }
        let Delivery { broker_id, receipt, attempts, message } = delivery;
        let message = match message {
            Ok(message) => message,
            Err(malformed) => {
                set_aside(queue, broker_id, receipt, malformed);
                continue;
            }
        };
        let ordered = order.keeps_message(&message);
        let entry = Routed::new(message, Arc::clone(queue.name()), ordered);
        let begun = queue.owed.in_flight.begin(
            Arc::clone(&broker_id),
            receipt.clone(),
            attempts,
            entry,
            now,
        );
        match begun {
            Begun::New(tracked) => {
                if attempts == 0 {
                    name_unknown_fields(queue, &tracked.entry.message);
                }
                fresh.push(queue.owed.hold(tracked));
            }
            Begun::Again(tracked, superseded) => {
                // The last first: none of them starts because another is taken out.
                superseded.iter().rev().for_each(|old| take_out(queue, old));
                fresh.push(queue.owed.hold(tracked));
            }
            Begun::Redelivered(tracked) => {
                let id = &tracked.entry.message.id;
                recipient.observe(&Fact::Redelivered { queue: queue.name(), id });
            }
            Begun::Requeued(id) => {
                recipient.observe(&Fact::Requeued { queue: queue.name(), id: &id });
                queue.owed.settle_stray(broker_id, receipt, Settlement::Ack, None);
            }
            Begun::Replayed(id) => {
                return_later(queue, &id, broker_id, receipt, attempts, MIN_DELAY);
            }
        }
    }
    fresh
}

fn runs(before: &Queue, delivery: &Delivery) -> bool {
    let id = delivery.message.as_ref().ok().map(|message| &*message.id);
    before.owed.in_flight.runs(&delivery.broker_id, id)
}

/// Takes a superseded message out of where it waits. One that runs ends by itself.
fn take_out(queue: &Queue, old: &InFlightMessage) {
    let item = match old.entry.standing().place {
        Some(place) => queue.recipient.pools.at(&place).and_then(|pool| pool.withdraw(place.item)),
        None => queue.recipient.window.withdraw(old),
    };
    if let Some(item) = item {
        old.entry.leave_place();
        item.held.let_go();
    }
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
        broker_id: Arc::clone(&broker_id),
        pool: None,
        code: ParkedCode::Malformed,
        reason: malformed.why,
        status: None,
        attempts: 0,
        holds_key: false,
        last_error: None,
        message: Err(malformed.raw),
    };
    queue.owed.settle_stray(broker_id, receipt, Settlement::Park, Some(Box::new(parked)));
}

/// What is not over elsewhere comes again when it is: a message that a queue of the same name still runs which is
/// leaving, or one whose parking is not over: docs/rules.md#dedupe-1, docs/rules.md#park-2.
fn return_later(
    queue: &Queue,
    id: &Arc<str>,
    broker_id: Arc<str>,
    receipt: Receipt,
    attempts: u32,
    after: Duration,
) {
    queue.recipient.observe(&Fact::Redelivered { queue: queue.name(), id });
    let settlement = Settlement::Retry { after, attempts, reason: Reason::Draining };
    queue.owed.settle_stray(broker_id, receipt, settlement, None);
}

/// Phase 2: the pool of each message, in the order in which the batch first names them.
fn by_pool(queue: &Queue, items: Vec<Item>, happened: &mut Happened) -> Vec<Part> {
    let pools = &queue.recipient.pools;
    let all = pools.all();
    let mut parts: Vec<Part> = Vec::new();
    for item in items {
        let tracked = item.held.tracked();
        let code = &tracked.entry.message.pool;
        let pool = match all.get(code) {
            Some(pool) => Arc::clone(pool),
            None if &**code == DEFAULT_POOL => pools.default_pool(),
            None => {
                if happened.is_new {
                    happened.unknown.push(Arc::clone(tracked));
                }
                if pools.unknown_pool() == UnknownPool::Park {
                    park_unknown(item.held);
                    continue;
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
        // Once there is such a pool it may be one that keeps order.
        holds_key: message.group.is_some(),
        last_error: None,
        message: Ok(message.clone()),
    };
    held.park(Box::new(parked), ());
}

/// Phase 3: all of a part at once, or it waits in the window until there is room; without a window it goes back:
/// docs/rules.md#route-1 and docs/rules.md#route-4.
fn admit(queue: &Arc<Queue>, window: &mut State, part: Part, happened: &mut Happened) {
    let Part { pool, items } = part;
    // One that closes from now on looks into the window afterwards.
    if pool.is_closed() {
        return rehome(queue, window, &pool, items, happened);
    }
    let settings = pool.settings();
    let items = hold_behind(queue, &pool, window, items);
    if window.awaits(&pool) {
        return window.push(&pool, items);
    }
    // What was asked for has its places.
    let fits = queue.recipient.selects || pool.places.room() as usize >= items.len();
    let refused = match fits {
        true => enter(&pool, items, happened).err().unwrap_or_default(),
        false => items,
    };
    if refused.is_empty() {
    } else if happened.is_new && goes_back(queue, &settings, &refused) {
        happened.refused.push((pool, refused));
    } else {
        window.push(&pool, refused);
        fill(queue, &pool, window, happened);
    }
}

/// Hands back what its pool has no room for.
fn refuse(queue: &Queue, pool: &Pool, items: Vec<Item>) {
    let count = items.len();
    if !queue.recipient.selects {
        pool.counts.refused.fetch_add(count as u64, Memory::Relaxed);
    }
    queue.recipient.observe(&Fact::PoolFull { pool: &pool.code, count });
    queue.recipient.refused();
    for item in items {
        item.hand_back(DEFAULT_DELAY, Reason::PoolFull);
    }
}

/// Finds another pool for what was on its way to one that has closed. Where there is no other the router ends, and
/// it goes back.
fn rehome(
    queue: &Arc<Queue>,
    window: &mut State,
    closed: &Arc<Pool>,
    items: Vec<Item>,
    happened: &mut Happened,
) {
    let next = queue.recipient.pools.takes(&closed.code);
    if next.is_none_or(|pool| !pool.is_closed()) {
        happened.is_new = false;
        for part in by_pool(queue, items, happened) {
            admit(queue, window, part, happened);
        }
        return;
    }
    for item in items {
        item.hand_back(Duration::ZERO, Reason::Draining);
    }
}

/// Whether what comes and does not fit goes back to its source: the paper's rule, where there is no window. Not what is
/// larger than its pool (docs/rules.md#route-3), nor what later ones of its group could come before
/// (docs/rules.md#strict-5).
fn goes_back(queue: &Queue, settings: &PoolSettings, refused: &[Item]) -> bool {
    let is_ordered =
        settings.ordering == Ordering::Strict && !queue.recipient.keeps_order.one_by_one();
    queue.recipient.settings.window == 0
        && !is_ordered
        && refused.len() <= settings.capacity() as usize
}

/// Lets messages in.
fn enter(pool: &Arc<Pool>, items: Vec<Item>, happened: &mut Happened) -> Result<(), Vec<Item>> {
    if items.is_empty() {
        return Ok(());
    }
    let settings = pool.settings();
    let admitted = pool.admit(items, &settings)?;
    let is_serial = |one: &InFlightMessage| pool.entered(&one.entry.message, &settings);
    if admitted.iter().filter(|one| is_serial(one)).count() > 0 {
        happened.serial.push(Arc::clone(pool));
    }
    happened.admitted.push((Arc::clone(pool), admitted));
    Ok(())
}

/// Lets in what waits for a pool, as far as it has room, and has it tell of more.
fn fill(queue: &Arc<Queue>, pool: &Arc<Pool>, window: &mut State, happened: &mut Happened) {
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
        if let Err(refused) = enter(pool, items, happened) {
            window.push_front(pool, refused);
            let who: Arc<dyn AwaitsRoom> = Arc::clone(queue) as _;
            pool.places.tell_of_room(&who, &pool.code);
            return;
        }
    }
}

/// Keeps back what must not run beside or before a message of its line that is in another pool, or has no key in its own,
/// since pools came, went or changed: docs/rules.md#strict-6. And what was superseded and still runs is waited for by what
/// stands for it, whatever keeps order: docs/rules.md#dedupe-1.
fn hold_behind(queue: &Queue, pool: &Pool, window: &mut State, items: Vec<Item>) -> Vec<Item> {
    let is_moving = queue.recipient.pools.is_moving();
    let superseded = queue.owed.in_flight.superseded();
    if !is_moving && superseded.is_empty() {
        return items;
    }
    let (order, settings) = (queue.recipient.pools.order(), pool.settings());
    let has_key = |message: &Message| settings.key_name(message).is_some();
    let has_line = |message: &Message| order.keeps_message(message) || has_key(message);
    let is_beside = |old: &InFlightMessage, new: &InFlightMessage| {
        let is_before =
            |place: Place| place.pool == pool.id && place.has_key && has_key(&new.entry.message);
        old.is_same(new) && !old.entry.standing().place.is_some_and(is_before)
    };
    let mut busy =
        if is_moving { elsewhere(queue, pool, &order, &settings) } else { HashSet::new() };
    let waiting = window.not_for(pool).map(|item| &item.held.tracked().entry);
    busy.extend(waiting.filter(|entry| has_line(&entry.message)).map(Routed::line));
    let mut free = Vec::with_capacity(items.len());
    for item in items {
        let tracked = item.held.tracked();
        // It was between two places: nobody could take it out.
        if tracked.is_superseded() {
            item.held.let_go();
            continue;
        }
        let line = tracked.entry.line();
        let is_ordered = has_line(&tracked.entry.message);
        let waits = (is_ordered && busy.contains(&line))
            || superseded.iter().any(|old| is_beside(old, tracked));
        if !waits {
            free.push(item);
            continue;
        }
        if is_ordered {
            busy.insert(line);
        }
        window.behind.push(item);
    }
    free
}

/// The lines of messages that are in other pools, or have no key in their own: some may have to wait for them.
fn elsewhere(queue: &Queue, pool: &Pool, order: &Order, settings: &PoolSettings) -> HashSet<Line> {
    let is_elsewhere = |other: &InFlightMessage| {
        let message = &other.entry.message;
        let standing = other.entry.standing();
        standing.place.is_some_and(|place| match place.pool == pool.id {
            // One that is displaced is let in again, should it fail.
            true => {
                let has_turn = place.has_key && !standing.is_displaced;
                !has_turn && settings.key_name(message).is_some()
            }
            false => order.keeps_message(message),
        })
    };
    let lines = |of: &Queue, counts: &dyn Fn(&InFlightMessage) -> bool| -> Vec<Line> {
        let all = of.owed.in_flight.each_that_may_run();
        let busy = all.iter().filter(|other| counts(other) && is_elsewhere(other));
        busy.map(|other| other.entry.line()).collect()
    };
    let mut busy: HashSet<Line> = lines(queue, &|_| true).into_iter().collect();
    for before in queue.recipient.leaving_before() {
        // Nothing of it goes from its window to a pool, or back, between the two looks.
        busy.extend(before.recipient.window.lines(|| lines(&before, &|_| true)));
    }
    // What came later waits for what was here before; but what runs of it is waited for.
    for after in queue.recipient.coming_after() {
        busy.extend(lines(&after, &|later| later.entry.standing().now.is_running()));
    }
    busy
}

/// Lets in what waits for a pool of this code, now that it has room; and finds another pool for what waited for one
/// that is gone.
pub(crate) fn has_room(queue: &Arc<Queue>, code: &str) {
    route(queue, |window, happened| {
        if let Some(pool) = queue.recipient.pools.takes(code) {
            fill(queue, &pool, window, happened);
        }
        window.take_closed()
    });
}

/// Looks again at what waited for a message that is over: others of its line, or a copy of it.
pub(crate) fn look_behind(queue: &Arc<Queue>, over: &Routed) {
    let is_next = |item: &mut Item| {
        let entry = &item.held.tracked().entry;
        entry.same_line(over) || entry.message.id == over.message.id
    };
    route(queue, |window, _| window.behind.extract_if(.., is_next).collect());
}

/// Finds pools again for all that waits, after what was in a pool that is gone: they have changed.
pub(crate) fn look_again(queue: &Arc<Queue>, homeless: Vec<Item>) {
    route(queue, |window, _| {
        // Until now others of their groups waited behind them.
        homeless.iter().for_each(|item| item.held.tracked().entry.leave_place());
        let mut all: Vec<Item> = homeless.into_iter().chain(window.take_all()).collect();
        // Of those that come back one by one the first to come was not always the first to be received.
        all.sort_by_key(|item| item.held.tracked().number);
        all
    });
}

/// What waits in the default pool goes to its own, which is back: docs/rules.md#pool-5. It goes by its source, but for
/// what later ones of its group could come before. Nothing of this queue is let in meanwhile.
pub(crate) fn bring_home(queue: &Arc<Queue>, code: &Arc<str>) {
    let is_away = |tracked: &InFlightMessage| {
        let place = tracked.entry.standing().place?;
        let is_its = &*place.code == DEFAULT_POOL && tracked.entry.message.pool == *code;
        is_its.then_some(place)
    };
    route(queue, |window, _| {
        let away: Vec<_> = queue.owed.in_flight.all().iter().filter_map(is_away).collect();
        // The last first: none of them starts because another is taken out.
        let take_out = |place: &Place| queue.recipient.pools.at(place)?.withdraw(place.item);
        let mut items: Vec<Item> = away.iter().rev().filter_map(take_out).collect();
        items.reverse();
        let stays = |item: &Item| {
            let entry = &item.held.tracked().entry;
            entry.is_ordered() && !item.comes_alone() && !entry.is_acked()
        };
        let (stay, back): (Vec<Item>, Vec<Item>) = items.into_iter().partition(stays);
        back.into_iter().for_each(Item::drain);
        stay.iter().for_each(|item| item.held.tracked().entry.leave_place());
        stay.into_iter().map(Item::at_once).chain(window.take_all()).collect()
    });
}

/// What waits or rests in a pool that begins to keep order is let in again: with its key, and behind those of its line that
/// run without one or in another pool. What runs beside them is noted: should it fail, it is let in again too. A head
/// that rests with its key and alone is where it belongs.
pub(crate) fn let_in_again(queue: &Arc<Queue>, pool: &Arc<Pool>) {
    let settings = pool.settings();
    let is_strict = settings.ordering == Ordering::Strict;
    route(queue, |window, _| {
        let busy = elsewhere(queue, pool, &queue.recipient.pools.order(), &settings);
        let is_to_move = |tracked: &InFlightMessage| {
            let standing = tracked.entry.standing();
            let place = standing.place.filter(|place| place.pool == pool.id)?;
            let is_alone = !busy.contains(&tracked.entry.line());
            if standing.now.is_running() && !is_alone {
                tracked.entry.displace();
            }
            let is_head = standing.now.is_resting() && (is_alone || standing.now == Now::Blocked);
            let has_line = settings.key_name(&tracked.entry.message).is_some();
            let is_where_it_belongs = place.has_key && (!is_strict || is_head);
            (has_line && !is_where_it_belongs).then_some(place)
        };
        let all = queue.owed.in_flight.all();
        let to_move = all.iter().filter_map(|one| Some((one, is_to_move(one)?)));
        let waiting: Vec<(&InFlightMessage, Place)> = to_move.collect();
        // The last first: none of them starts because another is taken out.
        let take_out = |(tracked, place): &(&InFlightMessage, Place)| {
            let item = pool.withdraw(place.item);
            if item.is_none() && busy.contains(&tracked.entry.line()) {
                // It has its turn already.
                tracked.entry.displace();
            }
            item
        };
        let mut items: Vec<Item> = waiting.iter().rev().filter_map(take_out).collect();
        items.reverse();
        items.iter().for_each(|item| item.held.tracked().entry.leave_place());
        items.into_iter().chain(window.take_all()).collect()
    });
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
        group.into_iter().for_each(|at| items[at].past.batch = Some(Arc::clone(&shared)));
    }
}
