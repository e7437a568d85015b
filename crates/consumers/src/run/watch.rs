//! Watching over what is in hand: windows are extended in time, and what is here for too long is named.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::Receipt;
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, sleep_until};

use super::Core;
use crate::Fact;

/// A window as long as this is none.
const NO_WINDOW: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How many parts of the broker's timeout lie between two looks.
const LOOKS: u32 = 20;

/// Extends every message that is here at a third of its source's window.
pub(super) async fn keep_alive(core: Arc<Core>, cx: Context) {
    if core.source.profile().visibility >= NO_WINDOW {
        return;
    }
    let mut round = Instant::now();
    loop {
        // From the beginning of one round to that of the next, however long a round takes.
        let next = round + core.source.profile().visibility / 3;
        if cx.until_interrupted(sleep_until(next)).await.is_err() {
            return;
        }
        round = Instant::now();
        let all: Vec<Receipt> = core.books.table.lock().receipts();
        for lot in all.chunks(core.source.profile().settle_batch.max(1)) {
            // A window that has ended is no harm: the message is recognised when it comes again.
            match cx.until_interrupted(core.source.extend(lot.to_vec())).await {
                Err(_) => return,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => core.observe(&Fact::SourceFailed {
                    consumer: &core.whose.name,
                    doing: "extend",
                    cause: &error.cause,
                }),
            }
        }
    }
}

/// Names what has been here for four fifths of what the broker allows.
pub(super) async fn watch_age(core: Arc<Core>, cx: Context) {
    let allowed = core.settings().timeout;
    if allowed.is_zero() || allowed >= NO_WINDOW {
        return;
    }
    let limit = allowed / 5 * 4;
    while cx.until_interrupted(sleep(allowed / LOOKS)).await.is_ok() {
        let overdue = core.books.table.lock().overdue(limit, Instant::now());
        for (id, age) in overdue {
            core.observe(&Fact::Overdue { consumer: &core.whose.name, id: &id, age, allowed });
        }
    }
}
