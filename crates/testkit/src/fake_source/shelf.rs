//! What a [`FakeSource`](super::FakeSource) holds: plain state that is told the time.
//!
//! Of each key of a pool that keeps order, `keys` holds all messages, those of high priority first.
//! One of them is the head: only that is ready, out or awaits its time, and once it was out nothing
//! goes before it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    DEFAULT_GROUP, Delivery, Demand, Depth, Found, FoundState, Malformed, Message, Order,
    Publication, Reason, Receipt, Rest, Settle, Settled, Settlement, SourceError,
};
use tokio::time::Instant;

use super::Fault;
use super::ready::Ready;

/// How long an id is remembered.
const DEDUPE: Duration = Duration::from_secs(300);

/// No rest is longer.
const FAR: Duration = Duration::from_secs(365 * 86_400);

#[derive(Debug, Default)]
pub(super) struct Shelf {
    stored: BTreeMap<u64, Stored>,
    ready: Ready,
    delayed: BTreeSet<(Instant, u64)>,
    /// When what is out comes back.
    ends: BTreeSet<(Instant, u64)>,
    order: Arc<Order>,
    keys: BTreeMap<Key, Line>,
    ids: BTreeMap<Arc<str>, (Instant, u64)>,
    /// Ids in the order in which they are forgotten.
    remembered: BTreeSet<(Instant, Arc<str>)>,
    last_number: u64,
    last_generation: u64,
    pub(super) faults: BTreeMap<Fault, u32>,
    pub(super) last_failure: Option<SourceError>,
}

type Key = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Stored {
    message: Result<Message, Malformed>,
    body: Box<str>,
    attempts: u32,
    since: Instant,
    state: State,
    /// It was handed back, so that nothing goes before it any more.
    is_held: bool,
    /// Until when it rests with whoever has it, and why.
    rests: Option<(Instant, Reason)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Behind,
    Delayed(Instant, Reason),
    Out { generation: u64, until: Instant },
}

/// The messages of a key that is kept in order.
#[derive(Debug, Default)]
struct Line {
    all: BTreeSet<(Reverse<bool>, u64)>,
    /// The one the others wait behind.
    head: Option<u64>,
    /// Nothing goes before the head any more.
    is_fixed: bool,
    /// How many are out.
    outs: u32,
    /// They were out when order began to be kept: there may be several, and others before them.
    is_inherited: bool,
    /// The first of those that were out and came back.
    tried: Option<u64>,
}

impl Shelf {
    pub(super) fn len(&self) -> usize {
        self.stored.len()
    }

    /// Takes a fault that is switched on.
    pub(super) fn fault(&mut self, fault: Fault) -> Result<(), SourceError> {
        let on = self.faults.get_mut(&fault).filter(|times| **times > 0);
        let result = on.map_or(Ok(()), |times| {
            *times -= 1;
            Err(SourceError::new(fault))
        });
        self.last_failure = result.clone().err();
        result
    }

    /// Stores a message unless its id was seen shortly before; says whether it did.
    pub(super) fn publish(&mut self, message: Publication, now: Instant) -> bool {
        while let Some((at, _)) = self.remembered.first()
            && *at + DEDUPE <= now
        {
            let Some((at, id)) = self.remembered.pop_first() else { break };
            if self
                .ids
                .get(&id)
                .is_some_and(|(seen, number)| *seen == at && !self.stored.contains_key(number))
            {
                self.ids.remove(&id);
            }
        }
        let id = &message.message.id;
        if self.ids.get(id).is_some_and(|(at, _)| *at + DEDUPE > now) {
            return false;
        }
        self.remembered.insert((now, Arc::clone(id)));
        self.push(Ok(message), now);
        true
    }

    /// Stores a message that was here before, unless it was put back by this name already.
    pub(super) fn put_back(&mut self, name: Arc<str>, message: Publication, now: Instant) {
        if self.ids.get(&name).is_some_and(|(at, _)| *at + DEDUPE > now) {
            return;
        }
        self.push(Ok(message), now);
        self.remembered.insert((now, Arc::clone(&name)));
        self.ids.insert(name, (now, self.last_number));
    }

    pub(super) fn push(&mut self, message: Result<Publication, Malformed>, now: Instant) {
        self.last_number += 1;
        let number = self.last_number;
        let (message, body, delay) = match message {
            Ok(Publication { message, body, delay }) => (Ok(message), body, delay),
            Err(malformed) => {
                let raw = malformed.raw.clone().into();
                (Err(malformed), raw, Duration::ZERO)
            }
        };
        if let Ok(message) = &message {
            self.ids.insert(Arc::clone(&message.id), (now, number));
        }
        let state = match delay {
            Duration::ZERO => State::Behind,
            delay => State::Delayed(now + delay, Reason::Scheduled),
        };
        let key = message.as_ref().ok().and_then(|message| self.key_of(message));
        let is_high = message.as_ref().is_ok_and(|message| message.high_priority);
        let (attempts, is_held, rests) = (0, false, None);
        let stored = Stored { message, body, attempts, since: now, state, is_held, rests };
        self.stored.insert(number, stored);
        if let State::Delayed(until, _) = state {
            self.delayed.insert((until, number));
        }
        match key {
            Some(key) => {
                let line = self.keys.entry(key.clone()).or_default();
                line.all.insert((Reverse(is_high), number));
                let head = line.head.filter(|_| line.outs > 0 || line.is_fixed);
                let head = line.tried.or(head).filter(|_| is_high);
                if let Some(head) = head.and_then(|head| self.stored.get_mut(&head)) {
                    head.is_held = true;
                }
                self.choose(&key, now);
            }
            None => self.place(number),
        }
    }

    fn key_of(&self, message: &Message) -> Option<Key> {
        let group = message.group.clone().unwrap_or_else(|| DEFAULT_GROUP.into());
        let is_kept = self.order.keeps(&message.pool, &group);
        is_kept.then(|| (Arc::clone(&message.pool), group))
    }

    fn key_of_number(&self, number: u64) -> Option<Key> {
        let message = self.stored.get(&number)?.message.as_ref().ok()?;
        self.key_of(message)
    }

    /// Makes the first of a key its head, unless the head is fixed: one that was handed back before, or the first of those
    /// with a place before it; else the first of high priority whose time has come, else the first.
    fn choose(&mut self, key: &Key, now: Instant) {
        let Some(line) = self.keys.get_mut(key) else { return };
        if line.outs > 0 || (line.head.is_some() && line.is_fixed) {
            return;
        }
        let number = |place: Option<&(Reverse<bool>, u64)>| place.map(|(_, number)| *number);
        let regular = number(line.all.range((Reverse(false), 0)..).next());
        let high = number(line.all.first()).filter(|first| Some(*first) != regular);
        let is_held = |number: &u64| {
            line.tried == Some(*number) || self.stored.get(number).is_some_and(|s| s.is_held)
        };
        let held = line.all.iter().map(|(Reverse(is_high), number)| (*number, *is_high));
        let held = held.filter(|(number, _)| is_held(number)).min();
        let is_due = |number: &u64| {
            let state = self.stored.get(number).map(|stored| stored.state);
            !matches!(state, Some(State::Delayed(until, _)) if until > now)
        };
        let mut highs = line.all.range(..(Reverse(false), 0)).map(|(_, number)| *number);
        let due = highs.find(is_due);
        let first = match held {
            Some((held, is_high)) => {
                regular.filter(|_| !is_high).into_iter().chain(due).chain([held]).min()
            }
            None => due.or(regular.into_iter().chain(high).min()),
        };
        let Some(first) = first else {
            self.keys.remove(key);
            return;
        };
        if line.head == Some(first) {
            return;
        }
        let passed = line.head.replace(first);
        line.is_fixed = held.is_some();
        if let Some(passed) = passed {
            self.ready.remove(passed);
            match self.stored.get_mut(&passed) {
                Some(Stored { state: State::Delayed(..), .. }) | None => {}
                Some(stored) => stored.state = State::Behind,
            }
        }
        self.place(first);
    }

    /// Puts a message that nothing holds back where its state says.
    fn place(&mut self, number: u64) {
        let Some(stored) = self.stored.get_mut(&number) else { return };
        match stored.state {
            State::Delayed(until, _) => {
                self.delayed.insert((until, number));
            }
            State::Out { .. } => {}
            State::Ready | State::Behind => {
                stored.state = State::Ready;
                self.ready.insert(number, stored.message.as_ref().ok());
            }
        }
    }

    pub(super) fn take(
        &mut self,
        now: Instant,
        window: Duration,
        demand: &Demand,
    ) -> Vec<Delivery> {
        self.advance(now);
        self.ready.hear(demand);
        let mut taken = Vec::with_capacity(demand.most().min(self.ready.len()));
        while taken.len() < demand.most()
            && let Some(number) = self.ready.next(demand)
        {
            taken.extend(self.hand_out(number, now + window));
        }
        taken
    }

    /// Takes this message, if it can be received.
    pub(super) fn take_this(
        &mut self,
        number: u64,
        now: Instant,
        window: Duration,
    ) -> Option<Delivery> {
        self.advance(now);
        self.ready.remove(number).then(|| self.hand_out(number, now + window))?
    }

    fn hand_out(&mut self, number: u64, until: Instant) -> Option<Delivery> {
        self.last_generation += 1;
        let generation = self.last_generation;
        self.ends.insert((until, number));
        self.goes_out(number);
        let stored = self.stored.get_mut(&number)?;
        stored.state = State::Out { generation, until };
        Some(Delivery {
            broker_id: number.to_string().into(),
            receipt: Receipt { tag: number, generation, handle: None },
            attempts: stored.attempts,
            message: stored.message.clone(),
        })
    }

    fn line_of(&mut self, number: u64) -> Option<&mut Line> {
        if self.order.is_nothing() {
            return None;
        }
        let key = self.key_of_number(number)?;
        self.keys.get_mut(&key)
    }

    /// What was handed out is not overtaken any more.
    fn goes_out(&mut self, number: u64) {
        if let Some(line) = self.line_of(number) {
            line.is_fixed = true;
            line.outs += 1;
        }
    }

    /// One that was out is not any more: whether it is kept back by its key, and the key if that has
    /// to choose.
    fn comes_in(&mut self, number: u64) -> (bool, Option<Key>) {
        let Some(line) = self.line_of(number) else { return (false, None) };
        line.outs -= 1;
        if line.outs > 0 {
            return (true, None);
        }
        if !line.is_inherited {
            return (false, None);
        }
        (line.head, line.is_inherited) = (None, false);
        (true, self.key_of_number(number))
    }

    /// Lets the time be `now`: windows end and delays pass.
    fn advance(&mut self, now: Instant) {
        while let Some(&(until, number)) = self.ends.first()
            && until <= now
        {
            self.ends.pop_first();
            self.give_back(number, now);
        }
        while let Some(&(until, number)) = self.delayed.first()
            && until <= now
        {
            self.delayed.pop_first();
            self.is_due(number, now);
        }
    }

    /// The time of a message has come.
    fn is_due(&mut self, number: u64, now: Instant) {
        let is_behind =
            self.line_of(number).is_some_and(|line| line.outs > 0 || line.head != Some(number));
        let Some(stored) = self.stored.get_mut(&number) else { return };
        stored.state = State::Behind;
        if !is_behind {
            self.place(number);
        } else if let Some(key) = self.key_of_number(number) {
            self.choose(&key, now);
        }
    }

    /// A message that was out can be delivered again, at once or at its time.
    fn give_back(&mut self, number: u64, now: Instant) {
        if let Some(line) = self.line_of(number) {
            line.tried = line.tried.into_iter().chain([number]).min();
        }
        let (is_behind, chooses) = self.comes_in(number);
        let Some(stored) = self.stored.get_mut(&number) else { return };
        let rests = stored.rests.take().filter(|(until, _)| *until > now);
        if matches!(stored.state, State::Out { .. }) {
            stored.state = rests.map_or(State::Behind, |(at, reason)| State::Delayed(at, reason));
        }
        if !is_behind || matches!(stored.state, State::Delayed(..)) {
            self.place(number);
        }
        if let Some(key) = chooses {
            self.choose(&key, now);
        }
    }

    pub(super) fn give_all_back(&mut self, now: Instant) {
        for (_, number) in std::mem::take(&mut self.ends) {
            self.give_back(number, now);
        }
    }

    pub(super) fn expire_receipts(&mut self) {
        for (_, number) in &self.ends {
            if let Some(Stored { state: State::Out { generation, .. }, .. }) =
                self.stored.get_mut(number)
            {
                *generation = 0;
            }
        }
    }

    /// Until when the delivery of a receipt is out, if it is the current one.
    fn until(&self, receipt: &Receipt) -> Option<Instant> {
        match self.stored.get(&receipt.tag)?.state {
            State::Out { generation, until } if generation == receipt.generation => Some(until),
            _ => None,
        }
    }

    pub(super) fn settle(&mut self, settle: &Settle, now: Instant, is_lost: bool) -> Settled {
        self.advance(now);
        let number = settle.receipt.tag;
        let Some(until) = self.until(&settle.receipt) else { return Settled::Stale };
        if is_lost {
            return Settled::Done;
        }
        self.ends.remove(&(until, number));
        match settle.settlement {
            Settlement::Ack | Settlement::Park => self.remove(number, now),
            Settlement::Retry { after, attempts, reason } => {
                let Some(stored) = self.stored.get_mut(&number) else { return Settled::Stale };
                stored.attempts = attempts;
                stored.is_held = true;
                stored.rests = None;
                if !after.is_zero() {
                    stored.state = State::Delayed(now + after, reason);
                }
                self.give_back(number, now);
            }
        }
        Settled::Done
    }

    /// A message that was out is done with.
    fn remove(&mut self, number: u64, now: Instant) {
        let key = if self.order.is_nothing() { None } else { self.key_of_number(number) };
        if let Some(line) = self.line_of(number) {
            line.tried = line.tried.filter(|&tried| tried != number);
        }
        self.comes_in(number);
        let Some(stored) = self.stored.remove(&number) else { return };
        if let Some(key) = key
            && let Some(line) = self.keys.get_mut(&key)
        {
            let is_high = stored.message.is_ok_and(|message| message.high_priority);
            line.all.remove(&(Reverse(is_high), number));
            if line.outs == 0 {
                line.head = None;
                self.choose(&key, now);
            }
        }
    }

    pub(super) fn extend(&mut self, receipt: &Receipt, now: Instant, window: Duration) -> Settled {
        self.advance(now);
        let Some(before) = self.until(receipt) else { return Settled::Stale };
        self.ends.remove(&(before, receipt.tag));
        let until = now + window;
        self.ends.insert((until, receipt.tag));
        if let Some(stored) = self.stored.get_mut(&receipt.tag) {
            stored.state = State::Out { generation: receipt.generation, until };
        }
        Settled::Done
    }

    pub(super) fn rest(&mut self, rest: &Rest, now: Instant) -> Settled {
        self.advance(now);
        if self.until(&rest.receipt).is_none() {
            return Settled::Stale;
        }
        let Some(stored) = self.stored.get_mut(&rest.receipt.tag) else { return Settled::Stale };
        stored.attempts = rest.attempts;
        stored.is_held = true;
        stored.rests = Some((now + rest.after.min(FAR), rest.reason));
        Settled::Done
    }

    pub(super) fn next_change(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, u64)>| set.first().map(|(until, _)| *until);
        first(&self.ends).into_iter().chain(first(&self.delayed)).min()
    }

    pub(super) fn depth(&mut self, now: Instant) -> Depth {
        self.advance(now);
        let is_later = |stored: &&Stored| matches!(stored.state, State::Delayed(at, _) if at > now);
        let delayed = self.stored.values().filter(is_later).count() as u64;
        let out = self.ends.len() as u64;
        Depth { waiting: self.stored.len() as u64 - delayed - out, delayed, out }
    }

    pub(super) fn find(&mut self, id: &str, now: Instant) -> Option<Found> {
        self.advance(now);
        let (_, number) = self.ids.get(id)?;
        let stored = self.stored.get(number)?;
        let state = match stored.state {
            State::Ready => FoundState::Ready,
            State::Out { .. } => FoundState::Out,
            State::Delayed(until, reason) if until > now => {
                FoundState::Delayed { rest: until - now, reason }
            }
            State::Behind | State::Delayed(..) => self.behind(*number),
        };
        let age = now - stored.since;
        Some(Found { body: stored.body.clone(), state, attempts: stored.attempts, age })
    }

    fn behind(&self, number: u64) -> FoundState {
        let head = self.key_of_number(number).and_then(|key| self.keys.get(&key)?.head);
        let message = head.and_then(|head| self.stored.get(&head)?.message.as_ref().ok());
        message.map_or(FoundState::Ready, |message| FoundState::Behind(Arc::clone(&message.id)))
    }

    /// Orders everything anew but what is out.
    pub(super) fn keep_order(&mut self, order: &Arc<Order>, now: Instant) {
        if *order == self.order {
            return;
        }
        self.order = Arc::clone(order);
        self.keys.clear();
        self.ready.clear();
        self.delayed.clear();
        let numbers: Vec<u64> = self.stored.keys().copied().collect();
        let mut keys = BTreeSet::new();
        for number in numbers {
            let Some(key) = self.key_of_number(number) else {
                self.place(number);
                continue;
            };
            let Some(stored) = self.stored.get_mut(&number) else { continue };
            let is_out = matches!(stored.state, State::Out { .. });
            let is_high = stored.message.as_ref().is_ok_and(|message| message.high_priority);
            if stored.state == State::Ready {
                stored.state = State::Behind;
            }
            if let State::Delayed(until, _) = stored.state {
                self.delayed.insert((until, number));
            }
            let line = self.keys.entry(key.clone()).or_default();
            line.all.insert((Reverse(is_high), number));
            if is_out {
                line.head.get_or_insert(number);
                line.is_fixed = true;
                line.outs += 1;
                line.is_inherited = true;
            }
            keys.insert(key);
        }
        for key in keys {
            self.choose(&key, now);
        }
    }
}
