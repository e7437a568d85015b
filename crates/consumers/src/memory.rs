//! A source in memory, for tests of handlers and for examples.
//!
//! It behaves like a broker: it keeps what is not settled, delays what comes again, keeps what is
//! buried, and can lose its connection. Time is tokio's, so that it can be paused.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Envelope, Profile, Receipt, Settle, Settled, Settlement,
    Source, SourceError,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);

/// A queue in memory, as a broker would keep it.
#[derive(Debug)]
pub struct MemorySource {
    state: Mutex<State>,
    changed: Notify,
    visibility: Duration,
    keeps_buried: bool,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Held>,
    delayed: BTreeMap<(Instant, u64), Held>,
    out: BTreeMap<u64, (Held, Instant)>,
    buried: Vec<Envelope>,
    generation: u64,
    last_number: u64,
    last_tag: u64,
    failing: u32,
    holds: bool,
    stopped: bool,
    settled: u64,
    settle_calls: u64,
}

#[derive(Clone, Debug)]
struct Held {
    number: u64,
    envelope: Envelope,
    attempts: u32,
}

impl MemorySource {
    /// An empty queue that keeps what is buried. Deliveries stay out until they are settled.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            visibility: Duration::MAX,
            keeps_buried: true,
        }
    }

    /// The same, where deliveries come back unless they are settled or extended within this time.
    #[must_use]
    pub fn with_visibility(self, visibility: Duration) -> Self {
        Self { visibility, ..self }
    }

    /// The same, where what is buried is gone.
    #[must_use]
    pub fn without_dead_letters(self) -> Self {
        Self { keeps_buried: false, ..self }
    }

    /// Adds a message.
    pub fn push(&self, envelope: Envelope) {
        {
            let mut state = self.state.lock();
            state.last_number += 1;
            let number = state.last_number;
            state.waiting.push_back(Held { number, envelope, attempts: 0 });
        }
        self.changed.notify_waiters();
    }

    /// Adds a message of an event type whose body is JSON.
    ///
    /// # Panics
    /// When the payload cannot be written as JSON.
    pub fn push_json(&self, event_type: &str, payload: &impl Serialize) {
        let body = serde_json::to_vec(payload).expect("a payload that can be written as JSON");
        let event_type = Some(event_type.into());
        self.push(Envelope { body: Bytes::from(body), event_type, ..Envelope::default() });
    }

    /// Loses the connection: receipts are worth nothing any more, and all that was out is delivered
    /// again, in its old place.
    pub fn disconnect(&self) {
        self.state.lock().give_all_back();
        self.changed.notify_waiters();
    }

    /// Lets so many calls to settle or to bury fail.
    pub fn fail_settlements(&self, count: u32) {
        self.state.lock().failing = count;
    }

    /// Hands nothing out while this holds.
    pub fn hold_deliveries(&self, holds: bool) {
        self.state.lock().holds = holds;
        self.changed.notify_waiters();
    }

    /// What was buried, oldest first.
    #[must_use]
    pub fn buried(&self) -> Vec<Envelope> {
        self.state.lock().buried.clone()
    }

    /// How many messages it holds, those that are out included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many deliveries were settled, however.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.state.lock().settled
    }

    /// How many calls to settle or to bury there were.
    #[must_use]
    pub fn settle_calls(&self) -> u64 {
        self.state.lock().settle_calls
    }

    /// The same queue for the next consumer, after the last one has stopped it. What was out comes
    /// again.
    #[must_use]
    pub fn reopened(&self) -> Self {
        let mut state = std::mem::take(&mut *self.state.lock());
        state.give_all_back();
        state.stopped = false;
        let (visibility, keeps_buried) = (self.visibility, self.keeps_buried);
        Self { state: Mutex::new(state), changed: Notify::new(), visibility, keeps_buried }
    }

    /// Waits until it holds none.
    pub async fn emptied(&self) {
        self.until(|source| source.is_empty()).await;
    }

    /// Waits until something is so, asked whenever the queue changes.
    pub async fn until(&self, mut is_so: impl FnMut(&Self) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }

    async fn receive_some(&self, max: usize) -> Vec<Delivery<Envelope>> {
        let give_up = Instant::now() + WAIT;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = Instant::now();
            let next = {
                let mut state = self.state.lock();
                state.bring_back(now);
                let taken = state.take(max, now, self.visibility);
                if !taken.is_empty() || state.stopped || now >= give_up {
                    return taken;
                }
                state.next_change()
            };
            let until = next.map_or(give_up, |next| next.min(give_up));
            tokio::select! {
                () = changed => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn settle_each<S>(
        &self,
        all: Vec<S>,
        mut settle: impl FnMut(&mut State, S) -> Settled,
    ) -> Result<Vec<Settled>, SourceError> {
        let answers = {
            let mut state = self.state.lock();
            state.settle_calls += 1;
            if state.failing > 0 {
                state.failing -= 1;
                drop(state);
                self.changed.notify_waiters();
                return Err(SourceError::new("told to fail"));
            }
            state.bring_back(Instant::now());
            all.into_iter().map(|one| settle(&mut state, one)).collect()
        };
        self.changed.notify_waiters();
        Ok(answers)
    }
}

impl Default for MemorySource {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn len(&self) -> usize {
        self.waiting.len() + self.delayed.len() + self.out.len()
    }

    fn take(&mut self, max: usize, now: Instant, visibility: Duration) -> Vec<Delivery<Envelope>> {
        if self.stopped || self.holds {
            return Vec::new();
        }
        let count = max.min(self.waiting.len());
        let taken: Vec<Held> = self.waiting.drain(..count).collect();
        let far = now + Duration::from_secs(1 << 32);
        let until = now.checked_add(visibility).unwrap_or(far);
        let hand_out = |held: Held| {
            self.last_tag += 1;
            let delivery = Delivery {
                broker_id: held.number.to_string().into(),
                receipt: Receipt { tag: self.last_tag, generation: self.generation, handle: None },
                attempts: held.attempts,
                message: Ok(held.envelope.clone()),
            };
            self.out.insert(self.last_tag, (held, until));
            delivery
        };
        taken.into_iter().map(hand_out).collect()
    }

    /// What a receipt stands for, if it is still worth anything.
    fn settled(&mut self, receipt: &Receipt) -> Option<Held> {
        if receipt.generation != self.generation {
            return None;
        }
        let (held, _) = self.out.remove(&receipt.tag)?;
        self.settled += 1;
        Some(held)
    }

    fn settle(&mut self, Settle { receipt, settlement }: Settle, keeps_dead: bool) -> Settled {
        let Some(mut held) = self.settled(&receipt) else { return Settled::Stale };
        match settlement {
            Settlement::Ack => {}
            Settlement::Park if keeps_dead => self.buried.push(held.envelope),
            Settlement::Park => {}
            Settlement::Retry { after, attempts, .. } => {
                held.attempts = attempts;
                held.envelope.redelivered = true;
                if after.is_zero() {
                    self.put_back(held);
                } else {
                    self.delayed.insert((Instant::now() + after, held.number), held);
                }
            }
        }
        Settled::Done
    }

    /// Puts a message back to its old place.
    fn put_back(&mut self, held: Held) {
        let at = self.waiting.partition_point(|other| other.number < held.number);
        self.waiting.insert(at, held);
    }

    fn give_all_back(&mut self) {
        self.generation += 1;
        for (mut held, _) in std::mem::take(&mut self.out).into_values() {
            held.envelope.redelivered = true;
            self.put_back(held);
        }
    }

    /// Brings back what is due.
    fn bring_back(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now
        {
            let held = entry.remove();
            self.waiting.push_back(held);
        }
        let over = self.out.iter().filter(|(_, (_, until))| *until <= now);
        let over: Vec<u64> = over.map(|(tag, _)| *tag).collect();
        for tag in over {
            if let Some((mut held, _)) = self.out.remove(&tag) {
                held.envelope.redelivered = true;
                self.put_back(held);
            }
        }
    }

    fn next_change(&self) -> Option<Instant> {
        let due = self.delayed.first_key_value().map(|((at, _), _)| *at);
        due.into_iter().chain(self.out.values().map(|(_, until)| *until)).min()
    }
}

impl Source<Envelope> for MemorySource {
    fn profile(&self) -> Profile {
        let keeps_dead_letters = self.keeps_buried;
        Profile { keeps_dead_letters, ..Profile::new(self.visibility, 1024) }
    }

    fn receive(
        &self,
        demand: Demand,
    ) -> BoxFuture<'_, Result<Vec<Delivery<Envelope>>, SourceError>> {
        Box::pin(async move { Ok(self.receive_some(demand.most()).await) })
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let keeps = self.keeps_buried;
        let settle_one = move |state: &mut State, settle| state.settle(settle, keeps);
        Box::pin(async move { self.settle_each(settle, settle_one) })
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let until = Instant::now().checked_add(self.visibility);
        let extend = move |state: &mut State, receipt: Receipt| {
            let valid = receipt.generation == state.generation;
            match state.out.get_mut(&receipt.tag).filter(|_| valid) {
                Some((_, end)) => {
                    *end = until.unwrap_or(*end);
                    Settled::Done
                }
                None => Settled::Stale,
            }
        };
        Box::pin(async move { self.settle_each(receipts, extend) })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(async {
            let state = self.state.lock();
            let [waiting, delayed, out] =
                [state.waiting.len(), state.delayed.len(), state.out.len()].map(|n| n as u64);
            Ok(Depth { waiting, delayed, out })
        })
    }

    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.state.lock().stopped = true;
        self.changed.notify_waiters();
        Box::pin(async {})
    }
}
