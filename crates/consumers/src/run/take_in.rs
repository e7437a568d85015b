//! Taking a batch in: from the source into the sluice, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sluicegate_dispatch::intake::Begin;
use sluicegate_dispatch::{Delivery, Envelope, Malformed, Settlement};
use sluicegate_tasks::Entry;
use tokio::time::Instant;

use super::{Consuming, Engine};
use crate::failure::words;
use crate::metadata::Consumed;
use crate::stats::add;

pub(super) fn take_in(engine: &Arc<Engine>, batch: Vec<Delivery<Envelope>>) {
    let consuming = &engine.recipient;
    add(&consuming.counters.received, batch.len());
    let (now, mut again) = (Instant::now(), 0);
    let mut items = Vec::with_capacity(batch.len());
    for delivery in batch {
        let (delivery, bad) = consuming.read(delivery);
        match engine.begin(delivery, now) {
            Ok(Begin::New(held)) if bad.is_some() => {
                consuming.died(held.tracked(), &bad.unwrap_or_default(), true);
                held.settle(Settlement::Park);
            }
            Ok(Begin::New(held)) => {
                let entry = Entry::of(Arc::clone(&consuming.tenant));
                let key = held.tracked().entry.key.clone();
                items.push((key.into_iter().fold(entry, |entry, key| entry.key(key)), held));
            }
            Ok(Begin::Redelivered(_)) => again += 1,
            // No message is a copy of another here, and none is malformed by now.
            Ok(Begin::Requeued { .. }) | Err(_) => {}
        }
    }
    add(&consuming.counters.redelivered, again);
    // Refused only when the sluice is closed: then each hands itself back.
    consuming.sluice.admit_all(items).ok();
}

impl Consuming {
    /// What is kept of a delivery, and what is wrong with it, if anything is.
    fn read(&self, delivery: Delivery<Envelope>) -> (Delivery<Consumed>, Option<String>) {
        let Delivery { broker_id, receipt, attempts, message } = delivery;
        let (envelope, bad) = match message {
            Ok(envelope) => (envelope, None),
            Err(Malformed { why, .. }) => (Envelope::default(), Some(why)),
        };
        let key = match (&self.order, &bad) {
            (Some(order), None) => catch_unwind(AssertUnwindSafe(|| order.key(&envelope)))
                .map_err(|panic| format!("order_by panicked: {}", words(&*panic))),
            _ => Ok(None),
        };
        let (key, bad) = match key {
            Ok(key) => (key, bad),
            Err(why) => (None, Some(why)),
        };
        let consumed = Consumed { envelope, key, is_ignored: AtomicBool::new(false) };
        (Delivery { broker_id, receipt, attempts, message: Ok(consumed) }, bad)
    }
}
