//! The task that claims messages while someone asks for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_dispatch::{DEFAULT_GROUP, Delivery, Envelope, Receipt, SourceError};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Row;

use super::front::Front;
use super::link::Broken;
use super::settle::hand_back;
use super::shared::{Shared, Strict, micros};
use crate::Content;
use crate::network::pause::Pauses;

/// How long a message may go unnoticed that nobody told of.
const POLL: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How many bytes of bodies are claimed at once, but for the first one.
const MOST_BYTES: i64 = 16 * 1024 * 1024;
/// How many messages are fitted to another order in one step.
const REORDERED: i32 = 10_000;
/// How long such a step may take.
const REORDERING: Duration = Duration::from_secs(300);

/// What a claim gave.
enum Claimed<M> {
    Some(Vec<Delivery<M>>),
    /// Nothing, and how long it stays so as far as is known.
    None(Duration),
}

/// Claims until the context ends.
pub(crate) async fn run<M: Content>(cx: Context, shared: Arc<Shared>, front: Arc<Front<M>>) {
    // What is claimed while it ends comes back when its window does.
    let claim = claim_for_ever(&shared, &front);
    tokio::select! {
        _ = cx.cancelled() => {}
        () = claim => {}
    }
}

async fn claim_for_ever<M: Content>(shared: &Shared, front: &Front<M>) {
    let (mut fitted, mut pauses) = (0, Pauses::new(FIRST_PAUSE, LONGEST_PAUSE));
    loop {
        let stale = front.take_stale();
        if !stale.is_empty() {
            // Failing that, they come back when their windows end.
            hand_back(shared, stale).await.ok();
            shared.wake.notify_one();
        }
        let count = front.shortage();
        if count == 0 {
            idle(front).await;
            continue;
        }
        let since = Instant::now();
        match claim::<M>(shared, count, &mut fitted).await {
            Ok(Claimed::Some(claimed)) => {
                pauses.reset();
                let unwanted = front.put(since, claimed);
                let unwanted: Vec<Receipt> = unwanted.into_iter().map(|it| it.receipt).collect();
                if !unwanted.is_empty() {
                    hand_back(shared, unwanted).await.ok();
                }
            }
            Ok(Claimed::None(rest)) => {
                pauses.reset();
                let until = Instant::now() + rest.min(POLL);
                tokio::select! {
                    () = shared.wake.notified() => {}
                    () = sleep_until(front.next_stale().map_or(until, |stale| stale.min(until))) => {}
                }
            }
            Err(error) => {
                front.fail(error);
                sleep(pauses.next()).await;
            }
        }
    }
}

/// Waits until someone asks, or something lies here for too long.
async fn idle<M>(front: &Front<M>) {
    match front.next_stale() {
        Some(stale) => {
            timeout(stale.saturating_duration_since(Instant::now()), front.asked.notified())
                .await
                .unwrap_or_default()
        }
        None => front.asked.notified().await,
    }
}

async fn claim<M: Content>(
    shared: &Shared,
    count: usize,
    fitted: &mut u64,
) -> Result<Claimed<M>, SourceError> {
    let queue = shared.queue().await?;
    let order = shared.order();
    if order.version != *fitted {
        fit(shared, queue, &order).await?;
        *fitted = order.version;
    }
    let strict: Vec<&[u8]> = order.pools.iter().map(|pool| pool.as_bytes()).collect();
    let most = i32::try_from(count).unwrap_or(i32::MAX);
    let span = micros(shared.settings.visibility) + micros(shelf_life(shared.settings.visibility));
    let who = shared.instance.load(Ordering::Acquire);
    let rows = shared
        .link
        .rows(&shared.sql.claim, &[&queue, &strict, &most, &MOST_BYTES, &span, &who])
        .await?;
    if let [row] = &rows[..]
        && row.get::<_, Option<i64>>(0).is_none()
    {
        let rest = row.get::<_, Option<i64>>(7).map(|rest| u64::try_from(rest).unwrap_or(0));
        // A millisecond more, for timers that are early are late by a round.
        let rest = rest.map_or(POLL, |rest| Duration::from_micros(rest + 1000));
        return Ok(Claimed::None(rest));
    }
    Ok(Claimed::Some(rows.iter().map(|row| delivery(shared, row)).collect()))
}

/// How long something claimed may wait to be taken. Its claim is longer by that.
pub(crate) fn shelf_life(visibility: Duration) -> Duration {
    (visibility / 8).min(Duration::from_millis(500))
}

fn delivery<M: Content>(shared: &Shared, row: &Row) -> Delivery<M> {
    let seq: i64 = row.get(0);
    let text = |bytes: &[u8]| Arc::<str>::from(String::from_utf8_lossy(bytes));
    let group: &[u8] = row.get(5);
    let envelope = Envelope {
        body: Bytes::copy_from_slice(row.get(6)),
        id: Some(text(row.get(4))),
        event_type: None,
        routing_key: Some(shared.settings.queue.as_str().into()),
        group: (group != DEFAULT_GROUP.as_bytes()).then(|| text(group)),
        headers: Vec::new(),
        redelivered: row.get(3),
    };
    Delivery {
        broker_id: seq.to_string().into(),
        receipt: Receipt {
            tag: seq.cast_unsigned(),
            generation: row.get::<_, i64>(1).cast_unsigned(),
            handle: None,
        },
        attempts: u32::try_from(row.get::<_, i32>(2)).unwrap_or(0),
        message: M::read(envelope),
    }
}

/// Fits what waits to which pools keep order. It takes as long as there is much of it, which is once
/// for each change.
async fn fit(shared: &Shared, queue: i32, order: &Strict) -> Result<(), SourceError> {
    let strict: Vec<&[u8]> = order.pools.iter().map(|pool| pool.as_bytes()).collect();
    let step = async || {
        let mut client = shared.link.connect().await?;
        let transaction = client.transaction().await?;
        transaction.batch_execute("SET LOCAL statement_timeout = '5min'").await?;
        let statement = transaction.prepare(&shared.sql.reorder).await?;
        let count = transaction.query_one(&statement, &[&queue, &strict, &REORDERED]).await?;
        transaction.commit().await?;
        Ok::<i32, Broken>(count.get(0))
    };
    let steps = async {
        while step().await? > 0 {}
        Ok::<(), Broken>(())
    };
    let slow = Err(Broken::Slow("fitting the messages to their order took too long"));
    timeout(REORDERING, steps).await.unwrap_or(slow).map_err(SourceError::from)
}
