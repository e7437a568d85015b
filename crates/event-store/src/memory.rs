//! An engine in memory: a list under a lock, checked by [`Query::matches`](crate::Query::matches). It is what the tests of
//! a service run on, and what the other engines are compared with, so it is plain before it is fast.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::{
    Append, AppendError, BoxFuture, Cursor, Cursors, Engine, EngineError, Event, Page, Position,
    Read, ReadError,
};

/// Events in memory. They are gone with it. Clones are the same.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_event_store::{EventStore, MemoryEngine, NewEvent, Position, Query};
///
/// let store = EventStore::new(MemoryEngine::new());
/// store.append([NewEvent::of("CourseDefined").tag("course", "c1")]).await?;
/// let page = store.query(Query::all(), Position::START, 10).await?;
/// assert_eq!(page.events[0].tag("course"), Some("c1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryEngine {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The event at index n has position n + 1.
    log: RwLock<Vec<Event>>,
    /// The last position; changed after the log, so whoever hears of it can read the event.
    head: watch::Sender<u64>,
    cursors: Mutex<HashMap<String, Cursor>>,
}

impl MemoryEngine {
    /// One without events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn append_now(&self, append: &Append) -> Result<Position, AppendError> {
        let time = now_ms();
        let mut log = self.shared.log.write();
        if let Some(condition) = append.condition() {
            let since = since(&log, condition.after);
            let conflict = since.iter().find(|event| condition.fail_if_events_match.matches(event));
            if let Some(event) = conflict {
                return Err(AppendError::Conflict { position: event.position() });
            }
        }
        for event in append.events() {
            let data =
                event.data().map_err(|error| AppendError::Failed(EngineError::new(error)))?;
            let position = Position::new(log.len() as u64 + 1);
            let tags = event.tags().iter().map(String::as_str);
            log.push(Event::new(position, time, event.event_type(), tags, data));
        }
        let head = log.len() as u64;
        // Under the lock, so that the head never goes back.
        self.shared.head.send_replace(head);
        Ok(Position::new(head))
    }

    fn read_now(&self, read: &Read) -> Page {
        let log = self.shared.log.read();
        let within = |event: &&Event| read.up_to.is_none_or(|last| event.position() <= last);
        let mut found = since(&log, read.after)
            .iter()
            .take_while(within)
            .filter(|event| read.query().matches(event));
        let (mut page, mut bytes) = (Page::default(), 0);
        while page.events.len() < read.limit.max(1) && bytes < Read::PAGE_BYTES {
            let Some(event) = found.next() else { return page };
            bytes += event.bytes();
            page.events.push(event.clone());
        }
        page.next = found.next().and(page.events.last()).map(Event::position);
        page
    }
}

/// The events after the position.
fn since(log: &[Event], after: Position) -> &[Event] {
    let from = usize::try_from(after.get()).unwrap_or(usize::MAX);
    log.get(from..).unwrap_or_default()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Engine for MemoryEngine {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Position, AppendError>> {
        Box::pin(async move { self.append_now(&append) })
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move { Ok(self.read_now(&read)) })
    }

    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
        Box::pin(async { Ok(Position::new(*self.shared.head.borrow())) })
    }

    fn changed(&self, after: Position) -> BoxFuture<'_, ()> {
        let mut head = self.shared.head.subscribe();
        // Nobody can close it while this engine is there.
        Box::pin(async move { drop(head.wait_for(|head| *head > after.get()).await) })
    }

    fn cursors(&self) -> Option<&dyn Cursors> {
        Some(self)
    }
}

impl Cursors for MemoryEngine {
    fn take<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Cursor, EngineError>> {
        Box::pin(async move {
            let mut cursors = self.shared.cursors.lock();
            let cursor = cursors.entry(name.to_owned()).or_default();
            cursor.turn += 1;
            Ok(cursor.clone())
        })
    }

    fn store<'a>(
        &'a self,
        name: &'a str,
        turn: u64,
        state: String,
    ) -> BoxFuture<'a, Result<bool, EngineError>> {
        Box::pin(async move {
            let mut cursors = self.shared.cursors.lock();
            let cursor = cursors.get_mut(name).filter(|cursor| cursor.turn == turn);
            Ok(cursor.map(|cursor| cursor.state = Some(state)).is_some())
        })
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").field("head", &*self.shared.head.borrow()).finish()
    }
}
