//! Taking messages in.

use std::sync::Arc;

use rusqlite::{Connection, params};
use sluicegate_dispatch::{Publication, Published, Reason};
use sluicegate_sqlite_file::Clock;

use super::lanes::{LaneOf, Lanes};
use super::rest::hold_head;
use super::row::{Raised, Touched, group_of};
use super::store::Queue;
use super::writer::{ROW_BYTES, Write};

/// How long an id is remembered, in milliseconds. One that was seen further in the future than that was seen by a
/// clock that was set back since: how long ago that was nobody knows, so it is no duplicate.
pub(crate) const DEDUPE: i64 = 5 * 60 * 1000;
/// How many remembered ids are looked at for each message that comes, to forget old ones. With 4, a
/// round takes a third of the time that ids are remembered.
const SWEPT_PER_MESSAGE: usize = 4;
const SWEPT_AT_LEAST: usize = 16;

/// Publishes messages, all or none.
pub(crate) struct Publish {
    pub(crate) queue: Arc<Queue>,
    pub(crate) messages: Vec<Publication>,
    pub(crate) now: i64,
}

/// What became of them.
pub(crate) struct Accepted {
    pub(crate) published: Published,
    /// The first and the last number of those that were stored.
    numbers: (i64, i64),
    touched: Vec<Touched>,
}

impl Write for Publish {
    type Answer = Accepted;

    fn weight(&self) -> usize {
        let bytes: usize = self.messages.iter().map(|message| message.body.len()).sum();
        self.messages.len() + bytes / ROW_BYTES
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Accepted> {
        let mut numbers = Numbers::take(connection, self.queue.id)?;
        let mut remember = connection.prepare_cached(
            "INSERT INTO ids (queue, id, seq, at) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, at = excluded.at \
             WHERE at <= excluded.at - ?5 OR at > excluded.at + ?5",
        )?;
        let mut lanes = Lanes::of(self.queue.id);
        for Publication { message, body, delay } in &self.messages {
            let seq = numbers.next;
            let id = &message.id;
            if remember.execute(params![self.queue.id, id, seq, self.now, DEDUPE])? == 0 {
                continue;
            }
            numbers.next += 1;
            let due = (!delay.is_zero()).then(|| Clock::after(self.now, *delay));
            let (lane, high) = (lanes.lane_of(connection, message)?, message.high_priority);
            let group = group_of(message);
            insert(connection, seq, self.queue.id, lane, &group, high, due, self.now, body)?;
            if high {
                hold_head(connection, &self.queue, lane.pool, &group)?;
            }
            let touched = lanes.touched(lane);
            touched.add(high, due);
            if high && due.is_none() {
                touched.raised.push(Raised { seq, lane: lane.id, group });
            }
        }
        lanes.sweep(connection, &self.queue)?;
        let stored = numbers.give_back(connection)?;
        sweep(connection, &self.queue, self.now, self.messages.len())?;
        let accepted = self.messages.len() as u64;
        let published = Published { accepted, duplicates: accepted - stored };
        let numbers = (numbers.first, numbers.next - 1);
        Ok(Accepted { published, numbers, touched: lanes.into_touched() })
    }

    fn written(&mut self, answer: &Accepted) {
        let (first, last) = answer.numbers;
        self.queue.ahead.lock().published(first, last, &answer.touched);
        self.queue.changed.notify_waiters();
    }
}

/// The numbers of a queue that are free.
pub(crate) struct Numbers {
    queue: i64,
    first: i64,
    pub(crate) next: i64,
}

impl Numbers {
    pub(crate) fn take(connection: &Connection, queue: i64) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached("SELECT next FROM queues WHERE id = ?1")?;
        let first = statement.query_row([queue], |row| row.get(0))?;
        Ok(Self { queue, first, next: first })
    }

    /// Says which are used now; answers how many.
    pub(crate) fn give_back(&mut self, connection: &Connection) -> rusqlite::Result<u64> {
        let stored = self.next - self.first;
        if stored > 0 {
            let mut statement = connection.prepare_cached(
                "UPDATE queues SET next = ?1, stored = stored + ?2 WHERE id = ?3",
            )?;
            statement.execute(params![self.next, stored, self.queue])?;
        }
        Ok(stored.cast_unsigned())
    }
}

#[expect(clippy::too_many_arguments, reason = "they are the columns")]
pub(crate) fn insert(
    connection: &Connection,
    seq: i64,
    queue: i64,
    lane: LaneOf,
    group: &str,
    high: bool,
    due: Option<i64>,
    at: i64,
    body: &str,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (seq, queue, lane, pool, grp, high, attempts, due, reason, at, body) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10)",
    )?;
    let reason = due.map(|_| Reason::Scheduled.label());
    let LaneOf { id, pool } = lane;
    statement.execute(params![seq, queue, id, pool, group, high, due, reason, at, body])?;
    Ok(())
}

/// Goes a few steps further through the remembered ids and forgets those that are old and whose
/// message is gone. It goes by id, so that what it deletes lies together.
fn sweep(
    connection: &Connection,
    queue: &Queue,
    now: i64,
    published: usize,
) -> rusqlite::Result<()> {
    let steps = (published * SWEPT_PER_MESSAGE).max(SWEPT_AT_LEAST);
    let mut swept = queue.swept.lock();
    let mut step = connection.prepare_cached(
        "SELECT id, (at <= ?1 OR at > ?5) AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.seq = ids.seq) \
         FROM ids WHERE queue = ?2 AND id > ?3 ORDER BY id LIMIT ?4",
    )?;
    let mut forget = connection.prepare_cached("DELETE FROM ids WHERE queue = ?1 AND id = ?2")?;
    let found: Vec<(String, bool)> = step
        .query_map(params![now - DEDUPE, queue.id, &*swept, steps, now + DEDUPE], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<Result<_, _>>()?;
    for (id, _) in found.iter().filter(|(_, is_old)| *is_old) {
        forget.execute(params![queue.id, id])?;
    }
    // At the end it begins anew.
    *swept = if found.len() < steps { String::new() } else { last(found) };
    Ok(())
}

fn last(found: Vec<(String, bool)>) -> String {
    found.into_iter().next_back().map(|(id, _)| id).unwrap_or_default()
}
