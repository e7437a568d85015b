//! Reading from the file: on which threads and connections, for the read-ahead of a queue and for those who ask.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use sluicegate_dispatch::SourceError;
use sluicegate_sqlite_file::cause;
use sluicegate_tasks::{Context, Permits, TaskGroup};

use super::file;
use super::query::read;
use super::read_ahead::Fetch;
use super::store::Queue;

/// How many read at once.
const READERS: u32 = 2;
/// How many more may wait to read: one for each queue, and those who ask.
const WAITING: u32 = 100_000;

/// The connections that read, and the threads they are used on.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    group: TaskGroup,
    /// Those that wait to read for a caller.
    callers: Permits,
    /// Those that wait to read for a queue, which waits for none of them.
    fetches: TaskGroup,
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
            fetches: group("sqlite-fetches", WAITING),
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

    /// Reads what is to be read, and what follows from it, without waiting for that.
    pub(crate) fn fetch(self: &Arc<Self>, queue: Arc<Queue>, fetch: Fetch) {
        let readers = Arc::clone(self);
        let guard = Fetching { queue, fetch: Some(fetch) };
        let begun = self.fetches.try_submit(&self.cx, move |cx| async move {
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

    /// Reads on this thread. Where it reads much, the connection is not used again: its cache has grown, and is
    /// gone through for each snapshot.
    fn read_here<T>(
        &self,
        reads_much: bool,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, SourceError> {
        let idle = self.idle.lock().pop();
        let (connection, answer) = with(idle, &self.path, query)?;
        if !reads_much {
            self.idle.lock().push(connection);
        }
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

/// A fetch on its way. Dropped before it was done, it says so.
struct Fetching {
    queue: Arc<Queue>,
    fetch: Option<Fetch>,
}

impl Fetching {
    /// Reads once; answers whether there is more to read.
    fn go(&mut self, readers: &Readers) -> bool {
        let Some(fetch) = &self.fetch else { return false };
        let id = self.queue.id;
        let fetched = readers.read_here(fetch.opens, |connection| read(connection, id, fetch));
        let Some(fetch) = self.fetch.take() else { return false };
        let mut ahead = self.queue.ahead.lock();
        match fetched {
            Ok(fetched) => {
                ahead.bring(&fetch, fetched);
                self.fetch = ahead.fetch(self.queue.clock.now());
            }
            Err(error) => ahead.not_brought(fetch, error.cause),
        }
        drop(ahead);
        self.queue.changed.notify_waiters();
        self.fetch.is_some()
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if let Some(fetch) = self.fetch.take() {
            self.queue.ahead.lock().not_brought(fetch, "the reader ended early".to_owned());
            self.queue.changed.notify_waiters();
        }
    }
}
