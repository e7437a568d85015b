//! The task that claims messages while someone asks for them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_dispatch::{
    DEFAULT_GROUP, Delivery, Envelope, Order, Ordered, Receipt, SourceError,
};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Row;

use super::front::{Claimed, Front};
use super::settle::hand_back;
use super::shared::{Shared, micros};
use super::wants::Wants;
use crate::Content;
use crate::network::pause::Pauses;

pub(crate) const CLAIM: &str =
    "SELECT * FROM {s}.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";

/// How long a message may go unnoticed that nobody told of.
const POLL: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How many bytes of bodies are claimed at once, but for the first one.
const MOST_BYTES: i64 = 16 * 1024 * 1024;
/// Of how many pools it is remembered whose turn was last.
const REMEMBERED: usize = 4096;

/// Claims until the context ends.
pub(crate) async fn run<M: Content>(cx: Context, shared: Arc<Shared>, front: Arc<Front<M>>) {
    // What is claimed while it ends comes back when its window does.
    let claim = claim_for_ever(&shared, &front);
    tokio::select! {
        _ = cx.cancelled() => {}
        () = claim => {}
    }
}

async fn claim_for_ever<M: Content>(shared: &Shared, front: &Front<M>) {
    let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut turns = Turns::default();
    // What nothing was there for, and until when that is so as far as is known.
    let mut dry: Option<(Wants, Instant)> = None;
    loop {
        let stale = front.take_stale();
        if !stale.is_empty() {
            // Failing that, they come back when their windows end.
            hand_back(shared, stale).await.ok();
            dry = None;
        }
        let wants = front.wants();
        if wants.is_empty() {
            idle(front).await;
            continue;
        }
        if let Some((known, until)) = &dry
            && !wants.exceeds(known)
            && Instant::now() < *until
        {
            let until = front.next_stale().map_or(*until, |stale| stale.min(*until));
            tokio::select! {
                () = shared.wake.notified() => dry = None,
                () = front.asked.notified() => {}
                () = sleep_until(until) => {}
            }
            continue;
        }
        dry = None;
        let since = Instant::now();
        match claim::<M>(shared, &wants, &mut turns).await {
            Ok(Answer::Some(claimed)) => {
                pauses.reset();
                let unwanted = front.put(since, claimed);
                if !unwanted.is_empty() {
                    hand_back(shared, unwanted).await.ok();
                }
            }
            Ok(Answer::None(rest)) => {
                pauses.reset();
                dry = Some((wants, Instant::now() + rest.min(POLL)));
            }
            Err(error) => {
                front.fail(error);
                sleep(pauses.next()).await;
            }
        }
    }
}

/// Waits until someone asks, or something lies here for too long.
async fn idle<M>(front: &Front<M>) {
    match front.next_stale() {
        Some(stale) => {
            timeout(stale.saturating_duration_since(Instant::now()), front.asked.notified())
                .await
                .unwrap_or_default()
        }
        None => front.asked.notified().await,
    }
}

/// What a claim gave.
enum Answer<M> {
    Some(Vec<Claimed<M>>),
    /// Nothing, and how long it stays so as far as is known.
    None(Duration),
}

/// Whose turn it is, for this daemon: each has its own, so that none waits for another.
#[derive(Debug, Default)]
struct Turns {
    /// Of each pool the tenant that was last.
    tenants: HashMap<Arc<str>, Vec<u8>>,
    /// Where among the pools the last claim ended.
    named_at: Vec<u8>,
    others_at: Vec<u8>,
    others_first: bool,
}

/// The pools as the database is told of them.
#[derive(Debug, Default)]
struct Columns<'a> {
    codes: Vec<&'a [u8]>,
    rooms: Vec<i32>,
    orders: Vec<i16>,
    tenants: Vec<Option<&'a [u8]>>,
}

impl<'a> Columns<'a> {
    fn new(wants: &'a Wants, order: &'a Order, turns: &'a Turns) -> Self {
        // Those of them that nobody named have their place with the others.
        let ordered = order.pools().map(|(pool, _)| (&**pool, None));
        let known = turns.tenants.keys().map(|pool| (&**pool, None));
        let wanted = wants.pools.iter().map(|(pool, room)| (&**pool, Some(*room)));
        let pools: BTreeMap<&str, Option<u32>> = ordered.chain(known).chain(wanted).collect();
        let mut columns = Self::default();
        for (pool, room) in pools {
            let room = room.map_or(-1, |room| i32::try_from(room).unwrap_or(i32::MAX));
            columns.codes.push(pool.as_bytes());
            columns.rooms.push(room);
            columns.orders.push(kept(order.of(pool)));
            columns.tenants.push(turns.tenants.get(pool).map(Vec::as_slice));
        }
        columns
    }
}

/// What is kept in order, as the database knows it: 1 are messages with a group, 2 are those without.
const fn kept(ordered: Ordered) -> i16 {
    match ordered {
        Ordered::Nothing => 0,
        Ordered::Groups => 1,
        Ordered::All => 3,
    }
}

async fn claim<M: Content>(
    shared: &Shared,
    wants: &Wants,
    turns: &mut Turns,
) -> Result<Answer<M>, SourceError> {
    let queue = shared.queue().await?;
    let order = shared.order();
    let count = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
    let (most, others) = (count(wants.most as u64), count(wants.others.into()));
    let (span, others_kept) = (span(shared.settings.visibility), kept(order.others()));
    let who = shared.instance.load(Ordering::Acquire);
    let rows = {
        let Columns { codes, rooms, orders, tenants } = Columns::new(wants, &order, turns);
        let Turns { named_at, others_at, others_first, .. } = &*turns;
        shared
            .link
            .rows(
                &shared.sql.claim,
                &[
                    &queue,
                    &codes,
                    &rooms,
                    &orders,
                    &tenants,
                    &others,
                    &others_kept,
                    named_at,
                    others_at,
                    others_first,
                    &most,
                    &MOST_BYTES,
                    &span,
                    &who,
                ],
            )
            .await?
    };
    turns.go_on(&rows);
    if let [row] = &rows[..]
        && row.get::<_, Option<i64>>(0).is_none()
    {
        let rest = row.get::<_, Option<i64>>(10).map(|rest| u64::try_from(rest).unwrap_or(0));
        // A millisecond more, for timers that are early are late by a round.
        let rest = rest.map_or(POLL, |rest| Duration::from_micros(rest + 1000));
        return Ok(Answer::None(rest));
    }
    let mut in_turn: Vec<&Row> = rows.iter().collect();
    in_turn.sort_by_key(|row| row.get::<_, i32>(9));
    Ok(Answer::Some(in_turn.into_iter().map(|row| read(shared, row)).collect()))
}

impl Turns {
    /// Those whose turn it was are last now.
    fn go_on(&mut self, rows: &[Row]) {
        self.others_first = !self.others_first;
        let Some(first) = rows.first() else { return };
        self.named_at = first.get(11);
        self.others_at = first.get(12);
        let mut last: HashMap<&[u8], (i32, &[u8])> = HashMap::new();
        for row in rows.iter().filter(|row| row.get::<_, Option<i64>>(0).is_some()) {
            let turn = (row.get(9), row.get(8));
            let known = last.entry(row.get(7)).or_insert(turn);
            *known = turn.max(*known);
        }
        if self.tenants.len() + last.len() > REMEMBERED {
            self.tenants.clear();
        }
        for (pool, (_, tenant)) in last {
            self.tenants.insert(text(pool), tenant.to_vec());
        }
    }
}

/// How long a claim holds: the window, and what may pass before somebody takes it.
pub(crate) fn span(visibility: Duration) -> i64 {
    micros(visibility) + micros(shelf_life(visibility))
}

/// How long something claimed may wait to be taken. Its claim is longer by that.
pub(crate) fn shelf_life(visibility: Duration) -> Duration {
    (visibility / 8).min(Duration::from_millis(500))
}

fn text(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}

fn read<M: Content>(shared: &Shared, row: &Row) -> Claimed<M> {
    let seq: i64 = row.get(0);
    let group: &[u8] = row.get(5);
    let envelope = Envelope {
        body: Bytes::copy_from_slice(row.get(6)),
        id: Some(text(row.get(4))),
        event_type: None,
        routing_key: Some(shared.settings.queue.as_str().into()),
        group: (group != DEFAULT_GROUP.as_bytes()).then(|| text(group)),
        headers: Vec::new(),
        redelivered: row.get(3),
    };
    let delivery = Delivery {
        broker_id: seq.to_string().into(),
        receipt: Receipt {
            tag: seq.cast_unsigned(),
            generation: row.get::<_, i64>(1).cast_unsigned(),
            handle: None,
        },
        attempts: u32::try_from(row.get::<_, i32>(2)).unwrap_or(0),
        message: M::read(envelope),
    };
    Claimed { pool: text(row.get(7)), delivery }
}
