//! The one writer: it takes all requests that wait, writes them in one transaction and syncs once.
//!
//! It runs on a blocking thread while there is something to write, and ends when there is not. A
//! request that fails takes no other with it: then each is written by itself. While another process holds the file
//! nothing is written, and each request fails once it has waited for as long as a write may.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use sluicegate_tasks::{Context, OwnedPermit, Permits, TaskGroup};
use tokio::sync::oneshot;

use crate::trouble::{HELD, cause};

/// How many requests may wait to be written; further ones wait for their turn to wait.
const WAITING: u32 = 4096;
/// How much one transaction writes, give or take the last request.
const BATCH_WEIGHT: usize = 4096;
/// From when on the file is taken for one that somebody else holds, while a write still waits for it.
const HELD_AFTER: Duration = Duration::from_millis(500);
/// How long it waits for the file at least, so that a request that waited for others is tried too.
const HELD_AT_LEAST: Duration = Duration::from_millis(10);
/// What is said to those whose requests were not begun because somebody else holds the file.
const NOT_BEGUN: &str =
    "another process holds the state file for too long: nothing was written, try again";
/// How many bytes weigh as much as a row.
pub const ROW_BYTES: usize = 4096;

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// What happened.
    pub cause: String,
}

impl WriteError {
    fn new(cause: impl fmt::Display) -> Self {
        Self { cause: cause.to_string() }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for WriteError {}

/// Something to write, all or nothing.
pub trait Write: Send + 'static {
    /// What it answers.
    type Answer: Send + 'static;

    /// How much it writes: its rows, and more for long ones.
    fn weight(&self) -> usize;

    /// Writes it. It may be called again after a failure, on a transaction without a trace of the
    /// first call.
    ///
    /// # Errors
    /// The database said no: nothing of it is written.
    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer>;

    /// It is on the disk. Called before anyone is told.
    fn written(&mut self, answer: &Self::Answer) {
        let _ = answer;
    }
}

/// The one that writes to a file. Clones of its `Arc` are the same writer.
#[derive(Debug)]
pub struct Writer {
    connection: Mutex<Connection>,
    /// How long a request may wait for whoever else holds the file.
    patience: Duration,
    line: Mutex<Line>,
    permits: Arc<Permits>,
    group: TaskGroup,
    cx: Context,
    /// Why the last write failed; `None` if it did not.
    failure: Mutex<Option<String>>,
    /// Since when it waits for whoever else holds the file.
    waits_since: Mutex<Option<Instant>>,
    /// What its users keep in memory beside the file, one of each type.
    beside: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Box<dyn Pending>>,
    running: bool,
}

/// A request with its answer's way back.
struct Request<W: Write> {
    write: W,
    answer: Option<W::Answer>,
    reply: Option<oneshot::Sender<Result<W::Answer, WriteError>>>,
    since: Instant,
    /// Its place among those that may wait.
    _permit: OwnedPermit,
}

trait Pending: Send {
    fn weight(&self) -> usize;
    fn since(&self) -> Instant;
    fn write(&mut self, connection: &Connection) -> rusqlite::Result<()>;
    fn end(self: Box<Self>, result: Result<(), &str>);
}

impl fmt::Debug for dyn Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a write of weight {}", self.weight())
    }
}

impl Writer {
    /// A writer whose requests wait at most this long for whoever else holds the file.
    #[must_use]
    pub fn new(connection: Connection, patience: Duration) -> Arc<Self> {
        // One writes; others may still be on their way out after they handed the line over.
        let group =
            TaskGroup::new("sqlite-writer", 9).expect("the name and the limit are constants");
        Arc::new(Self {
            connection: Mutex::new(connection),
            patience,
            line: Mutex::default(),
            permits: Arc::new(Permits::new(WAITING).expect("it is not zero")),
            group,
            cx: Context::new(),
            failure: Mutex::default(),
            waits_since: Mutex::default(),
            beside: Mutex::default(),
        })
    }

    /// Has it written. Dropped while it waits for its turn, nothing happens; dropped after that, it is
    /// written all the same.
    ///
    /// # Errors
    /// What kept it from being written.
    pub async fn write<W: Write>(
        self: &Arc<Self>,
        make: impl FnOnce() -> W,
    ) -> Result<W::Answer, WriteError> {
        let permit = self.permits.acquire_owned(&self.cx).await.map_err(WriteError::new)?;
        let (reply, answer) = oneshot::channel();
        let starts = {
            let mut line = self.line.lock();
            // In line at once: what was made first is written first.
            let (write, since) = (make(), Instant::now());
            let reply = Some(reply);
            let request = Request { write, answer: None, reply, since, _permit: permit };
            line.waiting.push_back(Box::new(request));
            !mem::replace(&mut line.running, true)
        };
        if starts {
            self.start();
        }
        answer.await.unwrap_or_else(|_| Err(WriteError::new("the writer ended early")))
    }

    /// What is kept in memory beside the file: one of each type, made by whoever asks first. So two users of one file who
    /// do not know of each other share it.
    pub fn beside<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut beside = self.beside.lock();
        let found = beside.iter().find_map(|kept| Arc::clone(kept).downcast::<T>().ok());
        found.unwrap_or_else(|| {
            let made = Arc::new(make());
            beside.push(Arc::<T>::clone(&made));
            made
        })
    }

    fn start(self: &Arc<Self>) {
        let run = Run { writer: Arc::clone(self), is_over: false };
        let task = self.group.submit_blocking(&self.cx, move |cx| {
            let mut run = run;
            while cx.check().is_ok() && run.batch() {}
        });
        // It is let in at once, or refused and dropped: then the run has ended those who wait.
        drop(task.now_or_never());
    }

    /// Why the last write failed, or the one that is under way will if nothing changes.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let waits_since = *self.waits_since.lock();
        if waits_since.is_some_and(|since| since.elapsed() >= HELD_AFTER) {
            return Some(HELD.to_owned());
        }
        self.failure.lock().clone()
    }

    fn commit(
        &self,
        connection: &mut Connection,
        batch: &mut [Box<dyn Pending>],
    ) -> Result<(), Failed> {
        let oldest = batch.iter().map(|request| request.since()).min();
        let waited = oldest.map(|since| since.elapsed()).unwrap_or_default();
        let rest = self.patience.saturating_sub(waited).max(HELD_AT_LEAST);
        let write = self.begin(connection, rest).map_err(Failed::NotBegun)?;
        for request in batch {
            request.write(&write).map_err(Failed::NotWritten)?;
        }
        write.commit().map_err(Failed::NotWritten)
    }

    /// Begins to write as soon as nobody else holds the file, within so long.
    fn begin<'a>(
        &self,
        connection: &'a mut Connection,
        within: Duration,
    ) -> rusqlite::Result<Transaction<'a>> {
        connection.busy_timeout(within)?;
        *self.waits_since.lock() = Some(Instant::now());
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        *self.waits_since.lock() = None;
        begun
    }
}

/// Why a batch was not written.
enum Failed {
    /// The transaction could not begin: it is the same for each of them.
    NotBegun(rusqlite::Error),
    /// One of them failed, or all did in the end.
    NotWritten(rusqlite::Error),
}

/// The writer at work. However it ends, the next request starts it again.
struct Run {
    writer: Arc<Writer>,
    /// It found nothing more: from then on the line is someone else's.
    is_over: bool,
}

impl Run {
    /// Writes what waits; answers whether there was anything.
    fn batch(&mut self) -> bool {
        let mut batch = Vec::new();
        {
            let mut line = self.writer.line.lock();
            let mut weight = 0;
            while weight < BATCH_WEIGHT
                && let Some(request) = line.waiting.pop_front()
            {
                weight += request.weight();
                batch.push(request);
            }
            if batch.is_empty() {
                line.running = false;
                self.is_over = true;
                return false;
            }
        }
        let mut connection = self.writer.connection.lock();
        match self.writer.commit(&mut connection, &mut batch) {
            Ok(()) => self.end(batch, Ok(())),
            Err(Failed::NotBegun(error)) => self.not_begun(batch, &error),
            Err(Failed::NotWritten(error)) if batch.len() == 1 => {
                self.end(batch, Err(&cause(&error)));
            }
            Err(Failed::NotWritten(_)) => {
                for request in batch {
                    let mut alone = vec![request];
                    match self.writer.commit(&mut connection, &mut alone) {
                        Ok(()) => self.end(alone, Ok(())),
                        Err(Failed::NotBegun(error)) => self.not_begun(alone, &error),
                        Err(Failed::NotWritten(error)) => self.end(alone, Err(&cause(&error))),
                    }
                }
            }
        }
        true
    }

    /// None of them was written. Where somebody else holds the file, those that may still wait are tried again.
    fn not_begun(&self, batch: Vec<Box<dyn Pending>>, error: &rusqlite::Error) {
        if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) {
            return self.end(batch, Err(&cause(error)));
        }
        let patience = self.writer.patience;
        let (over, younger): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|request| request.since().elapsed() >= patience);
        {
            let mut line = self.writer.line.lock();
            for request in younger.into_iter().rev() {
                line.waiting.push_front(request);
            }
        }
        *self.writer.failure.lock() = Some(HELD.to_owned());
        for request in over {
            request.end(Err(NOT_BEGUN));
        }
    }

    fn end(&self, batch: Vec<Box<dyn Pending>>, result: Result<(), &str>) {
        *self.writer.failure.lock() = result.err().map(str::to_owned);
        for request in batch {
            request.end(result);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let left = {
            let mut line = self.writer.line.lock();
            line.running = false;
            mem::take(&mut line.waiting)
        };
        for request in left {
            request.end(Err("the store is closed"));
        }
    }
}

impl<W: Write> Pending for Request<W> {
    fn weight(&self) -> usize {
        self.write.weight()
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.answer = Some(self.write.write(connection)?);
        Ok(())
    }

    fn end(mut self: Box<Self>, result: Result<(), &str>) {
        let answer = match (result, self.answer.take()) {
            (Ok(()), Some(answer)) => {
                self.write.written(&answer);
                Ok(answer)
            }
            (Err(cause), _) => Err(WriteError::new(cause)),
            (Ok(()), None) => Err(WriteError::new("it was not written")),
        };
        if let Some(reply) = self.reply.take() {
            // Whoever asked may be gone; it is written all the same.
            drop(reply.send(answer));
        }
    }
}
