//! What is in memory of one pool: its lanes, and whose turn it is.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use sluicegate_dispatch::{DEFAULT_GROUP, Ordered};

use super::super::hash::Map;
use super::super::row::Content;
use super::fetch::Found;
use super::lane::{Lane, Next, Rank, Ready, rank};
use super::turns::Turns;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) code: Arc<str>,
    ordered: Ordered,
    /// The first number of its queue.
    base: i64,
    pub(super) lanes: Map<i64, Lane>,
    pub(super) turns: Turns,
    /// Lanes with nothing in them that are remembered until their share is past.
    idle: BTreeSet<(u64, i64)>,
    /// How many bodies are read ahead, and how long they are together.
    pub(super) loaded: usize,
    pub(super) bytes: usize,
    /// How many keys have a head.
    pub(super) heads: usize,
    /// It had no room when it was last asked.
    pub(super) is_shut: bool,
    /// Its next message must be read first.
    pub(super) awaits_reading: bool,
    /// It stands in the line of pools to read for.
    pub(super) is_hungry: bool,
    /// It is not shut and has anything to hand out or to read.
    pub(super) is_open: bool,
    /// It stands among the pools that take turns.
    pub(super) has_turn: bool,
    /// Its place among them: when it was last served.
    pub(super) served: u64,
    /// How many it has handed out in its turn.
    pub(super) in_turn: usize,
}

impl Pool {
    pub(super) fn new(code: Arc<str>, ordered: Ordered, base: i64) -> Self {
        Self {
            code,
            ordered,
            base,
            lanes: Map::default(),
            turns: Turns::default(),
            idle: BTreeSet::new(),
            loaded: 0,
            bytes: 0,
            heads: 0,
            is_shut: false,
            awaits_reading: false,
            is_hungry: false,
            is_open: false,
            has_turn: false,
            served: 0,
            in_turn: 0,
        }
    }

    /// As it is before anything was read, but for what is out; whether anything is.
    pub(super) fn reset(&mut self, ordered: Ordered) -> bool {
        self.lanes.retain(|_, lane| lane.outs > 0);
        for lane in self.lanes.values_mut() {
            lane.reset(self.base);
        }
        let (lanes, served) = (std::mem::take(&mut self.lanes), self.served);
        let is_shut = self.is_shut;
        let new = Self::new(Arc::clone(&self.code), ordered, self.base);
        *self = Self { lanes, served, is_shut, ..new };
        !self.lanes.is_empty()
    }

    /// Whether a group of it stays in order.
    pub(super) fn keeps(&self, group: &str) -> bool {
        match self.ordered {
            Ordered::Nothing => false,
            Ordered::Groups => group != DEFAULT_GROUP,
            Ordered::All => true,
        }
    }

    /// What of it is kept in order.
    pub(super) const fn ordered(&self) -> Ordered {
        self.ordered
    }

    /// A lane, which is made if it is not there: whatever is in it is told, or waits behind other lanes' heads.
    pub(super) fn lane(&mut self, id: i64) -> &mut Lane {
        let base = self.base;
        self.lanes.entry(id).or_insert_with(|| Lane::new(base))
    }

    /// Changes a lane; then it takes its place, or leaves it.
    pub(super) fn change<T>(&mut self, id: i64, change: impl FnOnce(&mut Lane) -> T) -> T {
        let changed = change(self.lane(id));
        self.place(id);
        changed
    }

    fn place(&mut self, id: i64) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.has_work() {
            if lane.turn.is_none() {
                self.idle.remove(&(lane.time, id));
                lane.turn = Some(self.turns.join(id, lane.time));
            }
            let is_unread = lane.wants_reading();
            if let Some(turn) = &lane.turn
                && is_unread != lane.is_unread
            {
                self.turns.set_unread(turn, is_unread);
                lane.is_unread = is_unread;
            }
            return;
        }
        if let Some(turn) = lane.turn.take() {
            self.turns.leave(&turn);
            (lane.time, lane.is_unread) = (turn.time, false);
        }
        if lane.is_spent() {
            self.idle.insert((lane.time, id));
        }
        self.forget_past();
    }

    /// Forgets lanes with nothing in them whose share is past; all of them if nobody is there to whom it could
    /// matter.
    fn forget_past(&mut self) {
        while let Some(&(time, id)) = self.idle.first()
            && (self.turns.is_past(time) || self.turns.is_empty())
        {
            self.idle.pop_first();
            if self.lanes.get(&id).is_some_and(|lane| lane.is_spent() && lane.turn.is_none()) {
                self.lanes.remove(&id);
            }
        }
    }

    /// Whether nothing of it is here.
    pub(super) fn is_spent(&self) -> bool {
        self.lanes.is_empty() && self.heads == 0
    }

    /// The lane whose turn it is, and what comes next of it.
    pub(super) fn next(&self) -> Option<(i64, Next)> {
        let turn = self.turns.first()?;
        Some((turn.lane, self.lanes.get(&turn.lane)?.next()))
    }

    /// Whether its next message must be read first, and nobody is at it.
    pub(super) fn must_read(&self) -> bool {
        let first = self.turns.first().and_then(|turn| self.lanes.get(&turn.lane));
        first.is_some_and(|lane| lane.next() == Next::Read && lane.wants_reading())
    }

    /// Takes the first of the lane whose turn it is.
    pub(super) fn take(&mut self, id: i64) -> Option<(Rank, Arc<str>, Content)> {
        let lane = self.lanes.get_mut(&id)?;
        let (rank, ready) = lane.ready.pop_first()?;
        let content = *ready.content?;
        lane.outs += 1;
        if let Some(turn) = &mut lane.turn {
            *turn = self.turns.served(turn);
        }
        self.loaded -= 1;
        self.bytes -= content.bytes;
        self.place(id);
        self.forget_past();
        Some((rank, ready.group, content))
    }

    /// A message can be handed out, once its body is read.
    pub(super) fn make_ready(&mut self, id: i64, rank: Rank, group: Arc<str>) {
        self.change(id, |lane| {
            lane.ready.entry(rank).or_insert_with(|| {
                lane.bare.insert(rank);
                Ready { group, content: None }
            });
        });
    }

    /// A message cannot be handed out any more.
    pub(super) fn unready(&mut self, id: i64, rank: Rank) {
        let removed = self.change(id, |lane| {
            lane.bare.remove(&rank);
            lane.ready.remove(&rank)
        });
        if let Some(content) = removed.and_then(|ready| ready.content) {
            self.loaded -= 1;
            self.bytes -= content.bytes;
        }
    }

    /// Messages of a lane that is not kept in order were read; then the lane is changed as is said.
    pub(super) fn add(
        &mut self,
        id: i64,
        rows: impl Iterator<Item = Found>,
        change: impl FnOnce(&mut Lane),
    ) {
        let (mut loaded, mut bytes) = (0, 0);
        let lane = self.lane(id);
        for Found { row, content } in rows {
            let rank = rank(row.seq, row.high);
            if lane.is_due(row.due, row.seq)
                && let Entry::Vacant(place) = lane.ready.entry(rank)
            {
                match &content {
                    Some(content) => (loaded, bytes) = (loaded + 1, bytes + content.bytes),
                    None => {
                        lane.bare.insert(rank);
                    }
                }
                place.insert(Ready { group: row.group, content: content.map(Box::new) });
            }
        }
        change(lane);
        self.loaded += loaded;
        self.bytes += bytes;
        self.place(id);
    }

    /// The body of a message was read.
    pub(super) fn load(&mut self, id: i64, rank: Rank, content: Content) {
        let bytes = content.bytes;
        let is_loaded = self.change(id, |lane| match lane.ready.get_mut(&rank) {
            Some(ready) if ready.content.is_none() => {
                ready.content = Some(Box::new(content));
                lane.bare.remove(&rank)
            }
            _ => false,
        });
        if is_loaded {
            self.loaded += 1;
            self.bytes += bytes;
        }
    }

    /// Gives up all bodies that were read ahead: they are read again when they are needed.
    pub(super) fn unload(&mut self) {
        let loaded = |lane: &Lane| lane.bare.len() < lane.ready.len();
        let ids = self.lanes.iter().filter(|(_, lane)| loaded(lane)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            self.change(id, |lane| {
                for (rank, ready) in &mut lane.ready {
                    if ready.content.take().is_some() {
                        lane.bare.insert(*rank);
                    }
                }
            });
        }
        (self.loaded, self.bytes) = (0, 0);
    }
}
