//! Settling: the one task of a consumer that tells its source what became of messages.
//!
//! While the source is busy with one lot the next one gathers, so the lots grow with the load. A few
//! lots may be under way at once, since a source may answer late for what it tells its broker together.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_dispatch::{MIN_DELAY, Receipt, Settle, Settled, SourceError};
use sluicegate_tasks::Context;
use tokio::time::sleep;

use super::Core;
use super::books::{End, Ended};
use super::table::Standing;
use crate::Fact;
use crate::stats::add;

/// How many lots may be under way at once.
const LOTS: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Settles until the context ends. What is left then is the source's again by itself.
pub(super) async fn run(core: Arc<Core>, cx: Context) {
    let mut under_way = FuturesUnordered::new();
    let mut ended = pin!(cx.cancelled());
    loop {
        let max = core.source.profile().settle_batch.max(1);
        tokio::select! {
            biased;
            _ = &mut ended => return,
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            lot = core.books.next_ended(max), if under_way.len() < LOTS => {
                let is_dead = |one: &Ended| one.end == End::Dead;
                if lot.iter().any(is_dead) {
                    let (dead, rest): (Vec<_>, Vec<_>) = lot.into_iter().partition(is_dead);
                    under_way.push(tell(&core, dead));
                    if !rest.is_empty() {
                        under_way.push(tell(&core, rest));
                    }
                } else {
                    under_way.push(tell(&core, lot));
                }
            }
        }
    }
}

/// Tells the source of one lot, as often as it takes: all of it is to be buried, or nothing.
async fn tell(core: &Core, mut lot: Vec<Ended>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let used = core.valid_receipts(&mut lot);
        if lot.is_empty() {
            return;
        }
        match ask(core, &lot, used.clone()).await {
            Ok(answers) => return core.conclude(lot, &used, &answers),
            Err(error) => {
                core.observe(&Fact::SourceFailed {
                    consumer: &core.whose.name,
                    doing: "settle",
                    cause: &error.cause,
                });
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn ask(
    core: &Core,
    lot: &[Ended],
    receipts: Vec<Receipt>,
) -> Result<Vec<Settled>, SourceError> {
    let settle = |(ended, receipt): (&Ended, Receipt)| Settle {
        receipt,
        settlement: ended.end.settlement(),
    };
    core.source.settle(lot.iter().zip(receipts).map(settle).collect()).await
}

/// How many of a lot ended how.
#[derive(Default)]
struct Tally {
    done: usize,
    ignored: usize,
    retried: usize,
    handed_back: usize,
    dead: usize,
    stale: usize,
}

impl Tally {
    fn count(&mut self, end: End, answer: &Settled) {
        let counter = match (answer, end) {
            (Settled::Stale, _) => &mut self.stale,
            (_, End::Done) => &mut self.done,
            (_, End::Ignored) => &mut self.ignored,
            (_, End::Retried { .. }) => &mut self.retried,
            (_, End::HandedBack { .. }) => &mut self.handed_back,
            (_, End::Dead) => &mut self.dead,
        };
        *counter += 1;
    }
}

impl Core {
    /// The receipts that are valid now. Letters that were superseded are taken out of the lot.
    fn valid_receipts(&self, lot: &mut Vec<Ended>) -> Vec<Receipt> {
        let before = lot.len();
        let mut receipts = Vec::with_capacity(before);
        let mut table = self.books.table.lock();
        lot.retain(|ended| {
            let receipt = table.receipt(&ended.letter);
            let is_valid = receipt.is_some();
            receipts.extend(receipt);
            is_valid
        });
        self.books.superseded.store(table.superseded(), Ordering::Release);
        drop(table);
        self.went_stale(before - lot.len());
        receipts
    }

    /// Hears what became of a lot. What was delivered anew while that was under way is settled anew,
    /// by the receipt that is valid now.
    fn conclude(&self, lot: Vec<Ended>, used: &[Receipt], answers: &[Settled]) {
        let mut tally = Tally::default();
        let mut anew = Vec::new();
        let mut table = self.books.table.lock();
        for ((ended, used), answer) in lot.into_iter().zip(used).zip(answers) {
            match table.settled(&ended.letter, used) {
                Standing::Over => tally.count(ended.end, answer),
                Standing::Superseded => tally.stale += 1,
                Standing::Redelivered => anew.push(told_again(ended, answer)),
            }
        }
        self.books.superseded.store(table.superseded(), Ordering::Release);
        drop(table);
        self.books.push_all(&mut anew);
        self.record(&tally);
        self.books.shrunk.notify_one();
    }

    fn record(&self, tally: &Tally) {
        let counters = &self.books.counters;
        add(&counters.done, tally.done);
        add(&counters.ignored, tally.ignored);
        add(&counters.retried, tally.retried);
        add(&counters.handed_back, tally.handed_back);
        let kept = self.source.profile().keeps_dead_letters;
        add(if kept { &counters.dead } else { &counters.dropped }, tally.dead);
        self.went_stale(tally.stale);
    }

    fn went_stale(&self, count: usize) {
        if count > 0 {
            add(&self.books.counters.stale, count);
            self.observe(&Fact::Stale { consumer: &self.whose.name, count });
        }
    }
}

/// A message that came again before the answer did. If the answer was for its delay, that has passed
/// already; not at once, or it could come back for ever before the answer does.
fn told_again(mut ended: Ended, answer: &Settled) -> Ended {
    if *answer == Settled::Done
        && let End::Retried { after, .. } = &mut ended.end
    {
        *after = MIN_DELAY;
    }
    ended
}
