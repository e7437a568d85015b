//! The embedded engine: events in a file that one process serves.
//!
//! Invariants:
//! 1. There is one writer, which checks and appends all requests that wait in one transaction, in order, and syncs once.
//!    The transaction holds the file, so a check sees everything that was ever appended, and nothing that was not.
//! 2. Positions are given in that order, and become visible in it: no reader skips one.
//! 3. What was appended is on the disk before anyone is told so.
//! 4. A conflict is an answer, not a failure: it takes no other request with it.
//! 5. The writer checks a condition in a bounded number of steps, however much it asks. One that needs more is checked beside it first.
//!
//! | file | is |
//! |---|---|
//! | `append.rs`, `check.rs` | the rows; whether the condition holds, and what is done about one that is long to check |
//! | `tail.rs`, `log.rs` | the keys of the last events, which are filed later; what is kept in memory beside the file |
//! | `read.rs`, `readers.rs` | a page of events; the threads and connections that read |
//! | `search.rs`, `lists.rs` | which positions match, purely; the lists that this is told from |
//! | `schema.rs`, `statements.rs` | the tables; all that is asked of the database |
//! | `cursors.rs` | how far readers have come |
//! | `head.rs` | waiting for more |

mod append;
mod check;
mod cursors;
mod head;
mod lists;
mod log;
mod read;
mod readers;
mod schema;
mod search;
#[cfg(test)]
mod search_tests;
mod statements;
mod tail;
#[cfg(test)]
mod tail_tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use sluicegate_sqlite_file::{
    self as file, Clock, Lock, OpenError, ServedFile, WriteError, Writer,
};
use sluicegate_tasks::{Context, TaskGroup};

use self::append::{Appended, Appending, position};
use self::check::Known;
use self::log::{Log, Open};
use self::readers::Readers;
use self::schema::{KNOWN, Newer};
use crate::{
    Append, AppendError, BoxFuture, Cursors, Engine, EngineError, Page, Position, Read, ReadError,
};

/// What can be said of a file of events beside its path.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SqliteSettings {
    /// What time it is; the machine's unless told.
    pub clock: Option<Clock>,
    /// How many pages of 4 KiB the file may grow to; no limit unless told.
    pub max_pages: Option<u32>,
    /// How long an append waits for another process that writes; 5 seconds unless told.
    pub busy: Option<Duration>,
}

/// Events in a file that this process serves. Clones are the same engine.
#[derive(Clone, Debug)]
pub struct SqliteEngine {
    file: ServedFile,
    readers: Arc<Readers>,
    log: Arc<Log>,
}

impl SqliteEngine {
    /// Events in a file of their own, which is made if it is not there.
    ///
    /// # Errors
    /// If another process serves it, or it cannot be used.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, SqliteSettings::default()).await
    }

    /// [`SqliteEngine::open`] with more to say about it.
    ///
    /// # Errors
    /// As there.
    pub async fn open_with(
        path: impl AsRef<Path>,
        settings: SqliteSettings,
    ) -> Result<Self, OpenError> {
        // Names with a meaning of their own to the database, such as `:memory:`, are files like others.
        let path = std::path::absolute(path.as_ref())
            .map_err(|cause| OpenError::Io { path: path.as_ref().to_owned(), cause })?;
        let group = TaskGroup::new("events-open", 1).expect("the name and the limit are constants");
        let gone = |error: &dyn std::fmt::Display| OpenError::Sqlite(error.to_string());
        let opened = group.submit_blocking(Context::new(), move |cx| match cx.check() {
            Ok(()) => serve(path, settings),
            Err(interrupt) => Err(OpenError::Sqlite(interrupt.to_string())),
        });
        let opened = opened.await.map_err(|refused| gone(&refused))?.await;
        Self::within(opened.map_err(|error| gone(&error))??).await
    }

    /// Events in a file that is served already, beside what others keep in it. What is appended shares the transactions of
    /// the others, and so their syncs.
    ///
    /// # Errors
    /// If a later version has written events to it, or it cannot be used.
    pub async fn within(file: ServedFile) -> Result<Self, OpenError> {
        let opened = file.writer().write(|| Open).await;
        let log = match opened.map_err(|error| OpenError::Sqlite(error.cause))? {
            Ok(log) => log,
            Err(Newer(found)) => return Err(OpenError::Newer { found, known: KNOWN }),
        };
        // If there is an engine already, its log is used: it knows more by now.
        let log = file.writer().beside(|| log);
        let readers = Readers::new(file.path().to_owned());
        Ok(Self { file, readers, log })
    }

    /// The file, for somebody else of this process who keeps something in it.
    #[must_use]
    pub fn file(&self) -> &ServedFile {
        &self.file
    }

    /// Why the last append failed, or why the one that is under way has waited for too long; `None` if all is well.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.file.writer().failure()
    }
}

impl SqliteEngine {
    /// Checks the condition of an append beside the writer: what is in its way, or else up to where nothing is. Dropped,
    /// it stops.
    async fn check(
        &self,
        append: Arc<Append>,
        holds_to: i64,
    ) -> Result<(Option<i64>, i64), EngineError> {
        let log = Arc::clone(&self.log);
        let check = move |connection: &Connection, cx: &Context| {
            let view = log.tail.view();
            let conflict = append.condition().map_or(Ok(None), |condition| {
                check::patiently(connection, cx, &view, condition, holds_to)
            });
            Ok((conflict?, view.up_to))
        };
        self.readers.read(check).await
    }
}

impl Engine for SqliteEngine {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Position, AppendError>> {
        let append = Arc::new(append);
        Box::pin(async move {
            let mut known = Known::default();
            loop {
                let (same, clock) = (Arc::clone(&append), self.file.clock().clone());
                let make = || Appending::new(same, known, clock, Arc::clone(&self.log));
                let conflict = match self.file.writer().write(make).await.map_err(failed)? {
                    Appended::UpTo(last) => return Ok(position(last)),
                    Appended::Conflict(at) => Some(at),
                    Appended::Unchecked => {
                        let (conflict, up_to) =
                            self.check(Arc::clone(&append), known.holds_to).await?;
                        known = known.up_to(up_to);
                        conflict
                    }
                };
                if let Some(at) = conflict {
                    return Err(AppendError::Conflict { position: position(at) });
                }
            }
        })
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async {
            let log = Arc::clone(&self.log);
            let page = move |connection: &Connection, cx: &Context| {
                let view = log.tail.view();
                read::page(connection, cx, &view, &read)
            };
            Ok(self.readers.read(page).await?)
        })
    }

    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
        Box::pin(async { Ok(position(self.log.tail.committed())) })
    }

    fn changed(&self, after: Position) -> BoxFuture<'_, ()> {
        Box::pin(self.log.head.beyond(after.as_i64()))
    }

    fn cursors(&self) -> Option<&dyn Cursors> {
        Some(self)
    }
}

fn failed(error: WriteError) -> AppendError {
    AppendError::Failed(EngineError { cause: error.cause })
}

fn serve(path: PathBuf, settings: SqliteSettings) -> Result<ServedFile, OpenError> {
    let lock = Lock::take(&path)?;
    let connection = file::writer(&path, settings.max_pages, file::check_owner)?;
    let writer = Writer::new(connection, settings.busy.unwrap_or(file::BUSY));
    let clock = settings.clock.unwrap_or_else(Clock::system);
    Ok(ServedFile::new(path, Some(Arc::new(lock)), writer, clock))
}
