//! Taking messages in: one statement for all of them.

use std::sync::atomic::Ordering;

use sluicegate_dispatch::{
    DEFAULT_GROUP, Publication, PublishError, Published, PutBack, SourceError,
};

use super::link::Values;
use super::shared::{Shared, micros};

/// How many remembered ids are looked at for each message that goes, to forget old ones.
const SWEPT_PER_MESSAGE: usize = 4;
const SWEPT_AT_LEAST: usize = 16;
const SWEPT_AT_MOST: usize = 10_000;
/// How many messages of others' transactions are taken in at once.
const TAKEN_IN: i32 = 1000;

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

/// Messages as the statements take them: a column each.
struct Columns<'a> {
    ids: Vec<&'a [u8]>,
    pools: Vec<&'a [u8]>,
    tenants: Vec<&'a [u8]>,
    groups: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    highs: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn of(messages: impl Iterator<Item = &'a Publication> + Clone) -> Self {
        let column = |of: fn(&'a Publication) -> &'a [u8]| messages.clone().map(of).collect();
        Self {
            ids: column(|it| it.message.id.as_bytes()),
            pools: column(|it| it.message.pool.as_bytes()),
            tenants: column(|it| it.message.tenant.as_deref().unwrap_or_default().as_bytes()),
            groups: column(|it| it.message.group.as_deref().unwrap_or(DEFAULT_GROUP).as_bytes()),
            bodies: column(|it| it.body.as_bytes()),
            highs: messages.map(|it| it.message.high_priority).collect(),
        }
    }
}

pub(crate) async fn publish(
    shared: &Shared,
    messages: Vec<Publication>,
) -> Result<Published, PublishError> {
    if messages.is_empty() {
        return Ok(Published::default());
    }
    let queue = shared.queue().await.map_err(PublishError::Source)?;
    let delays: Vec<i64> = messages.iter().map(|it| micros(it.delay)).collect();
    let Columns { ids, pools, tenants, groups, bodies, highs } = Columns::of(messages.iter());
    let values: Values<'_> = &[&queue, &ids, &pools, &groups, &tenants, &highs, &delays, &bodies];
    let rows = shared.link.rows(&shared.sql.publish, values).await.map_err(PublishError::Source)?;
    let stored = rows.first().map_or(0, |row| row.get::<_, i64>(0)).cast_unsigned();
    let accepted = messages.len() as u64;
    if stored > 0 {
        shared.wake.notify_one();
        shared.tell.notify_one();
    }
    shared.has_aged(messages.len());
    Ok(Published { accepted, duplicates: accepted.saturating_sub(stored) })
}

/// Takes messages in again. Those that are there by their names are left as they are.
pub(crate) async fn put_back(shared: &Shared, messages: Vec<PutBack>) -> Result<(), PublishError> {
    if messages.is_empty() {
        return Ok(());
    }
    let queue = shared.queue().await.map_err(PublishError::Source)?;
    let names: Vec<&[u8]> = messages.iter().map(|it| it.name.as_bytes()).collect();
    let publications = messages.iter().map(|it| &it.publication);
    let Columns { ids, pools, tenants, groups, bodies, highs } = Columns::of(publications);
    let values: Values<'_> = &[&queue, &names, &ids, &pools, &groups, &tenants, &highs, &bodies];
    let put_back = shared.link.rows_for_sure(&shared.sql.put_back, values);
    put_back.await.map_err(PublishError::Source)?;
    shared.wake.notify_one();
    shared.tell.notify_one();
    shared.has_aged(messages.len());
    Ok(())
}

/// Takes in what services have published within their own transactions and committed: some of it, and then it asks to
/// be called again.
pub(crate) async fn take_in(shared: &Shared) -> Result<(), SourceError> {
    let queue = shared.queue().await?;
    let rows = shared.link.rows(&shared.sql.take_in, &[&queue, &TAKEN_IN]).await?;
    let count = rows.first().map_or(0, |row| row.get::<_, i32>(0));
    if count > 0 {
        shared.wake.notify_one();
        shared.tell.notify_one();
        shared.hinted.notify_one();
        shared.has_aged(usize::try_from(count).unwrap_or(0));
    }
    Ok(())
}

/// How far the walks through what is remembered have come.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    id: Vec<u8>,
    pool: Vec<u8>,
    group: Vec<u8>,
}

/// Forgets some old ids and keys without messages, more the more messages came and went. Goes on where it
/// stood.
pub(crate) async fn sweep(shared: &Shared, swept: &mut Swept) -> Result<(), SourceError> {
    let queue = shared.queue().await?;
    let aged = shared.to_sweep.swap(0, Ordering::Relaxed);
    let steps = (aged * SWEPT_PER_MESSAGE).clamp(SWEPT_AT_LEAST, SWEPT_AT_MOST);
    let limit = steps as i64;
    let rows = shared.link.rows(&shared.sql.sweep, &[&queue, &swept.id, &limit]).await?;
    if let Some(row) = rows.first() {
        let last: Option<Vec<u8>> = row.get(0);
        // At the end it begins anew.
        swept.id = last.filter(|_| row.get::<_, i64>(1) == limit).unwrap_or_default();
    }
    let limit = steps as i32;
    let values: Values<'_> = &[&queue, &swept.pool, &swept.group, &limit];
    let rows = shared.link.rows(&shared.sql.sweep_keys, values).await?;
    if let Some(row) = rows.first() {
        let is_more = row.get::<_, i32>(2) == limit;
        let [pool, group] = [0, 1].map(|place| row.get::<_, Option<Vec<u8>>>(place));
        swept.pool = pool.filter(|_| is_more).unwrap_or_default();
        swept.group = group.filter(|_| is_more).unwrap_or_default();
    }
    Ok(())
}
