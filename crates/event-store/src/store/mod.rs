//! The front of an engine: what a service calls.

mod execute;
mod project;

pub use execute::{Execute, Executed};
pub use project::{Project, ProjectStream, Projected, ProjectionStream};

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use sluicegate_tasks::Permits;
use tokio::time::timeout;

use crate::{
    Append, AppendCondition, AppendError, Engine, EventStream, Invalid, MemoryEngine, NewEvent,
    Page, Position, Query, Read, ReadError, Reader, Settings,
};

/// A store of events. Clones are the same store.
///
/// Read what a decision depends on, decide, and append under the condition that came with what was read: it fails if
/// anything came meanwhile that would have been read too.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_event_store::{
///     AppendError, EventStore, MemoryEngine, NewEvent, Position, Query, fold,
/// };
///
/// let store = EventStore::new(MemoryEngine::new());
/// let subscribed = |student| {
///     NewEvent::of("StudentSubscribed").tag("course", "c1").tag("student", student)
/// };
/// let taken = || fold::count(Query::types(["StudentSubscribed"]).tag("course", "c1"));
///
/// // Two read the same, and decide that there is a seat left.
/// let (seats, first) = store.project(taken(), Position::START).await?;
/// let (_, second) = store.project(taken(), Position::START).await?;
/// assert_eq!(seats, 0);
///
/// // Only one of them can be right.
/// store.append_if([subscribed("s1")], first).await?;
/// let refused = store.append_if([subscribed("s2")], second).await.unwrap_err();
/// assert_eq!(refused, AppendError::Conflict { position: Position::new(1) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// [`execute`](Self::execute) does all of that, and again where something came between.
#[derive(Clone)]
pub struct EventStore {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    settings: RwLock<Settings>,
    projections: Arc<Permits>,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    appended: AtomicU64,
    conflicts: AtomicU64,
    refused: AtomicU64,
}

/// What a store has done, and does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// How many projections run, streams of them included.
    pub projections_running: u32,
    /// How many may.
    pub projections_limit: u32,
    /// How many were refused since there were too many.
    pub projections_refused: u64,
    /// How many events were appended through it.
    pub events_appended: u64,
    /// How often a condition did not hold.
    pub append_conflicts: u64,
}

impl EventStore {
    /// A store on an engine, with the [`Settings`] that serve most.
    #[must_use]
    pub fn new(engine: impl Engine) -> Self {
        Self::with_settings(engine, Settings::default()).expect("the default settings work")
    }

    /// A store in memory, for tests of what uses one.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(MemoryEngine::new())
    }

    /// A store on an engine.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub fn with_settings(engine: impl Engine, settings: Settings) -> Result<Self, Invalid> {
        Self::with_engine(Arc::new(engine), settings)
    }

    /// A store on an engine that others have too.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub fn with_engine(engine: Arc<dyn Engine>, settings: Settings) -> Result<Self, Invalid> {
        settings.check()?;
        let projections = Permits::new(settings.max_concurrent_projections).map_err(unworkable)?;
        let (settings, projections) = (RwLock::new(settings), Arc::new(projections));
        let counted = Counted::default();
        Ok(Self { shared: Arc::new(Shared { engine, settings, projections, counted }) })
    }

    /// The engine that it is the front of, for those who bring bounds of their own.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.shared.engine
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        *self.shared.settings.read()
    }

    /// Changes its settings, for all clones, at once. What runs goes on; a lower limit is met when enough of it has ended.
    ///
    /// # Errors
    /// Names the setting that cannot work. Nothing is changed then.
    pub fn change(&self, settings: Settings) -> Result<(), Invalid> {
        settings.check()?;
        let mut current = self.shared.settings.write();
        let limit = settings.max_concurrent_projections;
        self.shared.projections.resize(limit).map_err(unworkable)?;
        *current = settings;
        Ok(())
    }

    /// What it has done, and does.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let Shared { projections, counted, .. } = &*self.shared;
        StoreStats {
            projections_running: projections.in_use(),
            projections_limit: projections.limit(),
            projections_refused: counted.refused.load(Ordering::Relaxed),
            events_appended: counted.appended.load(Ordering::Relaxed),
            append_conflicts: counted.conflicts.load(Ordering::Relaxed),
        }
    }

    /// Appends events whatever there is. All of them or none; answers with the position of the last one.
    ///
    /// # Errors
    /// They may not be stored like this, or the engine does not work.
    pub fn append(
        &self,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> impl Future<Output = Result<Position, AppendError>> + Send {
        self.append_all(events.into_iter().collect(), None)
    }

    /// Appends events if the condition holds. All of them or none; answers with the position of the last one.
    ///
    /// # Cancel safety
    /// Dropped, they may be appended or not; never some of them.
    ///
    /// # Errors
    /// [`AppendError::Conflict`] if and only if an event that matches the condition is there after its position. They may
    /// not be stored like this, or the engine does not work.
    pub fn append_if(
        &self,
        events: impl IntoIterator<Item = NewEvent>,
        condition: AppendCondition,
    ) -> impl Future<Output = Result<Position, AppendError>> + Send {
        self.append_all(events.into_iter().collect(), Some(condition))
    }

    async fn append_all(
        &self,
        events: Vec<NewEvent>,
        condition: Option<AppendCondition>,
    ) -> Result<Position, AppendError> {
        let Settings { max_batch, append_timeout: after, .. } = self.settings();
        let count = events.len();
        if count > max_batch {
            let message = format!("{count} of them: at most {max_batch} go together");
            return Err(Invalid::new("events", message).into());
        }
        let append = Append::new(events, condition)?;
        let appended = timeout(after, self.shared.engine.append(append));
        let appended = appended.await.unwrap_or(Err(AppendError::TimedOut { after }));
        let Counted { appended: events, conflicts, .. } = &self.shared.counted;
        match &appended {
            Ok(_) => events.fetch_add(count as u64, Ordering::Relaxed),
            Err(AppendError::Conflict { .. }) => conflicts.fetch_add(1, Ordering::Relaxed),
            Err(_) => 0,
        };
        appended
    }

    /// Reads events after a position, at most so many. Where to read on is said in the page.
    ///
    /// # Errors
    /// It may not be asked for like this, or the engine does not work.
    pub async fn query(
        &self,
        query: Query,
        after: Position,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let mut read = Read::new(query)?;
        read.after = after;
        let time = self.settings().query_timeout;
        let page = timeout(time, self.read_pages(read, limit.max(1)));
        page.await.unwrap_or(Err(ReadError::TimedOut { after: time }))
    }

    /// Reads a page of events after a position: at most so many, and fewer where they are large. Where to read on is said
    /// in the page.
    ///
    /// # Errors
    /// It may not be asked for like this, or the engine does not work.
    pub async fn page(
        &self,
        query: Query,
        after: Position,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let mut read = Read::new(query)?;
        (read.after, read.limit) = (after, limit.clamp(1, read.limit));
        let time = self.settings().query_timeout;
        let page = timeout(time, self.shared.engine.read(read));
        page.await.unwrap_or(Err(ReadError::TimedOut { after: time }))
    }

    async fn read_pages(&self, mut read: Read, limit: usize) -> Result<Page, ReadError> {
        let most = read.limit;
        let mut all = Page::default();
        loop {
            read.limit = most.min(limit - all.events.len());
            let page = self.shared.engine.read(read.clone()).await?;
            all.events.extend(page.events);
            all.next = page.next;
            match page.next {
                Some(next) if all.events.len() < limit => read.after = next,
                _ => return Ok(all),
            }
        }
    }

    /// Reads all events after a position that are there now, one by one, as they are asked for.
    ///
    /// # Errors
    /// It may not be asked for like this.
    pub fn query_stream(&self, query: Query, after: Position) -> Result<EventStream, Invalid> {
        Ok(self.reader(query, after)?.into_stream())
    }

    /// Reads all events after a position, and those that will come. To go on later, begin after the last one's position.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use futures_util::StreamExt;
    /// use sluicegate_event_store::{EventStore, NewEvent, Position, Query};
    ///
    /// let store = EventStore::in_memory();
    /// let mut tail = store.tail(Query::types(["Paid"]), Position::START)?;
    /// let (paid, appended) = tokio::join!(tail.next(), async {
    ///     store.append([NewEvent::of("Paid").tag("order", 7)]).await
    /// });
    /// assert_eq!(paid.ok_or("it goes on")??.position(), appended?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// It may not be asked for like this.
    pub fn tail(&self, query: Query, after: Position) -> Result<EventStream, Invalid> {
        Ok(self.reader(query, after)?.tailing().into_stream())
    }

    /// The same page by page: [`Reader::tailing`] makes it go on.
    ///
    /// # Errors
    /// It may not be asked for like this.
    pub fn reader(&self, query: Query, after: Position) -> Result<Reader, Invalid> {
        let mut read = Read::new(query)?;
        read.after = after;
        let engine = Arc::clone(&self.shared.engine);
        Ok(Reader::new(engine, read, self.settings().query_timeout))
    }

    /// The position of the last event.
    ///
    /// # Errors
    /// The engine does not work.
    pub async fn head(&self) -> Result<Position, ReadError> {
        let after = self.settings().query_timeout;
        let head = timeout(after, self.shared.engine.head()).await;
        Ok(head.map_err(|_elapsed| ReadError::TimedOut { after })??)
    }
}

impl fmt::Debug for EventStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (settings, stats) = (self.settings(), self.stats());
        f.debug_struct("EventStore").field("settings", &settings).field("stats", &stats).finish()
    }
}

/// What the kernel says of a limit, in the words of the settings.
fn unworkable(invalid: sluicegate_tasks::Invalid) -> Invalid {
    Invalid::new("max_concurrent_projections", invalid.to_string())
}
