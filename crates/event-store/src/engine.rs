//! The seam: where events are.
//!
//! What holds for every engine, and is tested by the conformance suite of `testkit`:
//!
//! 1. **Exact.** [`append`](Engine::append) refuses if and only if an event that matches the condition is there after its
//!    position: under any concurrency, against plain appends, from several processes where the engine serves several.
//! 2. **All or nothing**, and durable when it has answered.
//! 3. **No reader skips.** Once an event at a position can be read, no event appears at or before it. So reading page after
//!    page, each from where the last one ended, sees every event once, in order.
//! 4. A page never looks complete that is not: an error is an error.

use std::pin::Pin;

use crate::{
    AppendCondition, AppendError, Cursors, EngineError, Event, Invalid, NewEvent, Position, Query,
    ReadError, check,
};

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where events are.
pub trait Engine: Send + Sync + 'static {
    /// Appends events, all or none, and answers with the position of the last one. The others stand before it, in their
    /// order.
    ///
    /// # Cancel safety
    /// Dropped, they may be appended or not; never some of them.
    ///
    /// # Errors
    /// [`AppendError::Conflict`] if the condition does not hold, [`AppendError::Failed`] if the engine does not work.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Position, AppendError>>;

    /// Reads a page. It is never empty while there is an event to read, and may be shorter than asked for.
    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>>;

    /// The position of the last event that can be read.
    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>>;

    /// Waits until there may be an event after the position, or for a while: a hint, not a promise.
    fn changed(&self, after: Position) -> BoxFuture<'_, ()>;

    /// Where readers keep how far they are, if it keeps that.
    fn cursors(&self) -> Option<&dyn Cursors> {
        None
    }
}

/// Events to append, checked.
#[derive(Clone, Debug)]
pub struct Append {
    events: Vec<NewEvent>,
    condition: Option<AppendCondition>,
}

impl Append {
    /// Checks events and the condition, if there is one.
    ///
    /// # Errors
    /// What may not be, by its field.
    pub fn new(
        mut events: Vec<NewEvent>,
        mut condition: Option<AppendCondition>,
    ) -> Result<Self, Invalid> {
        check::events(&mut events)?;
        condition.as_mut().map_or(Ok(()), check::condition)?;
        Ok(Self { events, condition })
    }

    /// The events: valid, their tags in order, each once.
    #[must_use]
    pub fn events(&self) -> &[NewEvent] {
        &self.events
    }

    /// Under which condition.
    #[must_use]
    pub fn condition(&self) -> Option<&AppendCondition> {
        self.condition.as_ref()
    }
}

/// A page to read, checked.
#[derive(Clone, Debug)]
pub struct Read {
    query: Query,
    /// After which position.
    pub after: Position,
    /// Up to which position, and that one too; `None` for as far as there are events.
    pub up_to: Option<Position>,
    /// At most how many events; at least one.
    pub limit: usize,
}

impl Read {
    /// How many bytes of events a page has, give or take its last event.
    pub const PAGE_BYTES: usize = 4 << 20;

    /// Checks a query. The page begins at the start, and has at most a thousand events.
    ///
    /// # Errors
    /// What may not be asked for, by its field.
    pub fn new(mut query: Query) -> Result<Self, Invalid> {
        check::query("", &mut query)?;
        Ok(Self { query, after: Position::START, up_to: None, limit: 1_000 })
    }

    /// What is asked for: the names of each item in order, each once.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.query
    }
}

/// Events that were read together.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In order.
    pub events: Vec<Event>,
    /// Where to read on: more may match, at once. `None` if nothing that matches is left for now.
    pub next: Option<Position>,
}
