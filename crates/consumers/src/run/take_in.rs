//! Taking a batch in: from the source into the sluice, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sluicegate_dispatch::intake::Begun;
use sluicegate_dispatch::{Delivery, Envelope, Malformed, Settlement, panic_words};
use sluicegate_tasks::Entry;
use tokio::time::Instant;

use super::{Consuming, Engine};
use crate::metadata::Consumed;
use crate::stats::add;

pub(super) fn take_in(engine: &Arc<Engine>, batch: Vec<Delivery<Envelope>>) {
    let consuming = &engine.recipient;
    add(&consuming.counters.received, batch.len());
    let (now, mut again) = (Instant::now(), 0);
    let mut items = Vec::with_capacity(batch.len());
    for delivery in batch {
        let Delivery { broker_id, receipt, attempts, message } = delivery;
        let (entry, bad) = consuming.read(message);
        match engine.owed.in_flight.begin(broker_id, receipt, attempts, entry, now) {
            // What is superseded is passed over when its turn comes.
            Begun::New(tracked) | Begun::Again(tracked, _) => {
                let held = engine.owed.hold(tracked);
                if let Some(why) = bad {
                    consuming.died(held.tracked(), &why, true);
                    held.settle(Settlement::Park);
                    continue;
                }
                let entry = Entry::of(Arc::clone(&consuming.tenant));
                let key = held.tracked().entry.key.clone();
                items.push((key.into_iter().fold(entry, |entry, key| entry.key(key)), held));
            }
            Begun::Redelivered(_) => again += 1,
            // No message is a copy of another here.
            Begun::Requeued(_) | Begun::Replayed(_) => {}
        }
    }
    add(&consuming.counters.redelivered, again);
    // Refused only when the sluice is closed: then each hands itself back.
    consuming.sluice.admit_all(items).ok();
}

impl Consuming {
    /// What is kept of a message, and what is wrong with it, if anything is.
    fn read(&self, message: Result<Envelope, Malformed>) -> (Consumed, Option<String>) {
        let (envelope, bad) = match message {
            Ok(envelope) => (envelope, None),
            Err(Malformed { why, .. }) => (Envelope::default(), Some(why)),
        };
        let key = match (&self.order, &bad) {
            (Some(order), None) => catch_unwind(AssertUnwindSafe(|| order.key(&envelope)))
                .map_err(|panic| format!("order_by panicked: {}", panic_words(&*panic))),
            _ => Ok(None),
        };
        let (key, bad) = match key {
            Ok(key) => (key, bad),
            Err(why) => (None, Some(why)),
        };
        (Consumed { envelope, key, is_ignored: AtomicBool::new(false) }, bad)
    }
}
