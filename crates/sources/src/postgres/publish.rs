//! Taking messages in: one statement for all of them.

use std::sync::atomic::Ordering;

use sluicegate_dispatch::{DEFAULT_GROUP, Publication, PublishError, Published, SourceError};

use super::shared::{Shared, micros};

/// How many remembered ids are looked at for each message that goes, to forget old ones.
const SWEPT_PER_MESSAGE: usize = 4;
const SWEPT_AT_LEAST: usize = 16;
const SWEPT_AT_MOST: usize = 10_000;

/// Ids are taken in the order of their bytes, so that none waits for another that waits for it.
/// An id is remembered for five minutes.
pub(crate) const PUBLISH: &str = "
WITH now_is AS MATERIALIZED (SELECT clock_timestamp() AS moment),
input AS MATERIALIZED (
    SELECT * FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bool[], $6::bigint[], $7::bytea[])
        WITH ORDINALITY AS i (id, pool, grp, high, delay, body, ord)
), firsts AS (
    SELECT min(ord) AS ord FROM input GROUP BY id
), numbered AS MATERIALIZED (
    SELECT nextval('{s}.numbers') AS seq, ord FROM (SELECT ord FROM firsts ORDER BY ord) o
), fresh AS (
    INSERT INTO {s}.ids AS known (queue, id, seq, at)
    SELECT $1, i.id, n.seq, moment FROM numbered n JOIN input i USING (ord), now_is ORDER BY i.id
    ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, at = excluded.at
        WHERE known.at <= excluded.at - interval '5 minutes'
    RETURNING seq
), stored AS (
    INSERT INTO {s}.messages
        (seq, at, until, place, queue, attempts, state, rank, high, reason, id, pool, grp, body)
    SELECT n.seq, moment, CASE WHEN i.delay > 0 THEN moment + i.delay * interval '1 microsecond' END,
        n.seq, $1, 0, 0, 2, i.high, CASE WHEN i.delay > 0 THEN 'scheduled' END, i.id, i.pool, i.grp, i.body
    FROM fresh f JOIN numbered n USING (seq) JOIN input i USING (ord), now_is ORDER BY n.seq
    RETURNING 1
)
SELECT count(*) FROM stored";

/// Goes a few steps further through the remembered ids and forgets those that are old and whose
/// message is gone. Answers where it stands.
pub(crate) const SWEEP: &str = "
WITH looked AS MATERIALIZED (
    SELECT id, seq, at FROM {s}.ids WHERE queue = $1 AND id > $2 ORDER BY id LIMIT $3
), forgotten AS (
    DELETE FROM {s}.ids i USING looked l
    WHERE i.queue = $1 AND i.id = l.id AND i.seq = l.seq
      AND l.at <= clock_timestamp() - interval '5 minutes'
      AND NOT EXISTS (SELECT FROM {s}.messages m WHERE m.seq = l.seq)
    RETURNING 1
)
SELECT (SELECT id FROM looked ORDER BY id DESC LIMIT 1), (SELECT count(*) FROM looked),
    (SELECT count(*) FROM forgotten)";

pub(crate) async fn publish(
    shared: &Shared,
    messages: Vec<Publication>,
) -> Result<Published, PublishError> {
    if messages.is_empty() {
        return Ok(Published::default());
    }
    let queue = shared.queue().await.map_err(PublishError::Source)?;
    let column = |of: fn(&Publication) -> &[u8]| messages.iter().map(of).collect::<Vec<&[u8]>>();
    let ids = column(|it| it.message.id.as_bytes());
    let pools = column(|it| it.message.pool.as_bytes());
    let groups = column(|it| it.message.group.as_deref().unwrap_or(DEFAULT_GROUP).as_bytes());
    let bodies = column(|it| it.body.as_bytes());
    let highs: Vec<bool> = messages.iter().map(|it| it.message.high_priority).collect();
    let delays: Vec<i64> = messages.iter().map(|it| micros(it.delay)).collect();
    let rows = shared
        .link
        .rows(&shared.sql.publish, &[&queue, &ids, &pools, &groups, &highs, &delays, &bodies])
        .await
        .map_err(PublishError::Source)?;
    let stored = rows.first().map_or(0, |row| row.get::<_, i64>(0)).cast_unsigned();
    let accepted = messages.len() as u64;
    if stored > 0 {
        shared.wake.notify_one();
        shared.tell.notify_one();
    }
    shared.has_aged(messages.len());
    Ok(Published { accepted, duplicates: accepted.saturating_sub(stored) })
}

/// Forgets some old ids, more the more messages came and went. Goes on behind `swept`.
pub(crate) async fn sweep(shared: &Shared, swept: &mut Vec<u8>) -> Result<(), SourceError> {
    let queue = shared.queue().await?;
    let aged = shared.to_sweep.swap(0, Ordering::Relaxed);
    let steps = (aged * SWEPT_PER_MESSAGE).clamp(SWEPT_AT_LEAST, SWEPT_AT_MOST);
    let limit = steps as i64;
    let rows = shared.link.rows(&shared.sql.sweep, &[&queue, &*swept, &limit]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let looked = row.get::<_, i64>(1);
    let last: Option<Vec<u8>> = row.get(0);
    // At the end it begins anew.
    *swept = if looked < limit { Vec::new() } else { last.unwrap_or_default() };
    Ok(())
}
