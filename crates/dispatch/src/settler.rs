//! Settling: the one task of a queue that tells its source what became of deliveries.
//!
//! While the source is busy with one lot, the next one gathers; so the lots grow with the load and
//! nobody waits for company.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_tasks::Context;

use crate::ledger::{Ended, Subject};
use crate::queue::Queue;
use crate::router::Core;
use crate::{Fact, MIN_DELAY, Parked, Receipt, Settle, Settled, Settlement, SourceError};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Settles until the context ends. What is left then is the source's again by itself.
pub(crate) async fn run(core: Arc<Core>, queue: Arc<Queue>, cx: Context) {
    loop {
        let max = queue.source().profile().settle_batch.max(1);
        let Ok(ended) = cx.until_interrupted(queue.ledger.next_ended(max)).await else { return };
        settle(&core, &queue, ended, &cx).await;
    }
}

/// Settles one lot, as often as it takes. When the context ends first, its messages are forgotten:
/// their source delivers them again.
async fn settle(core: &Core, queue: &Queue, mut ended: Vec<Ended>, cx: &Context) {
    keep_parked(core, queue, &mut ended, cx).await;
    let mut pause = FIRST_PAUSE;
    loop {
        let lot: Vec<Settle> = ended
            .iter()
            .map(|ended| Settle { receipt: ended.receipt(), settlement: ended.settlement })
            .collect();
        match queue.ask(|source| source.settle(lot.clone())).await {
            Ok(answers) => {
                for ((ended, answer), used) in ended.into_iter().zip(answers).zip(lot) {
                    conclude(core, queue, ended, answer, &used.receipt);
                }
                return;
            }
            Err(error) => {
                queue.failed(core, "settle", &error);
                if cx.until_interrupted(tokio::time::sleep(pause)).await.is_err() {
                    queue.lost_settlements(ended.len());
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Hears what became of a settlement. Delivered anew while it was under way, the message is settled
/// anew, by the receipt that is valid now: docs/rules.md#dedupe-1.
fn conclude(core: &Core, queue: &Queue, mut ended: Ended, answer: Settled, used: &Receipt) {
    if ended.receipt() == *used {
        record(core, queue, ended, answer);
        return;
    }
    if answer == Settled::Done
        && let Settlement::Retry { after, .. } = &mut ended.settlement
    {
        // Its delay has passed already. Not at once, or it could come back for ever before the
        // answer does.
        *after = MIN_DELAY;
    }
    queue.ledger.push(ended);
}

/// Keeps what must be known before the source is told: what is parked (docs/rules.md#park-1), and which replayed
/// messages are over (docs/rules.md#park-2). What could not be kept before the context ended goes back instead.
async fn keep_parked(core: &Core, queue: &Queue, ended: &mut [Ended], cx: &Context) {
    let parked: Vec<Parked> =
        ended.iter().filter_map(|ended| ended.parked.as_deref().cloned()).collect();
    let over: Vec<Arc<str>> =
        ended.iter().filter_map(|ended| replay_over(core, queue, ended)).cloned().collect();
    let mut pause = FIRST_PAUSE;
    while let Err(error) = keep(core, queue, &parked, &over).await {
        queue.failed(core, "park", &error);
        if cx.until_interrupted(tokio::time::sleep(pause)).await.is_err() {
            for ended in ended.iter_mut() {
                if ended.parked.is_some() || replay_over(core, queue, ended).is_some() {
                    ended.settlement = not_parked(ended);
                    ended.parked = None;
                }
            }
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn keep(
    core: &Core,
    queue: &Queue,
    parked: &[Parked],
    over: &[Arc<str>],
) -> Result<(), SourceError> {
    if !parked.is_empty() {
        core.parked.park(parked.to_vec()).await?;
    }
    if !over.is_empty() {
        core.parked.replay_over(&queue.name, over.to_vec()).await?;
    }
    Ok(())
}

/// The id of a message that was replayed and is done with.
fn replay_over<'a>(core: &Core, queue: &Queue, ended: &'a Ended) -> Option<&'a Arc<str>> {
    let Subject::Tracked(tracked) = &ended.subject else { return None };
    let id = &tracked.message.id;
    let is_over = ended.settlement == Settlement::Ack && ended.parked.is_none();
    (is_over && core.parked.is_replayed(&queue.name, id)).then_some(id)
}

fn not_parked(ended: &Ended) -> Settlement {
    let attempts = match &ended.subject {
        Subject::Tracked(tracked) => tracked.attempts(),
        Subject::Stray(_) => 0,
    };
    Settlement::Retry { after: Duration::ZERO, attempts, reason: crate::Reason::Draining }
}

fn record(core: &Core, queue: &Queue, ended: Ended, answer: Settled) {
    let id = match &ended.subject {
        Subject::Tracked(tracked) => {
            queue.ledger.in_flight.end(tracked);
            Some(&tracked.message.id)
        }
        Subject::Stray(_) => None,
    };
    if let Some(parked) = &ended.parked {
        core.observe(&Fact::Parked {
            queue: &queue.name,
            pool: parked.pool.as_ref(),
            id,
            code: parked.code,
            reason: &parked.reason,
        });
    }
    let again = match ended.settlement {
        Settlement::Ack | Settlement::Park => None,
        Settlement::Retry { reason, .. } => Some(reason),
    };
    queue.settled(again.is_none());
    let stale = answer == Settled::Stale;
    core.observe(&Fact::Settled { queue: &queue.name, id, again, stale });
    // These go last: whoever waits for the key starts, or is let in, when all this is true.
    drop((ended.parking_key, ended.hold));
}

impl Queue {
    pub(crate) fn failed(&self, core: &Core, doing: &'static str, error: &SourceError) {
        core.observe(&Fact::SourceFailed { queue: &self.name, doing, cause: &error.cause });
    }
}
