//! What of a queue is in memory: what is out, what is read ahead of the file, and whose turn it is.
//!
//! It is plain state, told the time and changed under one lock; nobody reads the file under it.
//!
//! ```text
//! ReadAhead ─┬─ Pool (by number) ─┬─ Lane (by number): ready, cursors, what is due
//!            │                    └─ Turns: virtual time between the lanes of the pool
//!            ├─ turns of the pools that may have something to hand out
//!            ├─ hungry: pools to read for          ──▶ Fetch ──▶ the file ──▶ Fetched
//!            ├─ heads: of each key that is kept in order, the one that the others wait behind
//!            └─ out: what was handed out
//! ```
//!
//! A lane is a tenant of a pool. What is published tells which lanes it touched; what another process wrote is
//! found by number and tells the same. Each lane is read by itself: by number with a cursor for each class
//! of priority, by time with another. What is put back is told message by message, since it may lie before the
//! cursor. [`ReadAhead::take`] asks the pool that was served longest ago, and of it the lane that was served least. A
//! pool whose next message must be read waits for that, and one that has no room is shut until it is said to be open:
//! neither is looked at again before, and no other waits for them.
//!
//! Invariants:
//! 1. Of each message that is not out, either it is `ready` in its lane, or it lies beyond the lane's cursor,
//!    or its time is beyond the lane's `due_cursor`, or its key has a head (where order is kept), and whichever
//!    of these ends last brings it into `ready`: once. What a lane's cursor reads again changes nothing, so it may go
//!    back: it does for messages that are put back when more of them are known than are read ahead.
//! 2. A key is in `heads` exactly while a message of it is ready, out, or waits for its time with
//!    nothing of its key before it, or the next of it is looked up. A message that is put back and may go before the
//!    head, or has none, has the next looked up on a snapshot that is younger than it; before a head that is out, once
//!    that is out no more.
//! 3. A message is out exactly while it is in `out`; its receipt is valid exactly as long.
//! 4. A pool has a turn exactly while it is not shut, does not await reading and has a lane with a turn. A lane
//!    has one exactly while it has anything to hand out or to read.
//! 5. What is being taken out by hand is not handed out until it is known whether the file let it go.
//! 6. No step takes longer for more lanes, pools, keys or messages, but by the depth of a tree.

mod fetch;
mod lane;
mod leaving;
mod line;
mod openings;
mod order;
mod pool;
mod put_back;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Demand, Openings, Order, Receipt};
use tokio::time::Instant;

use super::hash::{Map, Set};
use super::row::{Key, Raised, Row, Touched};
use super::schema;
pub(crate) use fetch::{Choice, Fetch, Fetched, Found, LaneFetch, LaneFetched};
pub(crate) use lane::REGULAR;
use lane::{Next, rank};
pub(crate) use leaving::Leaving;
use order::HeadOf;
use pool::Pool;

/// Why and until when a message is not deliverable, after it was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// It is deleted.
    Gone,
    /// It is deliverable at once.
    Now,
    /// It is deliverable at this time.
    At(i64),
}

/// How a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was handed out.
    Out,
    /// It is kept back by nothing of its key.
    Free,
    /// It waits behind this head of its key, or behind one that is not known here.
    Behind(Option<i64>),
}

/// A message that was handed out.
#[derive(Debug)]
struct Out {
    generation: u64,
    until: Instant,
    /// It is being settled: it stays out until that has ended.
    settling: bool,
    /// Until when it rests with whoever has it, by either clock.
    rests: Option<(Instant, i64)>,
    lane: i64,
    key: Key,
    high: bool,
}

/// Whether the lanes of the queue are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    /// Nobody has asked yet.
    Unknown,
    Looking,
    Known,
}

#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// The first number of this queue.
    base: i64,
    /// How many messages are read ahead.
    ahead: usize,
    /// What stays in order.
    order: Arc<Order>,
    pools: Map<i64, Pool>,
    /// The pools that may have something to hand out, by when they were last served.
    turns: BTreeSet<(u64, i64)>,
    served: u64,
    /// The pools that are shut, and who says when they open.
    shut: Map<Arc<str>, i64>,
    openings: Option<Arc<Openings>>,
    /// How many pools that are not shut have anything to hand out or to read.
    open: usize,
    /// The pools to read for.
    hungry: VecDeque<i64>,
    /// When the next time of a lane comes, for each pool and lane.
    alarms: BTreeSet<(i64, i64, i64)>,
    /// How many bodies are read ahead, and how long they are together.
    loaded: usize,
    bytes: usize,
    out: Map<i64, Out>,
    /// When each message that is out comes back.
    ends: BTreeSet<(Instant, i64)>,
    /// What is being taken out by hand.
    leaving: Map<i64, Leaving>,
    heads: Map<Key, HeadOf>,
    /// Keys whose head is gone: the next is looked up.
    choosing: Vec<Key>,
    lanes: Lanes,
    /// The last number of which it is known which lane it touches.
    known: i64,
    /// Whether there may be messages beyond `known`.
    fresh: bool,
    /// Whether someone reads for it.
    fetching: bool,
    /// Counts rebuilds: what was read for an earlier one is worth nothing.
    epoch: u64,
    /// Messages of high priority that came while someone read.
    raised: Vec<(Key, Raised)>,
    /// Messages that came back while someone read: what was read of them is out of date.
    came_back: Set<i64>,
    /// Those of them that wait for a time, which whoever reads by time may pass.
    delayed_back: Vec<(Key, Row)>,
    generation: u64,
    read_error: Option<String>,
}

/// How many messages are read ahead, unless told. Below half of that more are read.
pub(crate) const AHEAD: usize = 1024;
/// How many messages of a pool are handed out one after the other, in a turn among the pools: their entries lie on the
/// same pages of the indexes, which are written for each batch that is settled.
const IN_A_TURN: usize = 8;
/// How long the bodies that were read ahead may be, together.
const AHEAD_BYTES: usize = 8 * 1024 * 1024;

impl ReadAhead {
    pub(crate) fn new(queue: i64, generation: u64, ahead: usize) -> Self {
        let base = schema::base(queue);
        Self {
            base,
            ahead: ahead.max(1),
            order: Arc::default(),
            pools: Map::default(),
            turns: BTreeSet::new(),
            served: 0,
            shut: Map::default(),
            openings: None,
            open: 0,
            hungry: VecDeque::new(),
            alarms: BTreeSet::new(),
            loaded: 0,
            bytes: 0,
            out: Map::default(),
            ends: BTreeSet::new(),
            leaving: Map::default(),
            heads: Map::default(),
            choosing: Vec::new(),
            lanes: Lanes::Unknown,
            known: base,
            fresh: false,
            fetching: false,
            epoch: 0,
            raised: Vec::new(),
            came_back: Set::default(),
            delayed_back: Vec::new(),
            generation,
            read_error: None,
        }
    }

    /// Hands out what there is demand for, as far as it is read.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        time: i64,
        visibility: Duration,
        demand: &Demand,
    ) -> Vec<Delivery> {
        self.expire(now);
        self.wake(time);
        self.hear(demand);
        let mut taken = Vec::with_capacity(demand.most().min(self.loaded));
        while taken.len() < demand.most()
            && let Some(&(_, id)) = self.turns.first()
        {
            let Some(pool) = self.pools.get(&id) else { break };
            let next = pool.next();
            if let Some((lane, Next::Take)) = next
                && self.passes_over(id, lane)
            {
                continue;
            }
            let Some(pool) = self.pools.get_mut(&id) else { break };
            match next {
                Some((lane, Next::Take)) if demand.take(&pool.code) => {
                    taken.extend(self.hand_out(id, lane, now + visibility));
                }
                Some((_, Next::Take)) => {
                    pool.is_shut = true;
                    self.shut.insert(Arc::clone(&pool.code), id);
                    self.place(id);
                }
                Some((_, Next::Read | Next::Nothing)) | None => {
                    pool.awaits_reading = true;
                    self.place(id);
                }
            }
        }
        taken
    }

    fn hand_out(&mut self, id: i64, lane: i64, until: Instant) -> Option<Delivery> {
        self.served += 1;
        let served = self.served;
        let ((class, seq), group, content) = self.change(id, |pool| {
            let taken = pool.take(lane);
            pool.in_turn += 1;
            if pool.in_turn == IN_A_TURN {
                pool.in_turn = 0;
                pool.served = served;
            }
            taken
        })??;
        self.generation += 1;
        let generation = self.generation;
        let key = Key { pool: id, group };
        if !self.heads.is_empty()
            && let Some(head) = self.heads.get_mut(&key)
        {
            head.is_out();
        }
        let high = class == lane::HIGH;
        self.ends.insert((until, seq));
        let (settling, rests) = (false, None);
        self.out.insert(seq, Out { generation, until, settling, rests, lane, key, high });
        Some(Delivery {
            broker_id: schema::within(seq).to_string().into(),
            receipt: Receipt { tag: seq.cast_unsigned(), generation, handle: None },
            attempts: content.attempts,
            message: content.message,
        })
    }

    /// Changes a pool; then it takes its place, or leaves it.
    fn change<T>(&mut self, id: i64, change: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        let pool = self.pools.get_mut(&id)?;
        let (loaded, bytes, served) = (pool.loaded, pool.bytes, pool.served);
        let changed = change(pool);
        self.loaded = self.loaded - loaded + pool.loaded;
        self.bytes = self.bytes - bytes + pool.bytes;
        if pool.served != served && pool.has_turn {
            pool.has_turn = false;
            self.turns.remove(&(served, id));
        }
        self.place(id);
        Some(changed)
    }

    fn place(&mut self, id: i64) {
        let (share, is_short) = (self.share(), self.bytes < AHEAD_BYTES / 2);
        let Some(pool) = self.pools.get_mut(&id) else { return };
        if pool.is_spent() {
            self.turns.remove(&(pool.served, id));
            self.open -= usize::from(pool.is_open);
            if pool.is_shut {
                self.shut.remove(&pool.code);
            }
            self.pools.remove(&id);
            return;
        }
        pool.awaits_reading = pool.awaits_reading && matches!(pool.next(), Some((_, Next::Read)));
        let is_open = !pool.is_shut && !pool.turns.is_empty();
        self.open = self.open - usize::from(pool.is_open) + usize::from(is_open);
        pool.is_open = is_open;
        let has_turn = is_open && !pool.awaits_reading;
        if has_turn != pool.has_turn {
            pool.has_turn = has_turn;
            match has_turn {
                true => self.turns.insert((pool.served, id)),
                false => self.turns.remove(&(pool.served, id)),
            };
        }
        let is_low = pool.loaded < share.div_ceil(2) && is_short && pool.turns.has_unread();
        if !pool.is_shut && !pool.is_hungry && (is_low || pool.must_read()) {
            pool.is_hungry = true;
            self.hungry.push_back(id);
        }
    }

    /// How many messages of a pool are read ahead: its part of those of all, and a turn's at least. Those of shut pools
    /// stay where they are, so that they need not be read again for each place: where they are many, the others have
    /// few.
    fn share(&self) -> usize {
        let part = (self.ahead / self.open.max(1)).max(IN_A_TURN);
        if self.loaded < 2 * self.ahead { part } else { IN_A_TURN }
    }

    /// Takes back what was out too long.
    fn expire(&mut self, now: Instant) {
        while let Some(&(until, seq)) = self.ends.first()
            && until <= now
        {
            self.ends.pop_first();
            // One that is being settled is looked at again when that has ended.
            if let Some(out) = self.out.get(&seq).filter(|out| !out.settling) {
                let rests = out.rests.filter(|(until, _)| *until > now);
                self.back(seq, rests.map_or(Back::Now, |(_, due)| Back::At(due)));
            }
        }
    }

    /// The times of lanes come.
    fn wake(&mut self, time: i64) {
        while let Some(&(due, pool, lane)) = self.alarms.first()
            && due <= time
        {
            self.alarms.pop_first();
            self.change(pool, |pool| {
                pool.change(lane, |lane| (lane.next_due, lane.has_due) = (None, true));
            });
        }
    }

    /// Begins to settle: answers whether the receipt is valid, and if so keeps the message out.
    pub(crate) fn begin_settling(&mut self, receipt: &Receipt, now: Instant) -> Option<i64> {
        self.expire(now);
        let seq = receipt.tag.cast_signed();
        let out = self.out.get_mut(&seq).filter(|out| out.generation == receipt.generation)?;
        if out.settling {
            return None;
        }
        out.settling = true;
        Some(seq)
    }

    /// Whether it can be noted that a message that is out rests: its number, if the receipt is valid.
    pub(crate) fn may_rest(&mut self, receipt: &Receipt, now: Instant) -> Option<i64> {
        self.expire(now);
        let seq = receipt.tag.cast_signed();
        let out = self.out.get(&seq).filter(|out| out.generation == receipt.generation)?;
        (!out.settling).then_some(seq)
    }

    /// A message rests until then, and the file says so. If it is out no more it is whose it is now.
    pub(crate) fn rests(&mut self, receipt: &Receipt, until: Option<(Instant, i64)>) {
        let out = self.out.get_mut(&receipt.tag.cast_signed());
        if let Some(out) = out.filter(|out| out.generation == receipt.generation) {
            out.rests = until;
        }
    }

    /// How many that are out rest beyond a time.
    pub(crate) fn resting(&self, time: i64) -> usize {
        self.out.values().filter(|out| out.rests.is_some_and(|(_, due)| due > time)).count()
    }

    /// It could not be settled: its receipt is valid again, until its window ends.
    pub(crate) fn not_settled(&mut self, seq: i64) {
        if let Some(out) = self.out.get_mut(&seq) {
            out.settling = false;
            // Its end may have come meanwhile, and have been passed over.
            self.ends.insert((out.until, seq));
        }
    }

    /// A message that was out is out no more.
    pub(crate) fn back(&mut self, seq: i64, back: Back) {
        let Some(out) = self.out.remove(&seq) else { return };
        self.ends.remove(&(out.until, seq));
        if self.fetching {
            self.came_back.insert(seq);
        }
        let (pool, lane) = (out.key.pool, out.lane);
        let Some(of_pool) = self.pools.get_mut(&pool) else { return };
        let of_lane = of_pool.lane(lane);
        of_lane.outs = of_lane.outs.saturating_sub(1);
        let back = match back {
            // Whoever reads by time has passed it already.
            Back::At(due) if of_lane.is_due(Some(due), seq) => Back::Now,
            Back::At(due) => {
                self.await_due(pool, lane, due);
                if self.fetching {
                    let (group, high) = (Arc::clone(&out.key.group), out.high);
                    let row = Row { seq, lane, group, high, due: Some(due), held: true };
                    self.delayed_back.push((out.key.clone(), row));
                }
                back
            }
            Back::Gone | Back::Now => back,
        };
        if self.keeps(&out.key) {
            self.head_back(seq, out, back);
        } else if back == Back::Now {
            self.make_ready(seq, out.high, out.key, lane);
        }
        // Now that it is said what becomes of it: a lane with nothing in it is forgotten.
        self.change(pool, |pool| pool.change(lane, |_| ()));
    }

    fn await_due(&mut self, id: i64, lane_id: i64, due: i64) {
        let Some(pool) = self.pools.get_mut(&id) else { return };
        let lane = pool.lane(lane_id);
        if lane.next_due.is_some_and(|next| next <= due) {
            return;
        }
        let passed = lane.next_due.replace(due);
        self.alarms.insert((due, id, lane_id));
        if let Some(passed) = passed {
            self.alarms.remove(&(passed, id, lane_id));
        }
    }

    /// Whether a key stays in order.
    fn keeps(&self, key: &Key) -> bool {
        self.pools.get(&key.pool).is_some_and(|pool| pool.keeps(&key.group))
    }

    fn make_ready(&mut self, seq: i64, high: bool, key: Key, lane: i64) {
        self.change(key.pool, |pool| pool.make_ready(lane, rank(seq, high), key.group));
    }

    /// Begins a window anew, if the receipt is valid.
    pub(crate) fn extend(&mut self, receipt: &Receipt, now: Instant, visibility: Duration) -> bool {
        self.expire(now);
        let seq = receipt.tag.cast_signed();
        let Some(out) = self.out.get_mut(&seq) else { return false };
        if out.generation != receipt.generation {
            return false;
        }
        self.ends.remove(&(out.until, seq));
        out.until = now + visibility;
        self.ends.insert((out.until, seq));
        true
    }

    /// Messages with the numbers from `first` to `last` came, in these lanes.
    pub(crate) fn published(&mut self, first: i64, last: i64, touched: &[Touched]) {
        if self.lanes == Lanes::Unknown {
            // Whoever asks first finds them.
            return;
        }
        self.hear_of(first, last);
        for touched in touched {
            self.touch(touched);
            for raised in &touched.raised {
                let key = Key { pool: touched.pool, group: Arc::clone(&raised.group) };
                self.raise(key, raised.clone());
            }
        }
    }

    /// It is told of the messages with these numbers. Of those before them it may not have been.
    fn hear_of(&mut self, first: i64, last: i64) {
        if self.known + 1 >= first {
            self.known = self.known.max(last);
        } else {
            self.fresh = true;
        }
    }

    /// Whether a message was handed out and is not settled.
    pub(crate) fn is_out(&mut self, seq: i64, now: Instant) -> bool {
        self.expire(now);
        self.out.contains_key(&seq)
    }

    /// Whether a number is that of a message which was handed out, or is taken out by hand, and of which it is not known
    /// how that ended.
    pub(crate) fn has_in_hand(&self, seq: i64) -> bool {
        self.out.contains_key(&seq) || self.leaving.contains_key(&seq)
    }

    /// Someone else may have written.
    pub(crate) const fn may_have_more(&mut self) {
        self.fresh = true;
    }

    /// When something happens by itself: a window ends or a message's time comes.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    pub(crate) fn next_due(&self) -> Option<i64> {
        self.alarms.first().map(|(due, _, _)| *due)
    }

    pub(crate) fn out(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.out.len()
    }

    /// How a message that is in the file stands here; its pool is known by its code too.
    pub(crate) fn standing(&mut self, seq: i64, code: &str, key: &Key, now: Instant) -> Standing {
        self.expire(now);
        if self.out.contains_key(&seq) {
            Standing::Out
        } else if self.order.keeps(code, &key.group) {
            match self.head_of(key) {
                Some(head) if head == seq => Standing::Free,
                head => Standing::Behind(head),
            }
        } else {
            Standing::Free
        }
    }

    pub(crate) const fn take_read_error(&mut self) -> Option<String> {
        self.read_error.take()
    }
}
