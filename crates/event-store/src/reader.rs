//! Reading page after page: up to the head that was there at the start, or on and on.
//!
//! `docs/rules.md#events-4`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::time::timeout;

use crate::{Engine, Event, Position, Read, ReadError};

/// Events, one by one. It ends with an error where there was one; without, all were there.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Event, ReadError>> + Send>>;

/// Reads events page by page.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_event_store::{EventStore, MemoryEngine, NewEvent, Position, Query};
///
/// let store = EventStore::new(MemoryEngine::new());
/// store.append([NewEvent::of("A").tag("k", "v"), NewEvent::of("B").tag("k", "v")]).await?;
/// let mut reader = store.reader(Query::types(["A"]), Position::START)?;
/// let mut count = 0;
/// while let Some(events) = reader.next_page().await? {
///     count += events.len();
/// }
/// assert_eq!((count, reader.position()), (1, Position::new(2))); // nothing is left up to there
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Reader {
    engine: Arc<dyn Engine>,
    read: Read,
    page_timeout: Duration,
    goes_on: bool,
    ended: bool,
}

impl Reader {
    pub(crate) fn new(engine: Arc<dyn Engine>, read: Read, page_timeout: Duration) -> Self {
        Self { engine, read, page_timeout, goes_on: false, ended: false }
    }

    /// The same, and where there is no event left it waits for one.
    #[must_use]
    pub fn tailing(mut self) -> Self {
        self.goes_on = true;
        self
    }

    /// Pages of at most so many events; of a thousand if it is not said.
    #[must_use]
    pub fn pages_of(mut self, events: usize) -> Self {
        self.read.limit = events.max(1);
        self
    }

    /// How far it has read: nothing that it looks for and that it has not given out stands at or before it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.read.after
    }

    /// The next events, at least one; `None` at the end.
    ///
    /// # Cancel safety
    /// Dropped, it has given out nothing: the next call brings the same events.
    ///
    /// # Errors
    /// The page could not be read. The next call tries again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<Event>>, ReadError> {
        while !self.ended {
            let Some(up_to) = self.read.up_to else {
                self.find_end().await?;
                continue;
            };
            let page = self.within(self.engine.read(self.read.clone())).await??;
            match page.next {
                Some(next) => self.read.after = next,
                // All up to there was read, so it goes on behind it, however far back the last match was.
                None => self.reached(up_to),
            }
            if !page.events.is_empty() {
                return Ok(Some(page.events));
            }
        }
        Ok(None)
    }

    /// Finds out how far there are events, and waits for some if need be.
    async fn find_end(&mut self) -> Result<(), ReadError> {
        let after = self.read.after;
        let head = self.within(self.engine.head()).await?.map_err(ReadError::from)?;
        if head > after {
            self.read.up_to = Some(head);
        } else if self.goes_on {
            self.engine.changed(after).await;
        } else {
            self.ended = true;
        }
        Ok(())
    }

    fn reached(&mut self, up_to: Position) {
        self.read.after = up_to;
        self.read.up_to = None;
        self.ended = !self.goes_on;
    }

    async fn within<T>(&self, call: impl Future<Output = T>) -> Result<T, ReadError> {
        let after = self.page_timeout;
        timeout(after, call).await.map_err(|_elapsed| ReadError::TimedOut { after })
    }

    /// Its events one by one. An error is the last of them.
    #[must_use]
    pub fn into_stream(self) -> EventStream {
        let pages = stream::unfold(Some(self), |reader| async {
            let mut reader = reader?;
            match reader.next_page().await {
                Ok(events) => Some((Ok(events?), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        });
        let one_by_one = |page: Result<Vec<Event>, ReadError>| {
            let (events, error) = match page {
                Ok(events) => (events, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            stream::iter(events.into_iter().map(Ok).chain(error))
        };
        Box::pin(pages.flat_map(one_by_one))
    }
}
