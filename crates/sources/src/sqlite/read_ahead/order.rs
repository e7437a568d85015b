//! Pools that keep order: of each key one message at most is ready or out.
//! `docs/rules.md#fifo-1`.
//!
//! A key is a group of a pool, whatever the tenants of its messages: its head is in one lane, and the next may be
//! in another.

use std::sync::Arc;

use sluicegate_dispatch::Order;

use super::super::row::{Key, Raised, Returned, Row};
use super::lane::{Lane, rank};
use super::{Back, Lanes, Out, ReadAhead};

/// The message that the others of its key wait behind.
#[derive(Debug)]
pub(super) struct HeadOf {
    seq: i64,
    lane: i64,
    place: Place,
    high: bool,
    /// It was out before: nothing overtakes it.
    held: bool,
    /// How many of the key are out.
    outs: u32,
    /// They were out when order began to be kept, or something was put back before them: there may be several, and
    /// others before them.
    inherited: bool,
    /// Something was put back since the next was looked for: it is looked for again.
    outdated: bool,
    /// The first of those that were out and came back: nothing but what has a place before it goes before it. The file
    /// knows of it only if somebody had a reason to write that down.
    tried: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Out,
    /// It waits for its time.
    Delayed,
    /// It is gone, and the next is looked up.
    Choosing,
}

impl HeadOf {
    const fn new(seq: i64, lane: i64, high: bool, place: Place) -> Self {
        let (held, outs, inherited, outdated, tried) = (false, 0, false, false, None);
        Self { seq, lane, place, high, held, outs, inherited, outdated, tried }
    }

    /// Whether one that was put back may go before it.
    const fn yields(&self, returned: &Returned) -> bool {
        let is_raised = returned.high && (!self.high || matches!(self.place, Place::Delayed));
        returned.seq < self.seq || (is_raised && !self.held && returned.seq != self.seq)
    }

    pub(super) const fn is_out(&mut self) {
        self.place = Place::Out;
        self.held = true;
        self.outs = 1;
    }
}

impl ReadAhead {
    /// Keeps this order from now on. What is in memory is derived anew from the file, but for what is out.
    pub(crate) fn keep_order(&mut self, order: &Arc<Order>) {
        if *order == self.order {
            return;
        }
        self.order = Arc::clone(order);
        self.rebuild();
    }

    pub(super) fn rebuild(&mut self) {
        self.epoch += 1;
        let order = &self.order;
        self.pools.retain(|_, pool| pool.reset(order.of(&pool.code)));
        let pools = &self.pools;
        self.shut.retain(|_, id| pools.contains_key(id));
        self.turns.clear();
        self.open = 0;
        self.hungry.clear();
        self.alarms.clear();
        (self.loaded, self.bytes) = (0, 0);
        self.heads.clear();
        self.choosing.clear();
        self.raised.clear();
        self.lanes = Lanes::Unknown;
        self.fresh = false;
        for (&seq, out) in &self.out {
            let Some(pool) = self.pools.get_mut(&out.key.pool) else { continue };
            if !pool.keeps(&out.key.group) {
                continue;
            }
            let head = self.heads.entry(out.key.clone()).or_insert_with(|| {
                pool.heads += 1;
                let head = HeadOf::new(seq, out.lane, out.high, Place::Out);
                HeadOf { held: true, inherited: true, ..head }
            });
            head.outs += 1;
            head.seq = head.seq.min(seq);
        }
    }

    /// A message of a key that is kept in order was out and is no more.
    pub(super) fn head_back(&mut self, seq: i64, out: Out, back: Back) {
        let Some(head) = self.heads.get_mut(&out.key) else { return };
        head.outs = head.outs.saturating_sub(1);
        head.tried = match back {
            Back::Gone => head.tried.filter(|&tried| tried != seq),
            Back::Now | Back::At(_) => head.tried.into_iter().chain([seq]).min(),
        };
        if head.outs > 0 {
            return;
        }
        match back {
            Back::Now if !head.inherited => {
                head.place = Place::Ready;
                self.make_ready(seq, out.high, out.key, out.lane);
            }
            Back::At(_) if !head.inherited => head.place = Place::Delayed,
            Back::Gone | Back::Now | Back::At(_) => {
                head.place = Place::Choosing;
                self.choosing.push(out.key);
            }
        }
    }

    /// Whether a key has a head: then the rest of it is found when that is gone.
    pub(super) fn has_head(&self, key: &Key) -> bool {
        self.heads.contains_key(key)
    }

    /// The lane of a key's head, or of its last one.
    pub(super) fn lane_of_head(&self, key: &Key) -> Option<&Lane> {
        let head = self.heads.get(key)?;
        self.pools.get(&key.pool)?.lanes.get(&head.lane)
    }

    /// The head of a key, while it is known.
    pub(super) fn head_of(&self, key: &Key) -> Option<i64> {
        let head = self.heads.get(key).filter(|head| head.place != Place::Choosing);
        head.map(|head| head.seq)
    }

    /// The message of a key that is or was out: nothing goes before it but what has a place there.
    pub(crate) fn head_held(&self, key: &Key) -> Option<i64> {
        let head = self.heads.get(key)?;
        let is_held = head.held && head.place != Place::Choosing;
        head.tried.or(is_held.then_some(head.seq))
    }

    /// A message that was out and came back is gone.
    pub(super) fn forget_tried(&mut self, key: &Key, seq: i64) {
        if let Some(head) = self.heads.get_mut(key) {
            head.tried = head.tried.filter(|&tried| tried != seq);
        }
    }

    /// The first of a key that was out and came back.
    pub(super) fn tried_of(&self, key: &Key) -> Option<i64> {
        self.heads.get(key)?.tried
    }

    /// Makes a message the head of its key.
    pub(super) fn crown(&mut self, pool_id: i64, row: Row) {
        let Row { seq, lane, group, high, due, held } = row;
        let Some(pool) = self.pools.get_mut(&pool_id) else { return };
        let waits = due.filter(|_| !pool.lane(lane).is_due(due, seq));
        let place = if waits.is_some() { Place::Delayed } else { Place::Ready };
        let key = Key { pool: pool_id, group };
        let tried = self.heads.get(&key).and_then(|head| head.tried);
        let head = HeadOf { held, tried, ..HeadOf::new(seq, lane, high, place) };
        if self.heads.insert(key.clone(), head).is_none() {
            pool.heads += 1;
        }
        match waits {
            Some(due) => self.await_due(pool_id, lane, due),
            None => self.make_ready(seq, high, key, lane),
        }
    }

    /// The time of a message has come, and it is in a pool that keeps order.
    pub(super) fn head_due(&mut self, key: Key, row: Row) {
        let Some(head) = self.heads.get_mut(&key) else { return };
        if head.seq == row.seq && head.place == Place::Delayed {
            head.place = Place::Ready;
            self.make_ready(row.seq, row.high, key, row.lane);
        } else if row.high {
            self.raise(key, Raised::of(&row));
        }
    }

    /// A message of high priority came, or its time did: it goes before a head that only waits.
    pub(super) fn raise(&mut self, key: Key, raised: Raised) {
        if !self.keeps(&key) {
            return;
        }
        let Raised { seq, lane, .. } = raised;
        if self.fetching {
            self.raised.push((key.clone(), raised));
        }
        let Some(head) = self.heads.get_mut(&key) else { return };
        let yields = match head.place {
            Place::Delayed => true,
            Place::Ready => !head.high || seq < head.seq,
            Place::Out | Place::Choosing => false,
        };
        if yields && !head.held && head.seq != seq {
            let passed = rank(std::mem::replace(&mut head.seq, seq), head.high);
            let passed_lane = std::mem::replace(&mut head.lane, lane);
            head.high = true;
            head.place = Place::Ready;
            self.make_ready(seq, true, key.clone(), lane);
            self.change(key.pool, |pool| pool.unready(passed_lane, passed));
        }
    }

    /// The head of a key vanished from the file, or may not be the first: the next is looked up.
    pub(super) fn choose_again(&mut self, key: &Key) {
        let Some(head) = self.heads.get_mut(key) else { return };
        if head.place == Place::Choosing {
            head.outdated = true;
            return;
        }
        head.place = Place::Choosing;
        self.choosing.push(key.clone());
    }

    /// A message of a key was taken out, or passed over while it was to be: if it is the head, the next is looked
    /// up.
    pub(super) fn head_left(&mut self, key: &Key, seq: i64) {
        let Some(head) = self.heads.get_mut(key) else { return };
        match head.place {
            Place::Choosing => head.outdated = true,
            Place::Ready | Place::Delayed if head.seq == seq => self.choose_again(key),
            Place::Ready | Place::Delayed | Place::Out => {}
        }
    }

    /// A message of a key that has a head was put back.
    pub(super) fn return_to_head(&mut self, key: &Key, returned: &Returned) {
        let Some(head) = self.heads.get_mut(key) else { return };
        let yields = head.yields(returned);
        match head.place {
            Place::Choosing => head.outdated = true,
            Place::Out => head.inherited |= returned.seq < head.seq,
            Place::Ready | Place::Delayed if yields => {
                let (lane, passed) = (head.lane, rank(head.seq, head.high));
                self.choose_again(key);
                self.change(key.pool, |pool| pool.unready(lane, passed));
            }
            Place::Ready | Place::Delayed => {}
        }
    }

    /// The next of a key that has no head is looked up: one was put back where nobody finds it by number, or may not be
    /// there any more.
    pub(super) fn choose_without_head(&mut self, key: &Key, seq: i64, lane: i64, high: bool) {
        let Some(pool) = self.pools.get_mut(&key.pool) else { return };
        pool.heads += 1;
        self.heads.insert(key.clone(), HeadOf::new(seq, lane, high, Place::Choosing));
        self.choosing.push(key.clone());
    }

    /// The next of a key is being looked up: what was put back until now is seen.
    pub(super) fn begin_choosing(&mut self, key: &Key) {
        if let Some(head) = self.heads.get_mut(key) {
            head.outdated = false;
        }
    }

    /// The next of a key was looked up; `None` if there is none.
    pub(super) fn chosen(&mut self, key: &Key, next: Option<Row>) {
        match self.heads.get(key) {
            Some(HeadOf { place: Place::Choosing, outdated: false, .. }) => {}
            Some(HeadOf { place: Place::Choosing, .. }) => {
                self.choosing.push(key.clone());
                return;
            }
            Some(_) | None => return,
        }
        match next {
            Some(next) => self.crown(key.pool, next),
            None => {
                self.heads.remove(key);
                self.change(key.pool, |pool| pool.heads -= 1);
            }
        }
    }
}
