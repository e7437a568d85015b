//! Reading from the file: for the front of a queue, and for those who ask.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::SourceError;
use sluicegate_tasks::{Context, Permits, TaskGroup};

use super::file;
use super::front::{Errand, Fresh, Haul};
use super::row::{Content, Head, Key};
use super::schema;
use super::store::Queue;

/// How many read at once.
const READERS: u32 = 2;
/// How many more may wait to read: one for each queue, and those who ask.
const WAITING: u32 = 100_000;
/// How many messages are read at once in order of their times.
const DUE_CHUNK: usize = 512;

/// The connections that read, and the threads they are used on.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    group: TaskGroup,
    /// Those that wait to read for a caller.
    callers: Permits,
    /// Those that wait to read for a queue, which waits for none of them.
    errands: TaskGroup,
    cx: Context,
}

impl Readers {
    pub(crate) fn new(path: PathBuf) -> Arc<Self> {
        let group = |name, limit| {
            TaskGroup::new(name, limit).expect("the name and the limit are constants")
        };
        Arc::new(Self {
            path,
            idle: Mutex::default(),
            group: group("sqlite-readers", READERS),
            callers: Permits::new(WAITING).expect("it is not zero"),
            errands: group("sqlite-errands", WAITING),
            cx: Context::new(),
        })
    }

    /// Reads on a thread of its own.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, SourceError> {
        let idle = self.idle.lock().pop();
        let (connection, answer) = self.read_on(idle, query).await?;
        self.idle.lock().push(connection);
        Ok(answer)
    }

    /// Reads on a connection of the caller's, or on a new one.
    pub(crate) async fn read_on<T: Send + 'static>(
        &self,
        connection: Option<Connection>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(Connection, T), SourceError> {
        let _caller = self.callers.try_acquire().map_err(SourceError::new)?;
        let path = self.path.clone();
        let task = self.group.submit_blocking(&self.cx, move |cx| {
            cx.check().map_err(SourceError::new)?;
            with(connection, &path, query)
        });
        task.await.map_err(SourceError::new)?.await.map_err(SourceError::new)?
    }

    /// Goes on the errand, and on those that follow from it, without waiting for them.
    pub(crate) fn fetch(self: &Arc<Self>, queue: Arc<Queue>, errand: Errand) {
        let readers = Arc::clone(self);
        let guard = Fetch { queue, errand: Some(errand) };
        let begun = self.errands.try_submit(&self.cx, move |cx| async move {
            let own = Arc::clone(&readers);
            let task = readers.group.submit_blocking(&cx, move |cx| {
                let mut guard = guard;
                while cx.check().is_ok() && guard.go(&own) {}
            });
            if let Ok(task) = task.await {
                drop(task.await);
            }
        });
        // What is refused is dropped: then the guard has said so to those who wait.
        drop(begun);
    }

    /// Reads on this thread.
    fn read_here<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, SourceError> {
        let idle = self.idle.lock().pop();
        let (connection, answer) = with(idle, &self.path, query)?;
        self.idle.lock().push(connection);
        Ok(answer)
    }
}

/// Reads on the connection, or on a new one. After an error it is closed: a new one may work.
fn with<T>(
    connection: Option<Connection>,
    path: &Path,
    query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<(Connection, T), SourceError> {
    let connection = match connection {
        Some(connection) => connection,
        None => file::reader(path).map_err(SourceError::new)?,
    };
    let answer = query(&connection).map_err(|error| SourceError::new(cause(&error)))?;
    Ok((connection, answer))
}

/// An errand on its way. Dropped before it was done, it says so.
struct Fetch {
    queue: Arc<Queue>,
    errand: Option<Errand>,
}

impl Fetch {
    /// Goes once; answers whether there is more to fetch.
    fn go(&mut self, readers: &Readers) -> bool {
        let Some(errand) = &self.errand else { return false };
        let id = self.queue.id;
        let haul = readers.read_here(|connection| read(connection, id, errand));
        let Some(errand) = self.errand.take() else { return false };
        let mut front = self.queue.front.lock();
        match haul {
            Ok(haul) => {
                front.bring(&errand, haul);
                self.errand = front.errand(self.queue.clock.now());
            }
            Err(error) => front.not_brought(errand, error.cause),
        }
        drop(front);
        self.queue.changed.notify_waiters();
        self.errand.is_some()
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if let Some(errand) = self.errand.take() {
            self.queue.front.lock().not_brought(errand, "the reader ended early".to_owned());
            self.queue.changed.notify_waiters();
        }
    }
}

/// What an error of the database is called outside.
pub(crate) fn cause(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => "the disk is full".to_owned(),
        Some(rusqlite::ErrorCode::SystemIoFailure) => format!("the disk failed: {error}"),
        Some(rusqlite::ErrorCode::DatabaseBusy) => {
            "another process holds the state file for too long".to_owned()
        }
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            format!("the state file is damaged: {error}")
        }
        _ => error.to_string(),
    }
}

/// Does the errand, on one snapshot.
fn read(connection: &Connection, queue: i64, errand: &Errand) -> rusqlite::Result<Haul> {
    let snapshot = connection.unchecked_transaction()?;
    let mut haul = Haul::default();
    let mut room = errand.room;
    load(&snapshot, errand, &mut room, &mut haul)?;
    due(&snapshot, queue, errand, &mut haul)?;
    let has_high = !errand.order.is_nothing() && has_high(&snapshot, queue)?;
    fresh(&snapshot, queue, errand, has_high, &mut room, &mut haul)?;
    for key in &errand.choosing {
        let next = next_of(&snapshot, queue, key, errand.now, has_high)?;
        let next = next.map(|head| with_content(&snapshot, head, &mut room)).transpose()?;
        haul.chosen.push((key.clone(), next));
    }
    Ok(haul)
}

/// Whether a queue has messages of high priority at all.
fn has_high(connection: &Connection, queue: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM messages WHERE queue = ?1 AND high)";
    connection.prepare_cached(sql)?.query_row([queue], |row| row.get(0))
}

/// The message with its body, if there is room for it.
fn with_content(connection: &Connection, head: Head, room: &mut usize) -> rusqlite::Result<Fresh> {
    let content = if *room == 0 { None } else { content_of(connection, head.seq)? };
    *room = room.saturating_sub(content.as_ref().map_or(0, |content| content.bytes));
    Ok(Fresh { head, content })
}

fn content_of(connection: &Connection, seq: i64) -> rusqlite::Result<Option<Content>> {
    let sql = "SELECT attempts, body FROM messages WHERE seq = ?1";
    connection
        .prepare_cached(sql)?
        .query_row([seq], |row| Ok(Content::new(row.get(0)?, row.get_ref(1)?.as_str()?)))
        .optional()
}

/// The bodies that are asked for, as far as there is room; the first in any case.
fn load(
    connection: &Connection,
    errand: &Errand,
    room: &mut usize,
    haul: &mut Haul,
) -> rusqlite::Result<()> {
    for &seq in &errand.bare {
        if *room == 0 && !haul.loaded.is_empty() {
            break;
        }
        let content = content_of(connection, seq)?;
        *room = room.saturating_sub(content.as_ref().map_or(0, |content| content.bytes));
        haul.loaded.push((seq, content));
    }
    Ok(())
}

/// The message of a key that is to be handed out next: one that was tried before, else the first of
/// high priority whose time has come, else the first.
pub(crate) fn next_of(
    connection: &Connection,
    queue: i64,
    key: &Key,
    now: i64,
    has_high: bool,
) -> rusqlite::Result<Option<Head>> {
    let first = |high, until| first_of(connection, queue, key, high, until);
    let regular = first(false, i64::MAX)?;
    if !has_high || regular.as_ref().is_some_and(|head| head.held) {
        return Ok(regular);
    }
    let Some(high) = first(true, i64::MAX)? else { return Ok(regular) };
    if high.held || high.due.is_none_or(|due| due <= now) {
        return Ok(Some(high));
    }
    let due = first(true, now)?;
    Ok(due.or(regular.into_iter().chain([high]).min_by_key(|head| head.seq)))
}

/// The first of a key whose time comes by then.
fn first_of(
    connection: &Connection,
    queue: i64,
    key: &Key,
    high: bool,
    until: i64,
) -> rusqlite::Result<Option<Head>> {
    let columns = Head::COLUMNS;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns} FROM messages \
         WHERE pool = ?1 AND grp = ?2 AND high = ?3 AND seq > ?4 AND seq < ?5 \
         AND ifnull(due, ?6) <= ?6 ORDER BY seq LIMIT 1"
    ))?;
    let (from, to) = (schema::base(queue), schema::base(queue + 1));
    let params = params![key.pool, key.group, high, from, to, until];
    statement.query_row(params, Head::read).optional()
}

/// Messages in order of their times, and the first time that is still to come.
fn due(
    connection: &Connection,
    queue: i64,
    errand: &Errand,
    haul: &mut Haul,
) -> rusqlite::Result<()> {
    let Some(after) = errand.due else { return Ok(()) };
    // Many may have the same time: those that were read are not stepped over one by one.
    for later in ["due = ?2 AND seq > ?3", "due > ?2 AND ?3 IS NOT NULL"] {
        let left = DUE_CHUNK - haul.due.len();
        let columns = Head::COLUMNS;
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {columns} FROM messages WHERE queue = ?1 AND due IS NOT NULL AND {later} \
             ORDER BY due, seq LIMIT ?4"
        ))?;
        let mut rows = statement.query(params![queue, after.0, after.1, left])?;
        while let Some(row) = rows.next()? {
            let head = Head::read(row)?;
            if let Some(due) = head.due.filter(|&due| due > errand.now) {
                haul.next_due = Some(due);
                return Ok(());
            }
            haul.due.push(head);
        }
    }
    haul.more_due = haul.due.len() == DUE_CHUNK;
    Ok(())
}

/// Messages in order of their numbers; with their bodies where they will most likely be handed out.
fn fresh(
    connection: &Connection,
    queue: i64,
    errand: &Errand,
    has_high: bool,
    room: &mut usize,
    haul: &mut Haul,
) -> rusqlite::Result<()> {
    let Some((after, limit)) = errand.fresh else { return Ok(()) };
    let columns = Head::COLUMNS;
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns}, attempts, body FROM messages \
         WHERE seq > ?1 AND seq < ?2 ORDER BY seq LIMIT ?3"
    ))?;
    let mut rows = statement.query(params![after, schema::base(queue + 1), limit])?;
    let mut seen: HashSet<Key> = HashSet::new();
    while let Some(row) = rows.next()? {
        let head = Head::read(row)?;
        let is_strict = head.key.is_kept(&errand.order);
        // Of a key that is kept in order no other can be the head.
        let is_first = !is_strict || seen.insert(head.key.clone());
        if is_strict && is_first && has_high {
            let next = next_of(connection, queue, &head.key, errand.now, true)?;
            haul.first.extend(next.map(|next| (head.key.clone(), next)));
        }
        let content = if is_first && *room > 0 && head.due.is_none() {
            let content = Content::new(row.get(6)?, row.get_ref(7)?.as_str()?);
            *room = room.saturating_sub(content.bytes);
            Some(content)
        } else {
            None
        };
        haul.fresh.push(Fresh { head, content });
    }
    Ok(())
}
