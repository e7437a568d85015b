//! Settling: tells the source what became of deliveries, in batches that grow with load.
//!
//! Acks, retries and what is parked go by lanes of their own, so that an ack never waits for a copy or for a parked
//! row. In a lane a few batches are under way at once; one that fails alone is tried again by itself, and holds up
//! no other.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep_until};

use super::held::{Settling, Subject};
use super::{Intake, PATIENCE_WITH_COPIES, Recipient, STALLED_AFTER};
use crate::panicked;
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
        let again = failing.again().filter(|_| is_free);
        tokio::select! {
            biased;
            _ = &mut ended => return,
            Some((failed, pause)) = under_way.next(), if !under_way.is_empty() => {
                failing.note(failed, pause);
            }
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                let Paused { batch, pause, .. } = failing.next(max);
                under_way.push(settle_after(&intake, batch, pause));
            }
            batch = lane.next(max), if is_free && !failing.is_down => {
                under_way.push(settle_after(&intake, batch, Duration::ZERO));
            }
        }
    }
}

/// A batch that failed.
struct Paused<E> {
    batch: Vec<Settling<E>>,
    /// How long it was put off the last time.
    pause: Duration,
    /// How many are tried together at most: fewer each time, where one may be why all failed.
    most: usize,
}

/// What could not be settled yet. Each batch has its own pause: one that fails puts off no other.
struct Failing<E> {
    /// By when they are tried again, first those that failed first.
    batches: BTreeMap<(Instant, u64), Paused<E>>,
    count: u64,
    /// Not even one was settled the last time: nothing more is tried before these.
    is_down: bool,
}

impl<E> Default for Failing<E> {
    fn default() -> Self {
        Self { batches: BTreeMap::new(), count: 0, is_down: false }
    }
}

impl<E> Failing<E> {
    fn again(&self) -> Option<Instant> {
        self.batches.first_key_value().map(|((again, _), _)| *again)
    }

    /// Takes what failed after a pause; the next is twice as long.
    fn note(&mut self, failed: Failed<E>, pause: Duration) {
        if failed.settlings.is_empty() {
            return;
        }
        self.is_down |= failed.all && !failed.splits;
        let pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let again = Instant::now() + pause;
        let mut batch = failed.settlings;
        let mut most = usize::MAX;
        if failed.splits {
            most = batch.len().div_ceil(2);
            let rest = batch.split_off(most);
            if !rest.is_empty() {
                self.add(again, Paused { batch: rest, pause, most });
            }
        }
        self.add(again, Paused { batch, pause, most });
    }

    fn add(&mut self, again: Instant, paused: Paused<E>) {
        self.count += 1;
        self.batches.insert((again, self.count), paused);
    }

    /// What is to be tried now, together, and after which pause.
    fn next(&mut self, max: usize) -> Paused<E> {
        self.is_down = false;
        let now = Instant::now();
        let mut next = Paused { batch: Vec::new(), pause: Duration::ZERO, most: max };
        while let Some(first) = self.batches.first_entry()
            && first.key().0 <= now
            && next.batch.len() < next.most.min(first.get().most)
        {
            let (again, _) = *first.key();
            let mut paused = first.remove();
            next.most = next.most.min(paused.most);
            let room = next.most - next.batch.len();
            let rest = paused.batch.split_off(paused.batch.len().min(room));
            next.batch.append(&mut paused.batch);
            next.pause = next.pause.max(paused.pause);
            if !rest.is_empty() {
                self.add(again, Paused { batch: rest, ..paused });
            }
        }
        next
    }
}

/// Settles one batch that was tried before, or a new one.
async fn settle_after<R: Recipient>(
    intake: &Arc<Intake<R>>,
    batch: Vec<Settling<R::Entry>>,
    pause: Duration,
) -> (Failed<R::Entry>, Duration) {
    (settle(intake, batch).await, pause)
}

/// Those of a batch that were not settled.
struct Failed<E> {
    settlings: Vec<Settling<E>>,
    all: bool,
    /// Whether one of them may be why the others failed too.
    splits: bool,
}

/// Settles one batch.
async fn settle<R: Recipient>(
    intake: &Arc<Intake<R>>,
    mut batch: Vec<Settling<R::Entry>>,
) -> Failed<R::Entry> {
    let mut used = valid_receipts(intake, &mut batch);
    if batch.is_empty() {
        return Failed { settlings: batch, all: false, splits: false };
    }
    if let Err(error) = keep_parked(intake, &batch).await {
        intake.recipient.source_failed("park", &error);
        return Failed { settlings: batch, all: true, splits: true };
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
    let mut answers = match intake.ask(patience, |source| source.settle(settles)).await {
        Ok(answers) => answers,
        Err(error) => {
            intake.recipient.source_failed("settle", &error);
            return Failed { settlings: batch, all: true, splits: false };
        }
    };
    let stale = answers.iter().filter(|answer| **answer == Settled::Stale).count();
    if stale > 0 {
        intake.recipient.stale(stale);
    }
    answers.resize(batch.len(), Settled::Failed(SourceError::new("its source gave no answer")));
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
    Failed { settlings: failed, all: false, splits: false }
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
            self.owed.let_go(Arc::clone(tracked));
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
        panicked::as_error(async { intake.recipient.park(rows).await }).await?;
    }
    let over: Vec<&R::Entry> =
        batch.iter().filter(|one| one.is_replayed).filter_map(Settling::entry).collect();
    if over.is_empty() {
        return Ok(());
    }
    panicked::as_error(async { intake.recipient.replay_over(&over).await }).await
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
            match &settling.subject {
                Subject::Tracked(tracked) => {
                    let is_done = !matches!(settling.settlement, Settlement::Retry { .. });
                    intake.owed.in_flight.end(tracked, is_done);
                    R::ended(intake, &tracked.entry);
                }
                Subject::Stray(stray) => intake.owed.in_flight.end_stray(stray),
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
