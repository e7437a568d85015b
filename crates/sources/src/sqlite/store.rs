//! The state file, served or published to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use sluicegate_dispatch::{Publication, PublishError, Published, SourceError};
use sluicegate_sqlite_file::{Clock, ServedFile};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::sync::Notify;

use super::file::{self, Lock, OpenError};
use super::parked_index::ParkedIndex;
use super::publish::Publish;
use super::read_ahead::{AHEAD, ReadAhead};
use super::reader::Readers;
use super::schema::{MAX_QUEUES, base};
use super::source::SqliteSource;
use super::watch::{Idle, watch};
use super::writer::{Write, Writer};

/// What can be said of a store beside its path.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StoreSettings {
    /// What time it is; the machine's unless told.
    pub clock: Option<Clock>,
    /// How many pages of 4 KiB the file may grow to; no limit unless told.
    pub max_pages: Option<u32>,
    /// How long a write waits for another process that writes; 5 seconds unless told.
    pub busy: Option<Duration>,
    /// How many messages of each queue are read ahead; 1,024 unless told.
    pub read_ahead: Option<usize>,
}

/// One state file, served by this process alone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// The file from outside: messages can be put in while a daemon serves it.
#[derive(Clone, Debug)]
pub struct Publisher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) writer: Writer,
    pub(crate) readers: Arc<Readers>,
    pub(crate) clock: Clock,
    read_ahead: usize,
    pub(crate) idle: Arc<Idle>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) parked: Arc<ParkedIndex>,
    /// What watches the file for others that write, as long as this lives.
    _watch: Option<TaskGroup>,
    lock: Option<Arc<Lock>>,
    path: PathBuf,
}

/// The queues that are in use, by their names.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_name: Mutex<HashMap<Arc<str>, Arc<Queue>>>,
}

/// A queue of the file.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: i64,
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    pub(crate) ahead: Mutex<ReadAhead>,
    /// Whoever waits to receive looks again.
    pub(crate) changed: Notify,
    /// How far the sweep of the remembered ids is.
    pub(crate) swept: Mutex<String>,
    /// How far the sweep of the lanes is.
    pub(crate) swept_lanes: Mutex<i64>,
}

impl Store {
    /// Opens a file to serve it. It is made if it is not there.
    ///
    /// # Errors
    /// If another process serves it, or it cannot be used.
    pub async fn open_serving(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, StoreSettings::default()).await
    }

    /// [`Store::open_serving`] with more to say about it.
    ///
    /// # Errors
    /// As there.
    pub async fn open_with(
        path: impl AsRef<Path>,
        settings: StoreSettings,
    ) -> Result<Self, OpenError> {
        let inner = open(path.as_ref().to_owned(), settings, true).await?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens a file to put messages in, whoever serves it. It is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be used.
    pub async fn open_publishing(path: impl AsRef<Path>) -> Result<Publisher, OpenError> {
        let settings = StoreSettings::default();
        let inner = open(path.as_ref().to_owned(), settings, false).await?;
        Ok(Publisher { inner: Arc::new(inner) })
    }

    /// A queue of it, which is made if it is not there. Asked for again, it is the same queue.
    ///
    /// # Errors
    /// If it could not be made.
    pub async fn queue(
        &self,
        name: impl Into<Arc<str>>,
        visibility: Duration,
    ) -> Result<SqliteSource, SourceError> {
        let queue = self.inner.queue(name.into()).await?;
        Ok(SqliteSource::new(Arc::clone(&self.inner), queue, visibility))
    }

    /// The file, for somebody else of this process who keeps something in it: what is written through it shares the
    /// transactions of the queue.
    #[must_use]
    pub fn file(&self) -> ServedFile {
        let Inner { lock, path, writer, clock, .. } = &*self.inner;
        ServedFile::new(path.clone(), lock.clone(), Arc::clone(writer.shared()), clock.clone())
    }

    /// Waits until all that was to be written is. Nothing is lost without it; with it, nobody is left
    /// who writes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn flush(&self) -> Result<(), SourceError> {
        self.inner.writer.write(|| Flush).await
    }
}

impl Publisher {
    /// Puts messages into a queue, durably and all or none.
    ///
    /// # Errors
    /// If they could not be stored.
    pub async fn publish(
        &self,
        queue: &str,
        messages: Vec<Publication>,
    ) -> Result<Published, PublishError> {
        let queue = self.inner.queue(queue.into()).await.map_err(PublishError::Source)?;
        self.inner.publish(queue, messages).await
    }
}

impl Inner {
    pub(crate) async fn publish(
        &self,
        queue: Arc<Queue>,
        messages: Vec<Publication>,
    ) -> Result<Published, PublishError> {
        if messages.is_empty() {
            return Ok(Published::default());
        }
        let now = self.clock.now();
        let accepted = self.writer.write(|| Publish { queue, messages, now }).await;
        accepted.map(|accepted| accepted.published).map_err(PublishError::Source)
    }

    async fn queue(&self, name: Arc<str>) -> Result<Arc<Queue>, SourceError> {
        if let Some(queue) = self.queues.by_name.lock().get(&name) {
            return Ok(Arc::clone(queue));
        }
        let id = self.writer.write(|| Enlist { name: Arc::clone(&name) }).await?;
        let id = id.ok_or_else(|| SourceError::new("the state file has too many queues"))?;
        let mut queues = self.queues.by_name.lock();
        let queue = queues.entry(Arc::clone(&name)).or_insert_with(|| {
            // Receipts of an earlier process are of earlier generations.
            let generation = self.clock.now().unsigned_abs() << 20;
            Arc::new(Queue {
                id,
                name,
                clock: self.clock.clone(),
                ahead: Mutex::new(ReadAhead::new(id, generation, self.read_ahead)),
                changed: Notify::new(),
                swept: Mutex::default(),
                swept_lanes: Mutex::default(),
            })
        });
        Ok(Arc::clone(queue))
    }
}

impl Queues {
    /// Someone else wrote to the file.
    pub(crate) fn may_have_more(&self) {
        for queue in self.by_name.lock().values() {
            queue.ahead.lock().may_have_more();
            queue.changed.notify_waiters();
        }
    }
}

async fn open(path: PathBuf, settings: StoreSettings, serves: bool) -> Result<Inner, OpenError> {
    let StoreSettings { clock, max_pages, busy, read_ahead } = settings;
    // Names with a meaning of their own to the database, such as `:memory:`, are files like others.
    let path = std::path::absolute(&path).map_err(|cause| OpenError::Io { path, cause })?;
    let beside = path.clone();
    let group = TaskGroup::new("sqlite-open", 1).expect("the name and the limit are constants");
    let opened = group.submit_blocking(Context::new(), move |cx| {
        if cx.is_cancelled() {
            return Err(OpenError::Sqlite("it was given up".to_owned()));
        }
        let lock = serves.then(|| Lock::take(&beside)).transpose()?;
        let connection = file::writer(&beside, max_pages, busy, serves)?;
        let parked = if serves { ParkedIndex::load(&connection)? } else { ParkedIndex::default() };
        Ok((lock, connection, parked))
    });
    let gone = |error: &dyn std::fmt::Display| OpenError::Sqlite(error.to_string());
    let opened = opened.await.map_err(|refused| gone(&refused))?.await;
    let (lock, connection, parked) = opened.map_err(|error| gone(&error))??;
    let (readers, idle, queues) = (Readers::new(path.clone()), Arc::default(), Arc::default());
    let watch = if serves { Some(watched(&readers, &idle, &queues).await?) } else { None };
    Ok(Inner {
        writer: Writer::new(connection, busy.unwrap_or(file::BUSY)),
        readers,
        clock: clock.unwrap_or_else(Clock::system),
        read_ahead: read_ahead.unwrap_or(AHEAD),
        idle,
        queues,
        parked: Arc::new(parked),
        _watch: watch,
        lock: lock.map(Arc::new),
        path,
    })
}

async fn watched(
    readers: &Arc<Readers>,
    idle: &Arc<Idle>,
    queues: &Arc<Queues>,
) -> Result<TaskGroup, OpenError> {
    let group = TaskGroup::new("sqlite-watch", 1).expect("the name and the limit are constants");
    let (readers, idle, queues) = (Arc::clone(readers), Arc::clone(idle), Arc::clone(queues));
    let task = group.submit_detached("watch", |cx| watch(cx, idle, readers, queues)).await;
    // It runs until the group is dropped.
    drop(task.map_err(|refused| OpenError::Sqlite(refused.to_string()))?);
    Ok(group)
}

/// Writes nothing, after all that was to be written before.
struct Flush;

impl Write for Flush {
    type Answer = ();

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, _connection: &Connection) -> rusqlite::Result<()> {
        Ok(())
    }
}

/// Finds a queue's number, or gives it one; `None` if there are none left.
struct Enlist {
    name: Arc<str>,
}

impl Write for Enlist {
    type Answer = Option<i64>;

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        let found = connection
            .query_row("SELECT id FROM queues WHERE name = ?1", [&self.name], |row| row.get(0))
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
        let last: i64 =
            connection.query_row("SELECT ifnull(max(id), 0) FROM queues", (), |row| row.get(0))?;
        let id = last + 1;
        if id > MAX_QUEUES {
            return Ok(None);
        }
        connection.execute(
            "INSERT INTO queues (id, name, next, stored) VALUES (?1, ?2, ?3, 0)",
            params![id, self.name, base(id) + 1],
        )?;
        Ok(Some(id))
    }
}
