//! Messages that go back to the embedded queue, each to its old place, so that what came later stays behind.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use sluicegate_dispatch::{PublishError, PutBack, SourceError};
use tokio::time::Instant;

use super::lanes::Lanes;
use super::publish::{self, Numbers};
use super::rest::hold_head;
use super::row::{Returned, group_of};
use super::schema;
use super::store::{Inner, Queue};
use super::writer::{ROW_BYTES, Write};
use crate::wire;

/// How long a message that was parked may take to be settled.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Puts messages back, durably and all or none.
pub(crate) async fn put_back(
    store: &Inner,
    queue: &Arc<Queue>,
    messages: Vec<PutBack>,
) -> Result<(), PublishError> {
    if messages.is_empty() {
        return Ok(());
    }
    // A message may be parked and not yet taken out of its queue: who settles it would take it out again.
    let give_up = Instant::now() + SETTLED_WITHIN;
    while let Some(id) = still_out(store, queue, &messages).await.map_err(PublishError::Source)? {
        if Instant::now() >= give_up {
            let words = format!("message {id} is still being settled: try again");
            return Err(PublishError::Source(SourceError::new(words)));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let (queue, now) = (Arc::clone(queue), store.clock.now());
    let write = store.writer.write(|| Return { queue, messages, now });
    write.await.map(drop).map_err(PublishError::Source)
}

/// One of the messages that is out.
async fn still_out(
    store: &Inner,
    queue: &Queue,
    messages: &[PutBack],
) -> Result<Option<Arc<str>>, SourceError> {
    let places: Vec<(i64, Arc<str>)> = {
        let (mut ahead, now) = (queue.ahead.lock(), Instant::now());
        let of = |message: &PutBack| {
            let seq = place_of(queue.id, &message.broker_id)?;
            ahead.is_out(seq, now).then(|| (seq, Arc::clone(&message.publication.message.id)))
        };
        messages.iter().filter_map(of).collect()
    };
    if places.is_empty() {
        return Ok(None);
    }
    let read = store.readers.read(move |connection| {
        for (seq, id) in places {
            if occupant(connection, seq)?.as_deref() == Some(&id) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    });
    read.await
}

/// The id of the message at a place, empty if that is no message; `None` if the place is free. The number alone
/// does not say which message it is: a message that came from elsewhere may have had the same one there.
pub(super) fn occupant(connection: &Connection, seq: i64) -> rusqlite::Result<Option<Arc<str>>> {
    let mut find = connection.prepare_cached("SELECT body FROM messages WHERE seq = ?1")?;
    let id = |row: &Row<'_>| {
        let read = wire::parse_stored(row.get_ref(0)?.as_str()?);
        Ok(read.map_or_else(|_| "".into(), |incoming| incoming.message.id))
    };
    find.query_row([seq], id).optional()
}

/// The number that a message had in its queue.
fn place_of(queue: i64, broker_id: &str) -> Option<i64> {
    let within = broker_id.parse::<i64>().ok().filter(|&within| within > 0)?;
    let seq = schema::base(queue).checked_add(within)?;
    (seq < schema::base(queue + 1)).then_some(seq)
}

pub(super) struct Return {
    pub(super) queue: Arc<Queue>,
    pub(super) messages: Vec<PutBack>,
    pub(super) now: i64,
}

impl Return {
    /// Puts one back; `None` if it is there already.
    fn one(
        &self,
        connection: &Connection,
        message: &PutBack,
        numbers: &mut Numbers,
        lanes: &mut Lanes,
    ) -> rusqlite::Result<Option<Returned>> {
        let body = &message.publication.body;
        let of = &message.publication.message;
        let old = place_of(self.queue.id, &message.broker_id).filter(|&seq| seq < numbers.next);
        let there = old.map(|seq| occupant(connection, seq)).transpose()?.flatten();
        if there.as_ref() == Some(&of.id) {
            return Ok(None);
        }
        // Without a place it goes to the end; or with another message in it, or whose end is not known here yet: what is
        // said of that one would be said of this.
        let is_free = |seq: &i64| !self.queue.ahead.lock().has_in_hand(*seq);
        let old = old.filter(|_| there.is_none()).filter(is_free);
        let seq = old.unwrap_or(numbers.next);
        if old.is_none() {
            // Done again after a crash, it is there once.
            if !self.remember(connection, &message.name, seq, "IGNORE")? {
                return Ok(None);
            }
            numbers.next += 1;
        }
        let (lane, group) = (lanes.lane_of(connection, of)?, group_of(of));
        let (queue, high) = (self.queue.id, of.high_priority);
        publish::insert(connection, seq, queue, lane, &group, high, None, self.now, body)?;
        self.remember(connection, &of.id, seq, "REPLACE")?;
        hold_head(connection, &self.queue, lane.pool, &group)?;
        let (pool, code, lane) = (lane.pool, Arc::clone(&of.pool), lane.id);
        Ok(Some(Returned { seq, pool, code, lane, group, high }))
    }

    /// Remembers an id; `false` if it was remembered before and that is left as it is.
    fn remember(
        &self,
        connection: &Connection,
        id: &str,
        seq: i64,
        or: &str,
    ) -> rusqlite::Result<bool> {
        let sql = format!("INSERT OR {or} INTO ids (queue, id, seq, at) VALUES (?1, ?2, ?3, ?4)");
        let mut insert = connection.prepare_cached(&sql)?;
        Ok(insert.execute(params![self.queue.id, id, seq, self.now])? > 0)
    }
}

/// What went back.
pub(super) struct Restored {
    /// The first and the last number of those that went to the end.
    numbers: (i64, i64),
    messages: Vec<Returned>,
}

impl Write for Return {
    type Answer = Restored;

    fn weight(&self) -> usize {
        let bytes = |message: &PutBack| message.publication.body.len();
        self.messages.len() + self.messages.iter().map(bytes).sum::<usize>() / ROW_BYTES
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Restored> {
        let mut numbers = Numbers::take(connection, self.queue.id)?;
        let mut lanes = Lanes::of(self.queue.id);
        let first = numbers.next;
        let mut messages = Vec::with_capacity(self.messages.len());
        for message in &self.messages {
            messages.extend(self.one(connection, message, &mut numbers, &mut lanes)?);
        }
        let next = numbers.next;
        let mut update = connection
            .prepare_cached("UPDATE queues SET next = ?1, stored = stored + ?2 WHERE id = ?3")?;
        if !messages.is_empty() || next > first {
            update.execute(params![next, messages.len(), self.queue.id])?;
        }
        Ok(Restored { numbers: (first, next - 1), messages })
    }

    fn written(&mut self, restored: &Restored) {
        let (first, last) = restored.numbers;
        self.queue.ahead.lock().put_back(first, last, &restored.messages);
        self.queue.changed.notify_waiters();
    }
}
