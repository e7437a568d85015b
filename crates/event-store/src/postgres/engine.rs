//! The engine: one log, shared with every process that opens it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_postgres_link::{Broken, CONNECT, Wire, connector};
use sluicegate_tasks::TaskGroup;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::config::TargetSessionAttrs;

use super::appender::{self, Shared};
use super::batch;
use super::cursors::CursorTable;
use super::keeper::{self, Keeper};
use super::link::Link;
use super::open_error::OpenError;
use super::queue::{Answer, Entry, Known, queue};
use super::reader::Reader;
use super::schema::{self, Names};
use super::settings::PostgresSettings;
use crate::{
    Append, AppendError, BoxFuture, Cursors, Engine, EngineError, Page, Position, Read, ReadError,
};

/// How long [`Engine::changed`] waits at most.
const HINT: Duration = Duration::from_secs(1);

/// The log of one schema of a PostgreSQL database. Any number of processes open it.
///
/// Dropped, its tasks end; who still waits for an append hears that it is not known whether it was done.
pub struct PostgresEngine {
    queue: Entry,
    reader: Reader,
    cursors: CursorTable,
    head: Arc<Head>,
    settings: PostgresSettings,
    _tasks: TaskGroup,
}

/// Asks a database whether a log could be opened there. Nothing is made.
///
/// # Errors
/// As [`PostgresEngine::open`], but for what is wrong with the tables.
pub async fn probe(settings: &PostgresSettings) -> Result<(), OpenError> {
    let tls = connector(settings.address.ca.as_deref())?;
    Wire::connect(&settings.config(CONNECT), &tls).await?;
    Ok(())
}

impl PostgresEngine {
    /// Opens a log. Its tables are made, or brought up to date, by whoever comes first.
    ///
    /// # Errors
    /// The database is not reached or refuses, or its tables are of a newer version.
    pub async fn open(settings: PostgresSettings) -> Result<Self, OpenError> {
        let tls = connector(settings.address.ca.as_deref())?;
        let names = Names::new(&settings.address.schema);
        schema::prepare(&settings, &tls, &names).await?;
        let (entry, exit) = queue(settings.append_timeout);
        let head = Arc::new(Head::default());
        let reader = Reader::new(Link::new(&settings, tls.clone()), &names);
        head.reaches(reader.head().await?);
        let cursors = CursorTable::new(Link::new(&settings, tls.clone()), &names);
        let keeper = Keeper {
            config: settings.config(settings.read_timeout),
            tls: tls.clone(),
            names: names.clone(),
            head: Arc::clone(&head),
        };
        let mut appending = settings.config(settings.append_timeout);
        // While the primary server moves, the address may lead to one that only reads: that is not there yet.
        appending.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let shared = Arc::new(Shared {
            queue: exit,
            config: appending,
            tls,
            names,
            limit: settings.append_timeout,
            head: Arc::clone(&head),
        });
        let appenders = settings.batches_in_flight;
        let count = u32::try_from(appenders + 1).unwrap_or(u32::MAX);
        let name = format!("events in PostgreSQL, schema {}", settings.address.schema);
        let tasks = TaskGroup::new(name, count).expect("it has a name and room");
        for _ in 0..appenders {
            let shared = Arc::clone(&shared);
            let run = tasks.submit_detached("appender", |cx| appender::run(cx, shared)).await;
            debug_assert!(run.is_ok(), "a new group has room");
        }
        let keep = tasks.submit_detached("listener", |cx| keeper::run(cx, keeper)).await;
        debug_assert!(keep.is_ok(), "a new group has room");
        Ok(Self { queue: entry, reader, cursors, head, settings, _tasks: tasks })
    }

    async fn append_exactly(&self, mut append: Append) -> Result<Position, AppendError> {
        let end = Instant::now() + self.settings.append_timeout;
        let mut known = Known::default();
        loop {
            match self.queue.append(append, known, end).await? {
                Answer::Appended(position) => return Ok(position),
                Answer::Unchecked(same) => append = same,
            }
            known = self.look_up(&append, known, end).await?;
        }
    }

    /// Looks for what is in the way of an append, beside all who append. Dropped, it stops.
    ///
    /// `docs/rules.md#events-1`.
    async fn look_up(
        &self,
        append: &Append,
        known: Known,
        end: Instant,
    ) -> Result<Known, AppendError> {
        let rounds = known.rounds + 1;
        let Some(condition) = append.condition() else { return Ok(Known { rounds, ..known }) };
        let (query, after) = (&condition.fail_if_events_match, known.after(condition));
        match timeout_at(end, self.reader.first(query, after)).await {
            Err(_) => Err(AppendError::TimedOut { after: self.settings.append_timeout }),
            Ok(Ok((Some(number), _))) => {
                let position = batch::position(number)?;
                Err(AppendError::Conflict { position })
            }
            // An event that can be read has all events before it, so up to there it holds for ever.
            Ok(Ok((None, head))) => Ok(Known { holds_to: head.max(known.holds_to), rounds }),
            Ok(Err(broken)) if broken.is_said() && !broken.is_slow() => {
                Err(AppendError::Failed(broken.into()))
            }
            // Who appends waits for the database if it is away, and has more time for it the next time.
            Ok(Err(_)) => Ok(Known { rounds, ..known }),
        }
    }

    async fn wait_for_change(&self, after: Position) {
        let _watch = self.head.watch();
        let mut known = self.head.known.subscribe();
        let beyond = known.wait_for(|head| *head > after.as_i64());
        // The time is as good a reason to look as the head is.
        timeout(HINT, beyond).await.map(drop).unwrap_or_default();
    }
}

impl Engine for PostgresEngine {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Position, AppendError>> {
        Box::pin(self.append_exactly(append))
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move {
            self.reader.page(&read).await.map_err(|broken| match broken.is_slow() {
                true => ReadError::TimedOut { after: self.settings.read_timeout },
                false => ReadError::Failed(broken.into()),
            })
        })
    }

    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
        Box::pin(async move {
            let number = self.reader.head().await?;
            let head = Position::try_from(number);
            head.map_err(|_| Broken::Other(format!("{number} is no position")).into())
        })
    }

    fn changed(&self, after: Position) -> BoxFuture<'_, ()> {
        Box::pin(self.wait_for_change(after))
    }

    fn cursors(&self) -> Option<&dyn Cursors> {
        Some(&self.cursors)
    }
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEngine").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The last position that is known to be there, and who waits for a later one.
#[derive(Debug)]
pub(super) struct Head {
    known: watch::Sender<i64>,
    appended: Notify,
    watchers: AtomicUsize,
    watched: Notify,
}

impl Default for Head {
    fn default() -> Self {
        let (known, _) = watch::channel(0);
        let (appended, watched) = (Notify::new(), Notify::new());
        Self { known, appended, watchers: AtomicUsize::new(0), watched }
    }
}

impl Head {
    /// Notes that there are events up to a position; answers whether that is new.
    pub(super) fn reaches(&self, position: i64) -> bool {
        self.known.send_if_modified(|known| {
            let is_new = *known < position;
            *known = position.max(*known);
            is_new
        })
    }

    /// Notes that events were appended here up to a position, of which others are to be told.
    pub(super) fn grows(&self, position: i64) {
        self.reaches(position);
        self.appended.notify_one();
    }

    /// Waits until others are to be told of something.
    pub(super) async fn appended(&self) {
        self.appended.notified().await;
    }

    /// Somebody waits for events, until this is dropped.
    fn watch(&self) -> Watch<'_> {
        self.watchers.fetch_add(1, Ordering::AcqRel);
        self.watched.notify_one();
        Watch { head: self }
    }

    /// Whether somebody waits for events.
    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Acquire) > 0
    }

    /// Waits until somebody begins to wait for events.
    pub(super) async fn watched(&self) {
        self.watched.notified().await;
    }
}

/// Somebody waits for events.
struct Watch<'a> {
    head: &'a Head,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.head.watchers.fetch_sub(1, Ordering::AcqRel);
    }
}
