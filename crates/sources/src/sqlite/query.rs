//! What is read from the file for the read-ahead of a queue, on one snapshot.
//!
//! Every statement goes through an index that it names, to as many rows as it answers: none of them takes longer
//! for more messages, lanes or keys, but for one: where the first of high priority of a key has to wait for its time, the
//! first that need not is searched for among those of that key (`first_of`).

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use sluicegate_dispatch::{DEFAULT_GROUP, Ordered};

use super::hash::{Map, Set};
use super::read_ahead::{Choice, Fetch, Fetched, Found, LaneFetch, LaneFetched, REGULAR};
use super::row::{Content, HELD, Key, Row, Touched};
use super::schema;

/// How many messages are looked at at once for the lanes that they touch.
const BEYOND: usize = 4096;
/// Where so many of a lane are to be read, or fewer, they are found by their numbers, together with those of other lanes
/// that lie beside them: a pool's turn is as many.
const FEW: usize = 8;
/// Then the numbers of so many more are read too, for whole turns: those are found without the lane's index.
const NUMBERS: usize = 7;
/// How many numbers may lie between two messages that are read in one go.
const STEPPED_OVER: i64 = 8;

/// Reads what is to be read.
pub(crate) fn read(
    connection: &Connection,
    queue: i64,
    fetch: &Fetch,
) -> rusqlite::Result<Fetched> {
    let snapshot = connection.unchecked_transaction()?;
    let mut fetched = Fetched::default();
    if fetch.opens {
        open(&snapshot, queue, &mut fetched)?;
    } else if let Some(known) = fetch.beyond {
        beyond(&snapshot, queue, known, &mut fetched)?;
    }
    if fetch.lanes.is_empty() && fetch.choosing.is_empty() {
        return Ok(fetched);
    }
    let mut reading = Reading::new(&snapshot, queue, fetch)?;
    for (at, lane) in fetch.lanes.iter().enumerate() {
        fetched.lanes.push(reading.lane(at, lane)?);
    }
    reading.numbered(&mut fetched.lanes)?;
    for Choice { key, read, tried } in &fetch.choosing {
        let next = next_of(&snapshot, key, fetch.now, reading.has_high, *tried)?;
        let next = next.map(|row| reading.with_content(row, *read)).transpose()?;
        fetched.chosen.push((key.clone(), next));
    }
    Ok(fetched)
}

/// All lanes that have messages.
fn open(connection: &Connection, queue: i64, fetched: &mut Fetched) -> rusqlite::Result<()> {
    let next: i64 = connection
        .prepare_cached("SELECT next FROM queues WHERE id = ?1")?
        .query_row([queue], |row| row.get(0))?;
    fetched.known = next - 1;
    let mut lanes = connection.prepare_cached(
        "SELECT id, pool, code, \
         EXISTS (SELECT 1 FROM messages INDEXED BY messages_lane WHERE lane = id AND high = 1), \
         EXISTS (SELECT 1 FROM messages INDEXED BY messages_lane WHERE lane = id AND high = 0), \
         (SELECT due FROM messages INDEXED BY messages_lane_due \
          WHERE lane = id AND due IS NOT NULL ORDER BY due LIMIT 1) \
         FROM lanes WHERE lanes.queue = ?1 ORDER BY id",
    )?;
    let mut codes: Map<i64, Arc<str>> = Map::default();
    let mut rows = lanes.query([queue])?;
    while let Some(row) = rows.next()? {
        let unread = [row.get(3)?, row.get(4)?];
        if unread == [false; 2] {
            continue;
        }
        let pool = row.get(1)?;
        let code = match codes.get(&pool) {
            Some(code) => Arc::clone(code),
            None => Arc::clone(codes.entry(pool).or_insert(row.get(2)?)),
        };
        let touched = Touched::new(pool, code, row.get(0)?);
        fetched.touched.push(Touched { unread, due: row.get(5)?, ..touched });
    }
    Ok(())
}

/// The lanes that messages beyond a number touch.
fn beyond(
    connection: &Connection,
    queue: i64,
    known: i64,
    fetched: &mut Fetched,
) -> rusqlite::Result<()> {
    let mut messages = connection.prepare_cached(
        "SELECT seq, lane, high, due FROM messages NOT INDEXED \
         WHERE seq > ?1 AND seq < ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut lane_of = connection.prepare_cached("SELECT pool, code FROM lanes WHERE id = ?1")?;
    let mut touched: Map<i64, Touched> = Map::default();
    let mut rows = messages.query(params![known, schema::base(queue + 1), BEYOND])?;
    fetched.known = known;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        fetched.known = row.get(0)?;
        let lane = row.get(1)?;
        let touched = match touched.entry(lane) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let of_lane = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
                let (pool, code) = lane_of.query_row([lane], of_lane)?;
                place.insert(Touched::new(pool, code, lane))
            }
        };
        touched.add(row.get(2)?, row.get(3)?);
        count += 1;
    }
    fetched.more = count == BEYOND;
    fetched.touched = touched.into_values().collect();
    fetched.touched.sort_unstable_by_key(|touched| touched.lane);
    Ok(())
}

/// The lanes of a fetch, one after the other.
struct Reading<'c> {
    connection: &'c Connection,
    queue: i64,
    now: i64,
    rows: CachedStatement<'c>,
    numbers: CachedStatement<'c>,
    between: CachedStatement<'c>,
    content: CachedStatement<'c>,
    /// Messages to read by their numbers, each with the place of its lane in the fetch.
    numbered: Vec<(i64, usize)>,
    /// How long the bodies that it reads may be, together.
    room: usize,
    /// Whether any body was read.
    has_read: bool,
    /// Whether the queue has messages of high priority at all.
    has_high: bool,
    /// Whether the first of a lane may not be the next of its key: the pool has several lanes, or messages that were
    /// out before.
    is_split: Map<i64, bool>,
}

impl<'c> Reading<'c> {
    fn new(connection: &'c Connection, queue: i64, fetch: &Fetch) -> rusqlite::Result<Self> {
        let columns = Row::COLUMNS;
        let rows = connection.prepare_cached(&format!(
            "SELECT {columns}, attempts, body FROM messages INDEXED BY messages_lane \
             WHERE lane = ?1 AND high = ?2 AND seq > ?3 ORDER BY seq LIMIT ?4"
        ))?;
        let numbers = connection.prepare_cached(
            "SELECT seq FROM messages INDEXED BY messages_lane \
             WHERE lane = ?1 AND high = 0 AND seq > ?2 ORDER BY seq LIMIT ?3",
        )?;
        let between = connection.prepare_cached(&format!(
            "SELECT {columns}, attempts, body FROM messages NOT INDEXED \
             WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq"
        ))?;
        let content =
            connection.prepare_cached("SELECT attempts, body FROM messages WHERE seq = ?1")?;
        let is_ordered = |lane: &LaneFetch| lane.ordered != Ordered::Nothing;
        let needs_high = !fetch.choosing.is_empty() || fetch.lanes.iter().any(is_ordered);
        let has_high = needs_high && has_high(connection, queue)?;
        let (now, room) = (fetch.now, fetch.room);
        let (numbered, has_read, is_split) = (Vec::new(), false, Map::default());
        Ok(Self {
            connection,
            queue,
            now,
            rows,
            numbers,
            between,
            content,
            numbered,
            room,
            has_read,
            has_high,
            is_split,
        })
    }

    fn lane(&mut self, at: usize, fetch: &LaneFetch) -> rusqlite::Result<LaneFetched> {
        let mut fetched = LaneFetched::default();
        for &(class, seq) in &fetch.bare {
            // As far as there is room; one in any case.
            if self.room == 0 && self.has_read {
                break;
            }
            fetched.loaded.push(((class, seq), self.content(seq)?));
        }
        if let Some(after) = fetch.due {
            due(self.connection, fetch, after, self.now, &mut fetched)?;
        }
        let mut left = fetch.limit;
        let mut seen = Set::default();
        for (class, cursor) in fetch.cursors.into_iter().enumerate() {
            let Some(cursor) = cursor.filter(|_| left > 0) else { continue };
            let are_few = left <= FEW || !fetch.numbers.is_empty();
            if class == REGULAR && fetch.ordered == Ordered::Nothing && are_few {
                self.numbers(at, fetch, cursor, left, &mut fetched)?;
                continue;
            }
            let count = self.class(fetch, class, cursor, left, &mut seen, &mut fetched)?;
            fetched.ended[class] = count < left;
            left -= count;
        }
        Ok(fetched)
    }

    /// Messages of a class in order of their numbers; with their bodies where they will most likely be handed
    /// out.
    fn class(
        &mut self,
        fetch: &LaneFetch,
        class: usize,
        cursor: i64,
        limit: usize,
        seen: &mut Set<Arc<str>>,
        fetched: &mut LaneFetched,
    ) -> rusqlite::Result<usize> {
        let looks_up = self.has_high || self.is_split(fetch)?;
        let mut rows = self.rows.query(params![fetch.lane, class == 0, cursor, limit])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            let (row, attempts, body) = whole(row)?;
            // Of a key that is kept in order no other can be the head.
            let is_kept = keeps(fetch.ordered, &row.group);
            let is_first = !is_kept || seen.insert(Arc::clone(&row.group));
            if is_kept && is_first && looks_up {
                let key = Key { pool: fetch.pool, group: Arc::clone(&row.group) };
                let next = next_of(self.connection, &key, self.now, self.has_high, None)?;
                fetched.first.extend(next.map(|next| (key.group, next)));
            }
            let is_wanted = is_first && row.due.is_none();
            let content = content_within(&mut self.room, is_wanted, attempts, body);
            fetched.rows[class].push(Found { row, content });
        }
        Ok(count)
    }

    /// Says by their numbers which regular messages of a lane that is not kept in order are to be read.
    fn numbers(
        &mut self,
        at: usize,
        fetch: &LaneFetch,
        cursor: i64,
        limit: usize,
        fetched: &mut LaneFetched,
    ) -> rusqlite::Result<()> {
        let found;
        let mut next = &fetch.numbers[..];
        if next.is_empty() {
            let most = (limit + NUMBERS).next_multiple_of(FEW);
            let rows = self.numbers.query_map(params![fetch.lane, cursor, most], |row| row.get(0));
            found = rows?.collect::<Result<Vec<i64>, _>>()?;
            next = &found;
            fetched.numbers = found.iter().copied().skip(limit).collect();
            fetched.ended[REGULAR] = found.len() <= limit;
        }
        let next = &next[..limit.min(next.len())];
        fetched.passed = next.last().copied().unwrap_or(cursor);
        self.numbered.extend(next.iter().map(|&seq| (seq, at)));
        Ok(())
    }

    /// Reads the messages whose numbers are known, those together that lie together.
    fn numbered(&mut self, lanes: &mut [LaneFetched]) -> rusqlite::Result<()> {
        self.numbered.sort_unstable();
        for near in self.numbered.chunk_by(|one, next| next.0 - one.0 <= STEPPED_OVER) {
            let (Some((first, _)), Some((last, _))) = (near.first(), near.last()) else { continue };
            let mut wanted = near.iter().copied().peekable();
            let mut rows = self.between.query([first, last])?;
            while let Some(row) = rows.next()? {
                let seq: i64 = row.get(0)?;
                // Those before it are gone: someone else deleted them.
                while wanted.next_if(|wanted| wanted.0 < seq).is_some() {}
                let Some((_, at)) = wanted.next_if(|wanted| wanted.0 == seq) else { continue };
                let (row, attempts, body) = whole(row)?;
                let content = content_within(&mut self.room, row.due.is_none(), attempts, body);
                lanes[at].rows[REGULAR].push(Found { row, content });
            }
        }
        Ok(())
    }

    /// Whether the keys of a lane that is kept in order may be in other lanes too, or have messages that were out.
    fn is_split(&mut self, fetch: &LaneFetch) -> rusqlite::Result<bool> {
        if fetch.ordered == Ordered::Nothing {
            return Ok(false);
        }
        if let Some(&is_split) = self.is_split.get(&fetch.pool) {
            return Ok(is_split);
        }
        let sql = format!(
            "SELECT (SELECT count(*) > 1 FROM (SELECT 1 FROM lanes WHERE queue = ?1 AND code = ?2 LIMIT 2)) \
             OR EXISTS (SELECT 1 FROM messages INDEXED BY messages_held WHERE pool = ?3 AND {HELD})"
        );
        let is_split = self
            .connection
            .prepare_cached(&sql)?
            .query_row(params![self.queue, fetch.code, fetch.pool], |row| row.get(0))?;
        self.is_split.insert(fetch.pool, is_split);
        Ok(is_split)
    }

    /// The message with its body, if its lane is read so far and there is room for it.
    fn with_content(&mut self, row: Row, read: i64) -> rusqlite::Result<Found> {
        let is_wanted = (row.high || row.seq <= read) && self.room > 0;
        let content = if is_wanted { self.content(row.seq)? } else { None };
        Ok(Found { row, content })
    }

    fn content(&mut self, seq: i64) -> rusqlite::Result<Option<Content>> {
        let read =
            |row: &rusqlite::Row<'_>| Ok(Content::new(row.get(0)?, row.get_ref(1)?.as_str()?));
        let content = self.content.query_row([seq], read).optional()?;
        self.has_read = true;
        self.room = self.room.saturating_sub(bytes(content.as_ref()));
        Ok(content)
    }
}

/// A message of a statement that reads all of it.
fn whole<'r>(row: &'r rusqlite::Row<'_>) -> rusqlite::Result<(Row, u32, &'r str)> {
    Ok((Row::read(row)?, row.get(6)?, row.get_ref(7)?.as_str()?))
}

/// What is in a message, if it is wanted and while there is room for it.
fn content_within(room: &mut usize, is_wanted: bool, attempts: u32, body: &str) -> Option<Content> {
    let content = (is_wanted && *room > 0).then(|| Content::new(attempts, body));
    *room = room.saturating_sub(bytes(content.as_ref()));
    content
}

fn bytes(content: Option<&Content>) -> usize {
    content.map_or(0, |content| content.bytes)
}

fn keeps(ordered: Ordered, group: &str) -> bool {
    match ordered {
        Ordered::Nothing => false,
        Ordered::Groups => group != DEFAULT_GROUP,
        Ordered::All => true,
    }
}

/// Whether a queue has messages of high priority at all.
fn has_high(connection: &Connection, queue: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM messages INDEXED BY messages_high \
               WHERE queue = ?1 AND high)";
    connection.prepare_cached(sql)?.query_row([queue], |row| row.get(0))
}

/// The message of a key that is to be handed out next: one that was out before, or the first of those that have a place
/// before it, which are of high priority if it is. It counts as one that was out itself, so that nothing is raised before
/// it. Where there is none, the first of high priority whose time has come, else the first. `docs/rules.md#fifo-1`.
pub(crate) fn next_of(
    connection: &Connection,
    key: &Key,
    now: i64,
    has_high: bool,
    tried: Option<i64>,
) -> rusqlite::Result<Option<Row>> {
    let first = |high, until| first_of(connection, key, high, until);
    let regular = first(false, i64::MAX)?;
    if let Some(held) = first_held(connection, key, tried)? {
        let high = if has_high { first(true, now)? } else { None };
        let regular = regular.filter(|_| !held.high);
        let first = regular.into_iter().chain(high).chain([held]).min_by_key(|row| row.seq);
        return Ok(first.map(|first| Row { held: true, ..first }));
    }
    if !has_high {
        return Ok(regular);
    }
    let Some(high) = first(true, i64::MAX)? else { return Ok(regular) };
    if high.due.is_none_or(|due| due <= now) {
        return Ok(Some(high));
    }
    let due = first(true, now)?;
    Ok(due.or(regular.into_iter().chain([high]).min_by_key(|row| row.seq)))
}

/// The first of a key whose time comes by then. Those before it are stepped over: every message of high priority
/// would pay for an index that spares that.
fn first_of(
    connection: &Connection,
    key: &Key,
    high: bool,
    until: i64,
) -> rusqlite::Result<Option<Row>> {
    let columns = Row::COLUMNS;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM messages INDEXED BY messages_key \
         WHERE pool = ?1 AND grp = ?2 AND high = ?3 AND ifnull(due, ?4) <= ?4 ORDER BY seq LIMIT 1"
    ))?;
    statement.query_row(params![key.pool, key.group, high, until], Row::read).optional()
}

/// The first of a key that was out before, by the file or as `tried`.
fn first_held(
    connection: &Connection,
    key: &Key,
    tried: Option<i64>,
) -> rusqlite::Result<Option<Row>> {
    let columns = Row::COLUMNS;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM messages INDEXED BY messages_held \
         WHERE pool = ?1 AND grp = ?2 AND {HELD} ORDER BY seq LIMIT 1"
    ))?;
    let held = statement.query_row(params![key.pool, key.group], Row::read).optional()?;
    if tried.is_none() {
        return Ok(held);
    }
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM messages WHERE seq = ?1 AND pool = ?2 AND grp = ?3"
    ))?;
    let tried = statement.query_row(params![tried, key.pool, key.group], Row::read).optional()?;
    Ok(held.into_iter().chain(tried).min_by_key(|row| row.seq))
}

/// Messages of a lane in order of their times, and the first time that is still to come.
fn due(
    connection: &Connection,
    fetch: &LaneFetch,
    after: (i64, i64),
    now: i64,
    fetched: &mut LaneFetched,
) -> rusqlite::Result<()> {
    // Many may have the same time: those that were read are not stepped over one by one.
    for later in ["due = ?2 AND seq > ?3", "due > ?2 AND ?3 IS NOT NULL"] {
        let left = fetch.limit - fetched.due.len();
        let columns = Row::COLUMNS;
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {columns} FROM messages INDEXED BY messages_lane_due \
             WHERE lane = ?1 AND due IS NOT NULL AND {later} ORDER BY due, seq LIMIT ?4"
        ))?;
        let mut rows = statement.query(params![fetch.lane, after.0, after.1, left])?;
        while let Some(row) = rows.next()? {
            let row = Row::read(row)?;
            if let Some(due) = row.due.filter(|&due| due > now) {
                fetched.next_due = Some(due);
                return Ok(());
            }
            fetched.due.push(row);
        }
    }
    fetched.more_due = fetched.due.len() == fetch.limit;
    Ok(())
}
