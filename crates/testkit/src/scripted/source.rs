//! A source whose batches a test writes, and whose settlements a test reads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Order, Ordered, Profile, Receipt, Settle, Settled,
    Settlement, Source, SourceError,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::until;

/// A source that hands out what it is told and remembers what it is told.
#[derive(Debug)]
pub struct ScriptedSource {
    profile: Profile,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Vec<Delivery>>,
    settled: Vec<(Instant, Settle)>,
    extended: Vec<Receipt>,
    strict: Vec<Arc<str>>,
    failing_settles: u32,
    failing_receives: u32,
    hangs: bool,
    answers_after: Duration,
    stopped: bool,
    stale: Vec<Receipt>,
}

/// What a source was told, in words: `m1 gone`, `m2 again 10s cascade #1`.
pub type Settlements = Vec<String>;

impl ScriptedSource {
    /// A source with a visibility window of 30 seconds that settles ten at a time.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with(Profile::new(Duration::from_secs(30), 10))
    }

    /// A source with a profile.
    #[must_use]
    pub fn with(profile: Profile) -> Arc<Self> {
        Arc::new(Self { profile, state: Mutex::default(), changed: Notify::new() })
    }

    /// Hands out these deliveries as one batch, whatever the receiver's maximum.
    pub fn hand_out(&self, batch: Vec<Delivery>) {
        self.state.lock().batches.push_back(batch);
        self.changed.notify_waiters();
    }

    /// Lets so many settlements fail.
    pub fn fail_settles(&self, count: u32) {
        self.state.lock().failing_settles = count;
    }

    /// Lets so many receives fail.
    pub fn fail_receives(&self, count: u32) {
        self.state.lock().failing_receives = count;
    }

    /// Lets receives, settlements and extensions hang for ever, or no longer.
    pub fn hang(&self, hangs: bool) {
        self.state.lock().hangs = hangs;
        self.changed.notify_waiters();
    }

    /// Answers so long after it has settled or extended.
    pub fn answer_after(&self, delay: Duration) {
        self.state.lock().answers_after = delay;
    }

    /// Treats a receipt as one that is not valid any more.
    pub fn expire(&self, receipt: Receipt) {
        self.state.lock().stale.push(receipt);
    }

    /// What it was told, in words and in order.
    #[must_use]
    pub fn settlements(&self) -> Settlements {
        self.state.lock().settled.iter().map(|(_, settle)| words(settle)).collect()
    }

    /// What it was told of one message, and how long after `since`.
    #[must_use]
    pub fn settled_after(&self, id: &str, since: Instant) -> Option<Duration> {
        let handle = format!("r-{id}");
        let state = self.state.lock();
        let told =
            |(_, settle): &&(Instant, Settle)| settle.receipt.handle.as_deref() == Some(&handle);
        state.settled.iter().find(told).map(|(at, _)| *at - since)
    }

    /// How often each handle was extended, in order of the first time.
    #[must_use]
    pub fn extensions(&self) -> Vec<(String, usize)> {
        let mut all: Vec<(String, usize)> = Vec::new();
        for receipt in &self.state.lock().extended {
            let handle = receipt.handle.as_deref().unwrap_or_default();
            match all.iter_mut().find(|(known, _)| known == handle) {
                Some((_, count)) => *count += 1,
                None => all.push((handle.to_owned(), 1)),
            }
        }
        all
    }

    /// The pools that keep order across deliveries, as it was last told.
    #[must_use]
    pub fn strict_pools(&self) -> Vec<Arc<str>> {
        self.state.lock().strict.clone()
    }

    /// Waits until it was told of so many deliveries.
    ///
    /// # Panics
    /// When that takes more than a day.
    pub async fn until_settled(&self, count: usize) {
        let settled = until(&self.changed, || self.state.lock().settled.len() >= count);
        if !settled.await {
            panic!("only {:?} were settled, not {count}", self.settlements());
        }
    }

    async fn take_time(&self) {
        let after = self.state.lock().answers_after;
        if !after.is_zero() {
            tokio::time::sleep(after).await;
        }
    }

    async fn unless_hung(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.state.lock().hangs {
                return;
            }
            changed.await;
        }
    }

    fn take(&self) -> Option<Result<Vec<Delivery>, SourceError>> {
        let mut state = self.state.lock();
        if state.hangs && !state.stopped {
            return None;
        }
        if state.failing_receives > 0 {
            state.failing_receives -= 1;
            return Some(Err(SourceError::new("told to fail")));
        }
        match state.batches.pop_front() {
            Some(batch) if !state.stopped => Some(Ok(batch)),
            _ => state.stopped.then(|| Ok(Vec::new())),
        }
    }
}

impl Source for ScriptedSource {
    fn profile(&self) -> Profile {
        self.profile
    }

    fn receive(&self, _: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(async move {
            let poll_ends = Instant::now() + Duration::from_secs(20);
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if let Some(taken) = self.take() {
                    return taken;
                }
                let hangs = self.state.lock().hangs;
                tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(poll_ends), if !hangs => return Ok(Vec::new()),
                }
            }
        })
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move {
            self.unless_hung().await;
            let now = Instant::now();
            let answers = {
                let mut state = self.state.lock();
                if state.failing_settles > 0 {
                    state.failing_settles -= 1;
                    return Err(SourceError::new("told to fail"));
                }
                let mut answers = Vec::with_capacity(settle.len());
                for settle in settle {
                    let stale = state.stale.contains(&settle.receipt);
                    answers.push(if stale { Settled::Stale } else { Settled::Done });
                    if !stale {
                        state.settled.push((now, settle));
                    }
                }
                answers
            };
            self.changed.notify_waiters();
            self.take_time().await;
            Ok(answers)
        })
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move {
            self.unless_hung().await;
            let answers = vec![Settled::Done; receipts.len()];
            self.state.lock().extended.extend(receipts);
            self.take_time().await;
            Ok(answers)
        })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        let waiting = self.state.lock().batches.iter().map(|batch| batch.len() as u64).sum();
        Box::pin(async move { Ok(Depth { waiting, ..Depth::default() }) })
    }

    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.state.lock().stopped = true;
        self.changed.notify_waiters();
        Box::pin(async {})
    }

    fn keep_order(&self, order: &Arc<Order>) {
        let strict = order.pools().filter(|(_, ordered)| *ordered != Ordered::Nothing);
        let mut strict: Vec<_> = strict.map(|(pool, _)| Arc::clone(pool)).collect();
        strict.sort();
        self.state.lock().strict = strict;
    }
}

fn words(settle: &Settle) -> String {
    let handle = settle.receipt.handle.as_deref().unwrap_or_default();
    let id = handle.strip_prefix("r-").unwrap_or(handle);
    match settle.settlement {
        Settlement::Ack => format!("{id} gone"),
        Settlement::Park => format!("{id} parked"),
        Settlement::Retry { after, attempts, reason } => {
            format!("{id} again {}s {} #{attempts}", after.as_secs(), reason.label())
        }
    }
}
