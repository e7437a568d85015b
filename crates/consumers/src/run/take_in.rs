//! Taking a batch in: from the source into the sluice, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use sluicegate_dispatch::intake::{Begun, Held, Tracked};
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
        let begun = engine.owed.in_flight.begin(broker_id, receipt, attempts, entry, now);
        if let Begun::Again(_, superseded) = &begun {
            consuming.take_out(superseded);
        }
        match begun {
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
    let messages: Vec<_> = items.iter().map(|(_, held)| Arc::clone(held.tracked())).collect();
    // Refused only when the sluice is closed: then each hands itself back.
    let Ok(ids) = consuming.sluice.admit_all(items) else { return };
    for (message, id) in messages.iter().zip(ids) {
        message.entry.item.set(id).ok();
    }
}

impl Consuming {
    /// Takes superseded messages out, also such as wait to be tried again: what stands for them waits for nothing but
    /// those that run.
    fn take_out(&self, superseded: &[Arc<Tracked<Consumed>>]) {
        // The last first: none of them starts because another is taken out.
        let ids = superseded.iter().rev().filter_map(|old| old.entry.item.get());
        ids.filter_map(|id| self.sluice.withdraw(*id)).for_each(Held::let_go);
    }

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
        let (is_ignored, item) = (AtomicBool::new(false), OnceLock::new());
        (Consumed { envelope, key, is_ignored, item }, bad)
    }
}
