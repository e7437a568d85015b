//! The books of one queue: what is here, and what waits to be settled.
//!
//! A delivery that was taken in is a [`Held`], which is settled once, by value. Dropped unsettled it
//! hands itself back. Drop does no waiting: it writes into the book, and the queue's settler does
//! the rest.
//!
//! The list of what waits to be settled is bounded by what is in flight, since each message is in it
//! once at most.

use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_tasks::KeyHold;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::in_flight::{Begun, InFlight, Now, Tracked};
use crate::pool::{Item, ParkingKey};
use crate::{DEFAULT_DELAY, Delivery, Malformed, Parked, Reason, Receipt, Settlement};

/// The books of one queue.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) queue: Arc<str>,
    pub(crate) in_flight: InFlight,
    ended: Mutex<Vec<Ended>>,
    changed: Notify,
}

/// A message that was taken in and must be settled: docs/rules.md#settle-3. Dropped, it goes back to its
/// source.
#[derive(Debug)]
#[must_use = "dropping it hands the message back"]
pub(crate) struct Held {
    tracked: Option<Arc<Tracked>>,
    ledger: Arc<Ledger>,
}

/// A delivery that is over, for its source to hear of.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) subject: Subject,
    pub(crate) settlement: Settlement,
    /// To be kept, durably, before the source hears.
    pub(crate) parked: Option<Box<Parked>>,
    /// Holds the key until the source has heard.
    pub(crate) hold: Option<KeyHold<Item>>,
    /// Says that the key is being parked until it is.
    pub(crate) parking_key: Option<ParkingKey>,
}

/// Whose delivery is over.
#[derive(Debug)]
pub(crate) enum Subject {
    /// A message that is in flight.
    Tracked(Arc<Tracked>),
    /// Something that never was.
    Stray(Receipt),
}

impl Ledger {
    pub(crate) fn new(queue: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            queue,
            in_flight: InFlight::default(),
            ended: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// What a delivery turned out to be, and its receipt where it is to be removed at once.
    pub(crate) fn begin(self: &Arc<Self>, delivery: Delivery, now: Instant) -> Taken {
        let Delivery { broker_id, receipt, attempts, message } = delivery;
        let message = match message {
            Ok(message) => message,
            Err(malformed) => return Taken::Malformed { broker_id, receipt, malformed },
        };
        let id = Arc::clone(&message.id);
        let copy = receipt.clone();
        match self.in_flight.begin(broker_id, receipt, attempts, message, now) {
            Begun::New(tracked) => {
                Taken::New(Held { tracked: Some(tracked), ledger: Arc::clone(self) })
            }
            Begun::Redelivered => Taken::Redelivered { id },
            Begun::Requeued => Taken::Requeued { id, receipt: copy },
        }
    }

    /// Ends something that was never in flight.
    pub(crate) fn end_stray(
        &self,
        receipt: Receipt,
        settlement: Settlement,
        parked: Option<Box<Parked>>,
    ) {
        self.push(Ended {
            subject: Subject::Stray(receipt),
            settlement,
            parked,
            hold: None,
            parking_key: None,
        });
    }

    pub(crate) fn push(&self, ended: Ended) {
        self.ended.lock().push(ended);
        self.changed.notify_one();
    }

    /// At most `max` of what is over, oldest first; waits for the first one, and lets whoever can end
    /// at this very moment end too.
    ///
    /// Cancel safe: nothing is taken before it answers.
    pub(crate) async fn next_ended(&self, max: usize) -> Vec<Ended> {
        while self.ended.lock().is_empty() {
            self.changed.notified().await;
        }
        tokio::task::yield_now().await;
        self.take_ended(max)
    }

    /// At most `max` of what is over, oldest first.
    fn take_ended(&self, max: usize) -> Vec<Ended> {
        let mut ended = self.ended.lock();
        if ended.len() <= max {
            return std::mem::take(&mut *ended);
        }
        ended.drain(..max).collect()
    }
}

impl Ended {
    /// What to settle it with, as of now.
    pub(crate) fn receipt(&self) -> Receipt {
        match &self.subject {
            Subject::Tracked(tracked) => tracked.receipt(),
            Subject::Stray(receipt) => receipt.clone(),
        }
    }
}

/// What became of a delivery that was taken in.
#[derive(Debug)]
pub(crate) enum Taken {
    New(Held),
    Redelivered { id: Arc<str> },
    Requeued { id: Arc<str>, receipt: Receipt },
    Malformed { broker_id: Arc<str>, receipt: Receipt, malformed: Malformed },
}

impl Held {
    pub(crate) fn tracked(&self) -> &Arc<Tracked> {
        self.tracked.as_ref().expect("a held message is there until it is settled")
    }

    pub(crate) fn queue(&self) -> &Arc<str> {
        &self.ledger.queue
    }

    /// Hands the message back for a reason that is not an attempt.
    pub(crate) fn hand_back(self, after: std::time::Duration, reason: Reason) {
        let attempts = self.tracked().attempts();
        self.settle(Settlement::Retry { after, attempts, reason }, None, None, None);
    }

    /// Ends the delivery.
    pub(crate) fn settle(
        mut self,
        settlement: Settlement,
        parked: Option<Box<Parked>>,
        hold: Option<KeyHold<Item>>,
        parking_key: Option<ParkingKey>,
    ) {
        if let Some(tracked) = self.tracked.take() {
            self.end(tracked, settlement, parked, hold, parking_key);
        }
    }

    fn end(
        &self,
        tracked: Arc<Tracked>,
        settlement: Settlement,
        parked: Option<Box<Parked>>,
        hold: Option<KeyHold<Item>>,
        parking_key: Option<ParkingKey>,
    ) {
        tracked.change(|standing| standing.now = Now::Settling);
        let subject = Subject::Tracked(tracked);
        self.ledger.push(Ended { subject, settlement, parked, hold, parking_key });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(tracked) = self.tracked.take() {
            let attempts = tracked.attempts();
            let settlement =
                Settlement::Retry { after: DEFAULT_DELAY, attempts, reason: Reason::Failed };
            self.end(tracked, settlement, None, None, None);
        }
    }
}
