//! Receiving: from the source into the sluice, no more than the prefetch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Demand, Envelope};
use sluicegate_tasks::{Context, Entry};
use tokio::time::{Instant, sleep};

use super::books::{End, Ended, Item};
use super::table::Took;
use super::{Core, Intake};
use crate::Fact;
use crate::failure::words;
use crate::metadata::Letter;
use crate::stats::add;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Receives until told to stop. What was received is always taken in: what is dropped on the way hands
/// itself back.
pub(super) async fn run(core: Arc<Core>, cx: Context) {
    let mut pause = FIRST_PAUSE;
    // A stopped source answers at once, so the context is looked at, not only waited for.
    while !cx.is_cancelled() {
        let Ok(room) = cx.until_interrupted(core.room()).await else { return };
        match cx.until_interrupted(core.source.receive(Demand::any(room))).await {
            Err(_) => return,
            // A source that has nothing waits for it; one that does not must not spin.
            Ok(Ok(batch)) if batch.is_empty() => tokio::task::yield_now().await,
            Ok(Ok(batch)) => {
                pause = FIRST_PAUSE;
                core.take_in(batch);
            }
            Ok(Err(error)) => {
                core.observe(&Fact::SourceFailed {
                    consumer: &core.whose.name,
                    doing: "receive",
                    cause: &error.cause,
                });
                if cx.until_interrupted(sleep(pause)).await.is_err() {
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// A delivery and what it stays in order with, or why it is not even that.
struct Read {
    delivery: Delivery<Envelope>,
    key: Result<Option<Arc<str>>, String>,
}

impl Core {
    /// How many more may be taken in; waits until it is one.
    async fn room(&self) -> usize {
        let prefetch = self.size.prefetch as usize;
        if self.intake == Intake::BoundedAtSource {
            return prefetch;
        }
        loop {
            let held = self.books.table.lock().len();
            if held < prefetch {
                return prefetch - held;
            }
            self.books.shrunk.notified().await;
        }
    }

    /// Takes a batch in, in its order.
    fn take_in(&self, batch: Vec<Delivery<Envelope>>) {
        let counters = &self.books.counters;
        add(&counters.received, batch.len());
        // The keys come first: the user's code runs under no lock.
        let batch: Vec<Read> = batch.into_iter().map(|delivery| self.read(delivery)).collect();
        let (mut items, mut poison) = (Vec::with_capacity(batch.len()), Vec::new());
        let (now, mut again) = (Instant::now(), 0);
        let mut table = self.books.table.lock();
        for Read { delivery, key } in batch {
            let Delivery { broker_id, receipt, attempts, message } = delivery;
            let (key, bad) = match (key, &message) {
                (Ok(key), Ok(_)) => (key, None),
                (Err(why), _) => (None, Some(why)),
                (_, Err(malformed)) => (None, Some(malformed.why.clone())),
            };
            let Took::New(number) = table.take(&broker_id, receipt, key.clone(), now) else {
                again += 1;
                continue;
            };
            let envelope = message.unwrap_or_default();
            let letter = Arc::new(Letter { broker_id, number, envelope });
            if let Some(why) = bad {
                poison.push((letter, why));
                continue;
            }
            let entry = Entry::of(Arc::clone(&self.tenant));
            let entry = key.into_iter().fold(entry, |entry, key| entry.key(key));
            items.push((entry, Item::new(letter, attempts, Arc::clone(&self.books))));
        }
        self.books.superseded.store(table.superseded(), Ordering::Release);
        drop(table);
        add(&counters.redelivered, again);
        for (letter, why) in poison {
            self.died(&letter, &why, true);
            self.books.push(Ended { letter, end: End::Dead });
        }
        // Refused only when the sluice is closed: then each hands itself back.
        self.sluice.admit_all(items).ok();
    }

    fn read(&self, delivery: Delivery<Envelope>) -> Read {
        let key = match (&self.order, &delivery.message) {
            (Some(order), Ok(envelope)) => {
                let key = catch_unwind(AssertUnwindSafe(|| order.key(envelope)));
                key.map_err(|panic| format!("order_by panicked: {}", words(&*panic)))
            }
            _ => Ok(None),
        };
        Read { delivery, key }
    }
}
