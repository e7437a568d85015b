//! Looking for a message by its id, and counting.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Depth, Discarded, Found, FoundState, Reason, SourceError};
use tokio::time::Instant;
use tokio_postgres::Row;

use super::shared::Shared;
use crate::wire;

/// A message, what it waits for in microseconds, and the head of its key.
pub(crate) const FIND: &str = "
WITH now_is AS MATERIALIZED (SELECT clock_timestamp() AS moment)
SELECT m.body, m.attempts, m.reason, m.pool, m.grp,
    {s}.micros(moment) - {s}.micros(m.at) AS age,
    {s}.micros(m.until) - {s}.micros(moment) AS rest,
    m.token IS NOT NULL AND m.until IS NOT NULL AND m.until > moment AS is_out,
    CASE WHEN h.seq <> m.seq THEN o.id END AS behind,
    CASE WHEN h.seq <> m.seq THEN o.body END AS head
FROM now_is, {s}.ids i JOIN {s}.messages m ON m.seq = i.seq
LEFT JOIN LATERAL {s}.head_of(m.queue, m.pool, m.grp, now_is.moment) h ON true
LEFT JOIN {s}.messages o ON o.seq = h.seq
WHERE i.queue = $1 AND i.id = $2";

/// Takes a message out that is not claimed. Its key is locked first, as whoever settles does; a key that waits for
/// this message is looked at by the next claim. Answers whether it was there, and whether it is gone.
pub(crate) const DISCARD: &str = "
WITH locked AS MATERIALIZED (
    SELECT k.ctid FROM {s}.ids i JOIN {s}.messages m ON m.seq = i.seq
    JOIN {s}.keys k ON k.queue = m.queue AND k.pool = m.pool AND k.grp = m.grp
    WHERE i.queue = $1 AND i.id = $2 FOR NO KEY UPDATE OF k
), gone AS (
    DELETE FROM {s}.messages m USING {s}.ids i
    WHERE (SELECT count(*) FROM locked) >= 0 AND i.queue = $1 AND i.id = $2 AND m.seq = i.seq
      AND (m.token IS NULL OR m.until IS NULL OR m.until <= clock_timestamp())
    RETURNING m.seq, m.queue, m.pool, m.grp
), woken AS (
    UPDATE {s}.keys k SET state = 0, until = NULL FROM gone g
    WHERE k.queue = g.queue AND k.pool = g.pool AND k.grp = g.grp AND k.head = g.seq AND k.state = 2
)
SELECT EXISTS (SELECT FROM {s}.ids i JOIN {s}.messages m ON m.seq = i.seq WHERE i.queue = $1 AND i.id = $2),
    EXISTS (SELECT FROM gone)";

/// All, those that are late, those that are out, and those that are not taken in yet.
pub(crate) const DEPTH: &str = "
WITH now_is AS MATERIALIZED (SELECT clock_timestamp() AS moment)
SELECT count(*),
    count(*) FILTER (WHERE until > moment AND token IS NULL),
    count(*) FILTER (WHERE until > moment AND token IS NOT NULL),
    (SELECT count(*) FROM {s}.outbox o WHERE o.queue = $1)
FROM {s}.messages, now_is WHERE queue = $1";

/// A count of more than this is not repeated at once.
const MANY: u64 = 50_000;
/// How many times as long as it took a count is good for.
const GOOD_FOR: u32 = 20;

/// The last count, if there was much to count.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<Option<(Instant, Depth)>>);

pub(crate) async fn depth(shared: &Shared, counted: &Counted) -> Result<Depth, SourceError> {
    let begun = Instant::now();
    if let Some((good_until, depth)) = *counted.0.lock()
        && begun < good_until
    {
        return Ok(depth);
    }
    let queue = shared.queue().await?;
    let rows = shared.link.rows(&shared.sql.depth, &[&queue]).await?;
    let Some(row) = rows.first() else { return Ok(Depth::default()) };
    let count = |place| row.get::<_, i64>(place).cast_unsigned();
    let [stored, delayed, out, not_in] = [0, 1, 2, 3].map(count);
    let depth = Depth { waiting: stored.saturating_sub(delayed + out) + not_in, delayed, out };
    let took = begun.elapsed();
    *counted.0.lock() = (stored > MANY).then(|| (Instant::now() + took * GOOD_FOR, depth));
    Ok(depth)
}

pub(crate) async fn find(shared: &Shared, id: &str) -> Result<Option<Found>, SourceError> {
    let queue = shared.queue().await?;
    let rows = shared.link.rows(&shared.sql.find, &[&queue, &id.as_bytes()]).await?;
    Ok(rows.first().map(|row| found(shared, row)))
}

/// Gives up a message that nobody has claimed.
pub(crate) async fn discard(shared: &Shared, id: &str) -> Result<Discarded, SourceError> {
    let queue = shared.queue().await?;
    let rows = shared.link.rows(&shared.sql.discard, &[&queue, &id.as_bytes()]).await?;
    let Some(row) = rows.first() else { return Ok(Discarded::NotFound) };
    match (row.get(0), row.get(1)) {
        (_, true) => {
            shared.has_aged(1);
            shared.wake.notify_one();
            Ok(Discarded::Done)
        }
        (true, false) => Ok(Discarded::Out),
        (false, false) => Ok(Discarded::NotFound),
    }
}

/// The application's id of a head: one that was put back has another name here.
fn head_id(name: &[u8], body: Option<&[u8]>) -> Arc<str> {
    let body = body.and_then(|body| std::str::from_utf8(body).ok());
    let head = body.and_then(|body| wire::parse_stored(body).ok());
    head.map_or_else(|| String::from_utf8_lossy(name).into(), |head| head.message.id)
}

fn found(shared: &Shared, row: &Row) -> Found {
    let span = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    let reason = row.get::<_, Option<&str>>(2).and_then(Reason::of_label);
    let text = |place| String::from_utf8_lossy(row.get(place));
    let is_kept = shared.order().keeps(&text(3), &text(4));
    let behind = row.get::<_, Option<&[u8]>>(8).filter(|_| is_kept);
    let state = match (row.get::<_, Option<i64>>(6), behind) {
        _ if row.get(7) => FoundState::Out,
        (Some(rest), _) if rest > 0 => {
            FoundState::Delayed { rest: span(rest), reason: reason.unwrap_or(Reason::Scheduled) }
        }
        (_, Some(head)) => FoundState::Behind(head_id(head, row.get(9))),
        (_, None) => FoundState::Ready,
    };
    Found {
        body: String::from_utf8_lossy(row.get(0)).into(),
        state,
        attempts: u32::try_from(row.get::<_, i32>(1)).unwrap_or(0),
        age: span(row.get(5)),
    }
}
