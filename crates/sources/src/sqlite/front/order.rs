//! Pools that keep order: of each key one message at most is ready or out.
//! `docs/rules.md#fifo-1`.

use sluicegate_dispatch::Order;
use std::sync::Arc;

use super::super::row::{Head, Key};
use super::{Back, Front, Out};

/// The message that the others of its key wait behind.
#[derive(Debug)]
pub(super) struct HeadOf {
    pub(super) seq: i64,
    place: Place,
    high: bool,
    /// It was out before: nothing overtakes it.
    held: bool,
    /// How many of the key are out.
    outs: u32,
    /// They were out when order began to be kept: there may be several, and others before them.
    inherited: bool,
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
    pub(super) const fn is_out(&mut self) {
        self.place = Place::Out;
        self.held = true;
        self.outs = 1;
    }
}

impl Front {
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
        self.ready.clear();
        self.bare.clear();
        self.bytes = 0;
        self.heads.clear();
        self.choosing.clear();
        self.raised.clear();
        self.cursor = self.base;
        self.due_cursor = (i64::MIN, 0);
        self.next_due = Some(i64::MIN);
        self.fresh = true;
        for (&seq, out) in self.out.iter().filter(|(_, out)| out.key.is_kept(&self.order)) {
            let head = self.heads.entry(out.key.clone()).or_insert(HeadOf {
                seq,
                place: Place::Out,
                high: out.high,
                held: true,
                outs: 0,
                inherited: true,
            });
            head.outs += 1;
            head.seq = head.seq.min(seq);
        }
    }

    /// A message of a key that is kept in order was out and is no more.
    pub(super) fn head_back(&mut self, seq: i64, out: Out, back: Back) {
        let Some(head) = self.heads.get_mut(&out.key) else { return };
        head.outs = head.outs.saturating_sub(1);
        if head.outs > 0 {
            return;
        }
        match back {
            Back::Now if !head.inherited => {
                head.place = Place::Ready;
                self.make_ready(seq, out.key);
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

    /// The head of a key, while it is known.
    pub(super) fn head_of(&self, key: &Key) -> Option<i64> {
        let head = self.heads.get(key).filter(|head| head.place != Place::Choosing);
        head.map(|head| head.seq)
    }

    /// Makes a message the head of its key.
    pub(super) fn crown(&mut self, head: Head) {
        let Head { seq, key, high, due, held } = head;
        let waits = due.filter(|&due| (due, seq) > self.due_cursor);
        if let Some(due) = waits {
            self.await_due(due);
        }
        let place = if waits.is_some() { Place::Delayed } else { Place::Ready };
        self.heads
            .insert(key.clone(), HeadOf { seq, place, high, held, outs: 0, inherited: false });
        if place == Place::Ready {
            self.make_ready(seq, key);
        }
    }

    /// The time of a message has come, and it is in a pool that keeps order.
    pub(super) fn head_due(&mut self, seq: i64, key: Key, high: bool) {
        let Some(head) = self.heads.get_mut(&key) else { return };
        if head.seq == seq && head.place == Place::Delayed {
            head.place = Place::Ready;
            self.make_ready(seq, key);
        } else if high {
            self.raise(key, seq);
        }
    }

    /// A message of high priority came, or its time did: it goes before a head that only waits.
    pub(super) fn raise(&mut self, key: Key, seq: i64) {
        if !key.is_kept(&self.order) {
            return;
        }
        if self.filling {
            self.raised.push((key.clone(), seq));
        }
        let Some(head) = self.heads.get_mut(&key) else { return };
        let yields = match head.place {
            Place::Delayed => true,
            Place::Ready => !head.high || seq < head.seq,
            Place::Out | Place::Choosing => false,
        };
        if yields && !head.held && head.seq != seq {
            let passed = std::mem::replace(&mut head.seq, seq);
            head.high = true;
            head.place = Place::Ready;
            self.unready(passed);
            self.make_ready(seq, key);
        }
    }

    /// The head of a key vanished from the file, or the key has no head yet: the next is looked up.
    pub(super) fn choose_again(&mut self, key: &Key) {
        if let Some(head) = self.heads.get_mut(key) {
            head.place = Place::Choosing;
            self.choosing.push(key.clone());
        }
    }

    /// The next of a key was looked up; `None` if there is none, or if it is yet to be read in order.
    pub(super) fn chosen(&mut self, key: &Key, next: Option<Head>) {
        let is_choosing = |head: &HeadOf| head.place == Place::Choosing;
        if !self.heads.get(key).is_some_and(is_choosing) {
            return;
        }
        self.heads.remove(key);
        let next = next.filter(|next| next.high || next.seq <= self.cursor);
        if let Some(next) = next {
            self.crown(next);
        }
    }
}
