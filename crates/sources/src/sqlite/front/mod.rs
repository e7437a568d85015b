//! The front of a queue: what of it is in memory.
//!
//! It is plain state, told the time and changed under one lock; nobody reads the file under it.
//!
//! Invariants:
//! 1. Of each message that is not out, either it is in `ready`, or it lies beyond `cursor`, or its
//!    time is beyond `due_cursor`, or its key has a head (in pools that keep order), and whichever of
//!    these ends last brings it into `ready`: once.
//! 2. A key is in `heads` exactly while a message of it is ready, out, or waits for its time with
//!    nothing of its key before it.
//! 3. A message is out exactly while it is in `out`; its receipt is valid exactly as long.

mod haul;
mod order;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Order, Receipt};
use tokio::time::Instant;

use super::row::{Content, Key};
use super::schema;
pub(crate) use haul::{Errand, Fresh, Haul};
use order::HeadOf;

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

/// A message in `ready`.
#[derive(Debug)]
enum Ready {
    /// Its body must be read first.
    Bare,
    Loaded(Box<Content>),
}

/// A message that was handed out.
#[derive(Debug)]
struct Out {
    generation: u64,
    until: Instant,
    /// It is being settled: it stays out until that has ended.
    settling: bool,
    key: Key,
    high: bool,
}

#[derive(Debug)]
pub(crate) struct Front {
    /// The first number of this queue.
    base: i64,
    /// How many messages are read ahead.
    ahead: usize,
    /// What stays in order.
    order: Arc<Order>,
    /// What can be handed out, in order.
    ready: BTreeMap<i64, (Key, Ready)>,
    /// Those of `ready` whose body must be read.
    bare: BTreeSet<i64>,
    /// How long the bodies in `ready` are, together.
    bytes: usize,
    out: HashMap<i64, Out>,
    /// When each message that is out comes back.
    ends: BTreeSet<(Instant, i64)>,
    heads: HashMap<Key, HeadOf>,
    /// Keys whose head is gone: the next is looked up.
    choosing: Vec<Key>,
    /// The last number that was read in order of numbers.
    cursor: i64,
    /// The last time and number that was read in order of times.
    due_cursor: (i64, i64),
    /// The first time beyond `due_cursor`, as far as it is known.
    next_due: Option<i64>,
    /// Whether there may be messages beyond `cursor`.
    fresh: bool,
    /// Whether someone reads for it.
    filling: bool,
    /// Counts rebuilds: what was read for an earlier one is worth nothing.
    epoch: u64,
    /// Messages of high priority that came while someone read.
    raised: Vec<(Key, i64)>,
    generation: u64,
    read_error: Option<String>,
}

/// How many messages are read ahead, unless told. Below half of that more are read.
pub(crate) const AHEAD: usize = 1024;
/// How long the bodies that were read ahead may be, together.
const AHEAD_BYTES: usize = 8 * 1024 * 1024;

impl Front {
    pub(crate) fn new(queue: i64, generation: u64, ahead: usize) -> Self {
        let base = schema::base(queue);
        Self {
            base,
            ahead: ahead.max(1),
            order: Arc::default(),
            ready: BTreeMap::new(),
            bare: BTreeSet::new(),
            bytes: 0,
            out: HashMap::new(),
            ends: BTreeSet::new(),
            heads: HashMap::new(),
            choosing: Vec::new(),
            cursor: base,
            due_cursor: (i64::MIN, 0),
            next_due: Some(i64::MIN),
            fresh: true,
            filling: false,
            epoch: 0,
            raised: Vec::new(),
            generation,
            read_error: None,
        }
    }

    /// Hands out at most `max`, in order, as far as they are loaded.
    pub(crate) fn take(&mut self, now: Instant, visibility: Duration, max: usize) -> Vec<Delivery> {
        self.expire(now);
        let mut taken = Vec::with_capacity(max.min(self.ready.len()));
        while taken.len() < max {
            let Some(first) = self.ready.first_entry() else { break };
            if matches!(first.get(), (_, Ready::Bare)) {
                break;
            }
            let (seq, (key, Ready::Loaded(content))) = first.remove_entry() else {
                unreachable!("it is loaded");
            };
            taken.push(self.hand_out(seq, key, *content, now + visibility));
        }
        taken
    }

    fn hand_out(&mut self, seq: i64, key: Key, content: Content, until: Instant) -> Delivery {
        self.bytes -= content.bytes;
        self.generation += 1;
        let generation = self.generation;
        if let Some(head) = self.heads.get_mut(&key) {
            head.is_out();
        }
        let high = content.message.as_ref().is_ok_and(|message| message.high_priority);
        self.ends.insert((until, seq));
        self.out.insert(seq, Out { generation, until, settling: false, key, high });
        Delivery {
            broker_id: schema::within(seq).to_string().into(),
            receipt: Receipt { tag: seq.cast_unsigned(), generation, handle: None },
            attempts: content.attempts,
            message: content.message,
        }
    }

    /// Takes back what was out too long.
    fn expire(&mut self, now: Instant) {
        while let Some(&(until, seq)) = self.ends.first()
            && until <= now
        {
            self.ends.pop_first();
            // One that is being settled is looked at again when that has ended.
            if self.out.get(&seq).is_some_and(|out| !out.settling) {
                self.back(seq, Back::Now);
            }
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
        let back = match back {
            // Whoever reads by time has passed it already.
            Back::At(due) if (due, seq) <= self.due_cursor => Back::Now,
            Back::At(due) => {
                self.await_due(due);
                back
            }
            Back::Gone | Back::Now => back,
        };
        if out.key.is_kept(&self.order) {
            self.head_back(seq, out, back);
        } else if back == Back::Now {
            self.make_ready(seq, out.key);
        }
    }

    fn await_due(&mut self, due: i64) {
        self.next_due = Some(self.next_due.map_or(due, |next| next.min(due)));
    }

    fn make_ready(&mut self, seq: i64, key: Key) {
        if let Entry::Vacant(place) = self.ready.entry(seq) {
            place.insert((key, Ready::Bare));
            self.bare.insert(seq);
        }
    }

    fn unready(&mut self, seq: i64) {
        if let Some((_, Ready::Loaded(content))) = self.ready.remove(&seq) {
            self.bytes -= content.bytes;
        }
        self.bare.remove(&seq);
    }

    fn load(&mut self, seq: i64, content: Content) {
        if let Some((_, ready @ Ready::Bare)) = self.ready.get_mut(&seq) {
            self.bytes += content.bytes;
            self.bare.remove(&seq);
            *ready = Ready::Loaded(Box::new(content));
        }
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

    /// Messages came: perhaps some of high priority.
    pub(crate) fn published(&mut self, raised: &[(Key, i64)]) {
        self.fresh = true;
        for (key, seq) in raised {
            self.raise(key.clone(), *seq);
        }
    }

    /// Messages came back to their places, perhaps before what was read: what is in memory is derived anew.
    pub(crate) fn put_back(&mut self) {
        self.rebuild();
    }

    /// Whether a message was handed out and is not settled.
    pub(crate) fn is_out(&mut self, seq: i64, now: Instant) -> bool {
        self.expire(now);
        self.out.contains_key(&seq)
    }

    /// Someone else may have written.
    pub(crate) const fn may_have_more(&mut self) {
        self.fresh = true;
    }

    /// When something happens by itself: a window ends or a message's time comes.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    pub(crate) const fn next_due(&self) -> Option<i64> {
        self.next_due
    }

    pub(crate) fn out(&mut self, now: Instant) -> usize {
        self.expire(now);
        self.out.len()
    }

    /// How a message that is in the file stands here.
    pub(crate) fn standing(&mut self, seq: i64, key: &Key, now: Instant) -> Standing {
        self.expire(now);
        if self.out.contains_key(&seq) {
            Standing::Out
        } else if key.is_kept(&self.order) {
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
