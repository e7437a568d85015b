//! Settling: tells the source what became of deliveries, in batches that grow with load.
//!
//! Acks, retries and what is parked go by lanes of their own, so that an ack never waits for a copy or for a parked
//! row. In a lane a few batches are under way at once; one that fails alone is tried again by itself, and holds up
//! no other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep_until};

use super::held::{Settling, Subject};
use super::{Intake, PATIENCE_WITH_COPIES, Recipient, STALLED_AFTER};
use crate::{MIN_DELAY, Parked, Receipt, Settle, Settled, Settlement, SourceError};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How many batches of acks and of retries may be under way at once: a source may answer late for what it
/// tells its broker together.
const UNDER_WAY: usize = 8;

/// Settles what is owed in one lane until the context ends. The source redelivers what is left.
pub(super) async fn run<R: Recipient>(intake: Arc<Intake<R>>, lane: usize, cx: Context) {
    // Parked rows are listed as they were parked: one batch at a time.
    let most = if lane == 2 { 1 } else { UNDER_WAY };
    let mut under_way = FuturesUnordered::new();
    let mut failing = Failing::default();
    let mut ended = pin!(cx.cancelled());
    loop {
        let lane = intake.owed.lanes()[lane];
        let max = intake.source().profile().settle_batch.max(1);
        let is_free = under_way.len() < most;
        tokio::select! {
            biased;
            _ = &mut ended => return,
            Some(failed) = under_way.next(), if !under_way.is_empty() => failing.note(failed),
            () = sleep_until(failing.again), if is_free && !failing.settlings.is_empty() => {
                under_way.push(settle(&intake, failing.next(max)));
            }
            batch = lane.next(max), if is_free && !failing.is_down => {
                under_way.push(settle(&intake, batch));
            }
        }
    }
}

/// What could not be settled yet.
struct Failing<E> {
    settlings: Vec<Settling<E>>,
    /// Not even one was settled the last time: nothing more is tried before these.
    is_down: bool,
    again: Instant,
    pause: Duration,
}

impl<E> Default for Failing<E> {
    fn default() -> Self {
        let again = Instant::now();
        Self { settlings: Vec::new(), is_down: false, again, pause: FIRST_PAUSE }
    }
}

impl<E> Failing<E> {
    fn note(&mut self, mut failed: Failed<E>) {
        if failed.settlings.is_empty() {
            if self.settlings.is_empty() {
                self.pause = FIRST_PAUSE;
            }
            return;
        }
        self.is_down |= failed.all;
        // Those that failed before come first: what is parked is listed in order.
        self.settlings.append(&mut failed.settlings);
        self.again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    fn next(&mut self, max: usize) -> Vec<Settling<E>> {
        self.is_down = false;
        let rest = self.settlings.split_off(max.min(self.settlings.len()));
        std::mem::replace(&mut self.settlings, rest)
    }
}

/// Those of a batch that were not settled.
struct Failed<E> {
    settlings: Vec<Settling<E>>,
    all: bool,
}

/// Settles one batch.
async fn settle<R: Recipient>(
    intake: &Arc<Intake<R>>,
    mut batch: Vec<Settling<R::Entry>>,
) -> Failed<R::Entry> {
    let mut used = valid_receipts(intake, &mut batch);
    if batch.is_empty() {
        return Failed { settlings: batch, all: false };
    }
    if let Err(error) = keep_parked(intake, &batch).await {
        intake.recipient.source_failed("park", &error);
        return Failed { settlings: batch, all: true };
    }
    let settle = |(settling, receipt): (&Settling<_>, &Receipt)| Settle {
        receipt: receipt.clone(),
        settlement: settling.for_source(),
    };
    let settles: Vec<Settle> = batch.iter().zip(&used).map(settle).collect();
    let is_ack = |settle: &Settle| settle.settlement == Settlement::Ack;
    let patience = match settles.iter().all(is_ack) {
        true => STALLED_AFTER,
        false => PATIENCE_WITH_COPIES,
    };
    let answers = match intake.ask(patience, |source| source.settle(settles)).await {
        Ok(answers) => answers,
        Err(error) => {
            intake.recipient.source_failed("settle", &error);
            return Failed { settlings: batch, all: true };
        }
    };
    let stale = answers.iter().filter(|answer| **answer == Settled::Stale).count();
    if stale > 0 {
        intake.recipient.stale(stale);
    }
    let mut failed = Vec::new();
    for ((settling, answer), used) in batch.drain(..).zip(answers).zip(used.drain(..)) {
        match answer {
            Settled::Failed(error) => {
                intake.recipient.source_failed("settle", &error);
                failed.push(settling);
            }
            answer => conclude(intake, settling, &answer, &used),
        }
    }
    Failed { settlings: failed, all: false }
}

/// The receipts that are valid now. What was superseded is nobody's any more, and leaves the batch.
fn valid_receipts<R: Recipient>(
    intake: &Arc<Intake<R>>,
    batch: &mut Vec<Settling<R::Entry>>,
) -> Vec<Receipt> {
    let mut receipts = Vec::with_capacity(batch.len());
    let before = batch.len();
    batch.retain(|settling| {
        let receipt = settling.receipt();
        let is_valid = receipt.is_some();
        receipts.extend(receipt);
        if !is_valid {
            intake.let_go(settling);
        }
        is_valid
    });
    if batch.len() < before {
        intake.recipient.stale(before - batch.len());
    }
    receipts
}

impl<R: Recipient> Intake<R> {
    /// Another entry stands for a message: this one is over.
    fn let_go(self: &Arc<Self>, settling: &Settling<R::Entry>) {
        if let Subject::Tracked(tracked) = &settling.subject {
            R::ended(self, &tracked.entry);
        }
    }
}

/// Keeps what must be known before the source hears: what is parked (docs/rules.md#park-1), and which replayed messages
/// are over (docs/rules.md#park-2).
async fn keep_parked<R: Recipient>(
    intake: &Intake<R>,
    batch: &[Settling<R::Entry>],
) -> Result<(), SourceError> {
    let rows = batch.iter().filter_map(|settling| settling.parked.as_deref().cloned());
    let rows: Vec<Parked> = rows.collect();
    if !rows.is_empty() {
        intake.recipient.park(rows).await?;
    }
    let over: Vec<&R::Entry> =
        batch.iter().filter(|one| one.is_replayed).filter_map(Settling::entry).collect();
    if over.is_empty() {
        return Ok(());
    }
    intake.recipient.replay_over(&over).await
}

/// Hears what became of a settlement. Delivered anew while it was under way, the message is settled
/// anew, by the receipt that is valid now: docs/rules.md#dedupe-1.
fn conclude<R: Recipient>(
    intake: &Arc<Intake<R>>,
    mut settling: Settling<R::Entry>,
    answer: &Settled,
    used: &Receipt,
) {
    match settling.receipt() {
        None => {
            intake.let_go(&settling);
            intake.recipient.stale(usize::from(*answer != Settled::Stale));
        }
        Some(valid) if valid == *used => {
            intake.recipient.settled(&settling, answer);
            if let Subject::Tracked(tracked) = &settling.subject {
                intake.owed.in_flight.end(tracked);
                R::ended(intake, &tracked.entry);
            }
            // Last: whoever waits for the key starts, or is let in, when all this is true.
            drop(settling.until);
        }
        Some(_) => {
            if *answer == Settled::Done
                && let Settlement::Retry { after, .. } = &mut settling.settlement
            {
                // Its delay has passed already. Not at once, or it could come back for ever before
                // the answer does.
                *after = MIN_DELAY;
            }
            intake.owed.push(settling);
        }
    }
}
