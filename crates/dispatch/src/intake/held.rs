//! A message that was taken in is a [`Held`], which is settled once, by value. Dropped unsettled it hands itself
//! back. Drop does no waiting: it adds to what is owed to the source, and the settlers do the rest.
//!
//! What is owed is bounded by what is in flight, since each message is in it once at most.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::in_flight::{Entry, InFlight, Stray, Tracked};
use super::resting::Resting;
use crate::{Parked, Profile, Reason, Receipt, Settlement};

/// What a source is owed: settlements that it has not been told of.
#[derive(Debug)]
pub struct Owed<E> {
    /// The messages that are in flight.
    pub in_flight: InFlight<E>,
    acks: Lane<E>,
    retries: Lane<E>,
    parks: Lane<E>,
    /// What rests here, for the source to note.
    pub(crate) resting: Resting<E>,
    returned: Mutex<Vec<Returned<E>>>,
    has_returned: Notify,
    dropped: Dropped,
    profile: Profile,
}

/// What a recipient has put beside a message that comes back to it.
pub type Beside = Box<dyn Any + Send + Sync>;

/// What comes back to its recipient. It is in flight, or was: so is it bounded.
#[derive(Debug)]
pub(super) enum Returned<E> {
    /// A message that cannot stay where it was.
    Homeless(Arc<Tracked<E>>, Beside),
    /// One that another entry stands for, and that has ended.
    Superseded(Arc<Tracked<E>>),
}

/// How a message goes back that was dropped.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// When it may come again.
    pub after: Duration,
    /// Why it comes again.
    pub reason: Reason,
}

/// Settlements of one kind. Those of one kind wait for no other: docs/rules.md#settle-4.
#[derive(Debug)]
pub(crate) struct Lane<E> {
    owed: Mutex<Vec<Settling<E>>>,
    changed: Notify,
}

/// A message that was taken in and must be settled: docs/rules.md#settle-3. Dropped, it goes back to its
/// source.
#[must_use = "dropping it hands the message back"]
pub struct Held<E: Entry> {
    tracked: Option<Arc<Tracked<E>>>,
    owed: Arc<Owed<E>>,
}

/// A delivery that is over, for its source to hear of.
#[must_use = "its source does not hear of it unless it is pushed"]
pub struct Settling<E> {
    pub(crate) subject: Subject<E>,
    pub(crate) settlement: Settlement,
    /// To be kept, durably, before the source hears.
    pub(crate) parked: Option<Box<Parked>>,
    /// That a replayed message is over is to be kept before, too.
    pub(crate) is_replayed: bool,
    /// Dropped when the source has heard: the key of the message is held that long.
    pub(crate) until: Option<Box<dyn Any + Send + Sync>>,
}

/// Whose delivery is over.
#[derive(Debug)]
pub(crate) enum Subject<E> {
    /// A message that is in flight.
    Tracked(Arc<Tracked<E>>),
    /// Something that never was.
    Stray(Arc<Stray>),
}

impl<E: Entry> Owed<E> {
    pub(crate) fn new(dropped: Dropped, profile: Profile) -> Arc<Self> {
        Arc::new(Self {
            in_flight: InFlight::new(profile.keeps_order.across_batches()),
            acks: Lane::new(),
            retries: Lane::new(),
            parks: Lane::new(),
            resting: Resting::default(),
            returned: Mutex::default(),
            has_returned: Notify::new(),
            dropped,
            profile,
        })
    }

    /// A message that is new here, as a guard.
    pub fn hold(self: &Arc<Self>, tracked: Arc<Tracked<E>>) -> Held<E> {
        Held { tracked: Some(tracked), owed: Arc::clone(self) }
    }

    /// Settles something that was never in flight, once however often it comes.
    pub(crate) fn settle_stray(
        &self,
        broker_id: Arc<str>,
        receipt: Receipt,
        settlement: Settlement,
        parked: Option<Box<Parked>>,
    ) {
        let Some(stray) = self.in_flight.begin_stray(broker_id, receipt) else { return };
        let subject = Subject::Stray(stray);
        self.push(Settling { subject, settlement, parked, is_replayed: false, until: None });
    }

    /// What has come back; waits for the first. Cancel safe: nothing is taken before it answers.
    pub(super) async fn returned(&self) -> Vec<Returned<E>> {
        loop {
            let returned = std::mem::take(&mut *self.returned.lock());
            if !returned.is_empty() {
                return returned;
            }
            self.has_returned.notified().await;
        }
    }

    fn give_back(&self, returned: Returned<E>) {
        self.returned.lock().push(returned);
        self.has_returned.notify_one();
    }

    /// A message that another entry stands for has ended.
    pub(crate) fn let_go(&self, tracked: Arc<Tracked<E>>) {
        if self.in_flight.let_go(&tracked) {
            self.give_back(Returned::Superseded(tracked));
        }
    }

    /// Has a delivery settled.
    pub fn push(&self, settling: Settling<E>) {
        self.lane(&settling).push(settling);
    }

    /// Has deliveries settled, and leaves the list empty.
    pub fn push_all(&self, settling: &mut Vec<Settling<E>>) {
        // They are mostly of one kind.
        if settling.iter().all(Settling::is_ack) {
            return self.acks.append(settling);
        }
        settling.drain(..).for_each(|settling| self.push(settling));
    }

    fn lane(&self, settling: &Settling<E>) -> &Lane<E> {
        match settling.settlement {
            _ if settling.parked.is_some() || settling.is_replayed => &self.parks,
            Settlement::Ack => &self.acks,
            Settlement::Retry { .. } => &self.retries,
            Settlement::Park => &self.parks,
        }
    }

    /// The lanes, by what their settlements are.
    pub(crate) const fn lanes(&self) -> [&Lane<E>; 3] {
        [&self.acks, &self.retries, &self.parks]
    }
}

impl<E> Lane<E> {
    fn new() -> Self {
        Self { owed: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn push(&self, settling: Settling<E>) {
        self.owed.lock().push(settling);
        self.changed.notify_one();
    }

    fn append(&self, settling: &mut Vec<Settling<E>>) {
        if !settling.is_empty() {
            self.owed.lock().append(settling);
            self.changed.notify_one();
        }
    }

    /// At most `max` of what is owed, oldest first; waits for the first one, and lets whoever can end at
    /// this very moment end too.
    ///
    /// Cancel safe: nothing is taken before it answers.
    pub(crate) async fn next(&self, max: usize) -> Vec<Settling<E>> {
        while self.owed.lock().is_empty() {
            self.changed.notified().await;
        }
        tokio::task::yield_now().await;
        self.take(max)
    }

    /// At most `max` of what is owed, oldest first.
    pub(crate) fn take(&self, max: usize) -> Vec<Settling<E>> {
        let mut owed = self.owed.lock();
        if owed.len() <= max {
            let capacity = owed.len();
            return std::mem::replace(&mut *owed, Vec::with_capacity(capacity));
        }
        let rest = owed.split_off(max);
        let first = std::mem::replace(&mut *owed, rest);
        // There is more: the next call must not wait for another to be added.
        self.changed.notify_one();
        first
    }
}

impl<E> Settling<E> {
    /// What becomes of the message.
    pub const fn settlement(&self) -> Settlement {
        self.settlement
    }

    /// What is kept of the message, if it is in flight.
    pub fn entry(&self) -> Option<&E> {
        match &self.subject {
            Subject::Tracked(tracked) => Some(&tracked.entry),
            Subject::Stray(_) => None,
        }
    }

    /// What to settle it with, as of now; `None` if another entry stands for its message.
    pub(crate) fn receipt(&self) -> Option<Receipt> {
        match &self.subject {
            Subject::Tracked(tracked) => tracked.valid_receipt(),
            Subject::Stray(stray) => Some(stray.receipt()),
        }
    }

    /// What its source is told.
    pub(crate) const fn for_source(&self) -> Settlement {
        match self.parked {
            // It is kept here: its source need not.
            Some(_) => Settlement::Ack,
            None => self.settlement,
        }
    }

    fn is_ack(&self) -> bool {
        self.parked.is_none() && !self.is_replayed && self.settlement == Settlement::Ack
    }
}

impl<E: Entry> Held<E> {
    /// The message.
    pub fn tracked(&self) -> &Arc<Tracked<E>> {
        self.tracked.as_ref().expect("a held message is there until it is settled")
    }

    /// Whether it is owed to this source.
    pub(crate) fn is_of(&self, owed: &Arc<Owed<E>>) -> bool {
        Arc::ptr_eq(&self.owed, owed)
    }

    /// What its source can do.
    pub fn source(&self) -> Profile {
        self.owed.profile
    }

    /// The message stays here and is tried again after a while: its source notes that, where it can.
    pub(crate) fn rests(&self, after: Duration, reason: Reason) {
        if self.owed.profile.keeps_rests {
            self.owed.resting.push(self.tracked(), Instant::now() + after, reason);
        }
    }

    /// Ends the delivery.
    pub fn settle(self, settlement: Settlement) {
        let owed = Arc::clone(&self.owed);
        owed.push(self.settling(settlement));
    }

    /// Ends the delivery; `until` is dropped when the source has heard.
    pub fn settle_until(self, settlement: Settlement, until: impl Any + Send + Sync) {
        let owed = Arc::clone(&self.owed);
        owed.push(Settling { until: Some(Box::new(until)), ..self.settling(settlement) });
    }

    /// Ends the delivery of a message that was replayed and is done with: that is kept, durably, and then its source
    /// is told.
    pub(crate) fn settle_replayed(self, until: impl Any + Send + Sync) {
        let owed = Arc::clone(&self.owed);
        let until = Some(Box::new(until) as Box<dyn Any + Send + Sync>);
        owed.push(Settling { is_replayed: true, until, ..self.settling(Settlement::Ack) });
    }

    /// Parks the message: it is kept here, durably, and then its source is told that it is done with.
    pub(crate) fn park(self, parked: Box<Parked>, until: impl Any + Send + Sync) {
        let owed = Arc::clone(&self.owed);
        let (parked, until) = (Some(parked), Some(Box::new(until) as Box<dyn Any + Send + Sync>));
        owed.push(Settling { parked, until, ..self.settling(Settlement::Park) });
    }

    /// Hands the message back for a reason that is not an attempt.
    pub fn hand_back(self, after: Duration, reason: Reason) {
        let attempts = self.tracked().attempts();
        self.settle(Settlement::Retry { after, attempts, reason });
    }

    /// Ends the delivery. Whoever gets the answer must push it.
    pub fn settling(mut self, settlement: Settlement) -> Settling<E> {
        let tracked = self.tracked.take().expect("a held message is there until it is settled");
        settling(tracked, settlement)
    }

    /// Lets go of a message that another entry stands for.
    pub fn let_go(mut self) {
        if let Some(tracked) = self.tracked.take() {
            self.owed.let_go(tracked);
        }
    }

    /// Gives the message back to its recipient, which finds another place for it.
    pub(crate) fn give_back(mut self, beside: impl Any + Send + Sync) {
        if let Some(tracked) = self.tracked.take() {
            self.owed.give_back(Returned::Homeless(tracked, Box::new(beside)));
        }
    }
}

fn settling<E>(tracked: Arc<Tracked<E>>, settlement: Settlement) -> Settling<E> {
    tracked.begin_settling(settlement);
    let subject = Subject::Tracked(tracked);
    Settling { subject, settlement, parked: None, is_replayed: false, until: None }
}

impl<E: Entry> Drop for Held<E> {
    fn drop(&mut self) {
        if let Some(tracked) = self.tracked.take() {
            let Dropped { after, reason } = self.owed.dropped;
            let attempts = tracked.attempts();
            self.owed.push(settling(tracked, Settlement::Retry { after, attempts, reason }));
        }
    }
}

impl<E: Entry> fmt::Debug for Held<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.tracked).finish()
    }
}

impl<E: fmt::Debug> fmt::Debug for Settling<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Settling").field(&self.subject).field(&self.settlement).finish()
    }
}
