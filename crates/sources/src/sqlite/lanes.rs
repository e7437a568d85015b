//! The lanes of the file: a number for each tenant of a pool in a queue.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::Message;

use super::hash::Map;
use super::row::Touched;
use super::store::Queue;

/// How many lanes are looked at for each that comes, to forget those without messages.
const SWEPT_PER_LANE: usize = 2;

/// A lane by its number, with that of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneOf {
    pub(crate) id: i64,
    pub(crate) pool: i64,
}

/// The lanes that one transaction puts messages in.
pub(crate) struct Lanes {
    queue: i64,
    /// By pool and tenant. It holds for the transaction: another process may forget lanes.
    found: Map<(Arc<str>, Option<Arc<str>>), LaneOf>,
    touched: Map<i64, Touched>,
    /// The one that was asked for last: most often it is the next.
    last: Option<(Arc<str>, Option<Arc<str>>, LaneOf)>,
    made: usize,
}

impl Lanes {
    pub(crate) fn of(queue: i64) -> Self {
        Self { queue, found: Map::default(), touched: Map::default(), last: None, made: 0 }
    }

    /// The lane of a message, which is made if it is not there.
    pub(crate) fn lane_of(
        &mut self,
        connection: &Connection,
        message: &Message,
    ) -> rusqlite::Result<LaneOf> {
        if let Some((pool, tenant, lane)) = &self.last
            && *pool == message.pool
            && *tenant == message.tenant
        {
            return Ok(*lane);
        }
        let (pool, tenant) = (Arc::clone(&message.pool), message.tenant.clone());
        let lane = match self.found.entry((pool, tenant)) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(place) => {
                let (pool, tenant) = place.key();
                let tenant = tenant.as_deref().unwrap_or_default();
                let (lane, is_new) = find_or_make(connection, self.queue, pool, tenant)?;
                self.made += usize::from(is_new);
                self.touched.insert(lane.id, Touched::new(lane.pool, Arc::clone(pool), lane.id));
                *place.insert(lane)
            }
        };
        self.last = Some((Arc::clone(&message.pool), message.tenant.clone(), lane));
        Ok(lane)
    }

    /// What is told of a lane that was asked for.
    pub(crate) fn touched(&mut self, lane: LaneOf) -> &mut Touched {
        let touched = self.touched.entry(lane.id);
        touched.or_insert_with(|| Touched::new(lane.pool, "".into(), lane.id))
    }

    pub(crate) fn into_touched(self) -> Vec<Touched> {
        let mut touched: Vec<Touched> = self.touched.into_values().collect();
        // Those that came first have the first turn.
        touched.sort_unstable_by_key(|touched| touched.lane);
        touched
    }

    /// Goes a few steps further through the lanes, as many as were made, and forgets those without messages.
    pub(crate) fn sweep(&self, connection: &Connection, queue: &Queue) -> rusqlite::Result<()> {
        if self.made == 0 {
            return Ok(());
        }
        let steps = self.made * SWEPT_PER_LANE;
        let mut swept = queue.swept_lanes.lock();
        let mut step = connection.prepare_cached(
            "SELECT id, EXISTS (SELECT 1 FROM messages INDEXED BY messages_lane \
             WHERE messages.lane = lanes.id) FROM lanes WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?;
        let found: Vec<(i64, bool)> = step
            .query_map(params![*swept, steps], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut forget = connection.prepare_cached("DELETE FROM lanes WHERE id = ?1")?;
        for (id, _) in found.iter().filter(|(_, has_messages)| !has_messages) {
            forget.execute([id])?;
        }
        // At the end it begins anew.
        *swept = found.last().filter(|_| found.len() == steps).map_or(0, |(id, _)| *id);
        Ok(())
    }
}

/// The lane, and whether it is new.
fn find_or_make(
    connection: &Connection,
    queue: i64,
    code: &str,
    tenant: &str,
) -> rusqlite::Result<(LaneOf, bool)> {
    let mut find = connection.prepare_cached(
        "SELECT id, pool FROM lanes WHERE queue = ?1 AND code = ?2 AND tenant = ?3",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok(LaneOf { id: row.get(0)?, pool: row.get(1)? });
    if let Some(found) = find.query_row(params![queue, code, tenant], read).optional()? {
        return Ok((found, false));
    }
    let mut pool = connection
        .prepare_cached("SELECT pool FROM lanes WHERE queue = ?1 AND code = ?2 LIMIT 1")?;
    let pool: Option<i64> = pool.query_row(params![queue, code], |row| row.get(0)).optional()?;
    connection
        .prepare_cached("INSERT INTO lanes (queue, code, tenant, pool) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![queue, code, tenant, pool.unwrap_or(0)])?;
    let id = connection.last_insert_rowid();
    if pool.is_none() {
        connection.prepare_cached("UPDATE lanes SET pool = id WHERE id = ?1")?.execute([id])?;
    }
    Ok((LaneOf { id, pool: pool.unwrap_or(id) }, true))
}
