//! Reading ahead, and reading again what was not kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_dispatch::SourceError;
use sluicegate_event_store::{Event, Page, Position, Query, Read, ReadError};

use super::shared::{PAGE, Shared};

/// Events that are so near to each other are read together, and what stands between them for nothing.
const NEAR: u64 = 64;

impl Shared {
    /// Reads the next page.
    pub(crate) async fn read_on(&self) -> Result<(), SourceError> {
        let _one = self.reading.lock().await;
        let from = self.shelf.lock().read_to();
        let limit = self.room().min(PAGE);
        if limit == 0 || !self.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        let head = self.engine.head().await;
        let head = self.noted(head.map_err(ReadError::from))?.get();
        if head <= from {
            self.is_behind.store(false, Ordering::Release);
            return Ok(());
        }
        let mut read = self.read.clone();
        (read.after, read.limit) = (Position::new(from), limit);
        read.up_to = Some(Position::new(head));
        let Page { events, next } = self.noted(self.engine.read(read).await)?;
        let read_to = next.map_or(head, Position::get);
        let events = self.with_groups(events);
        self.shelf.lock().read_on(events, from, read_to);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Reads the events at some positions, and hands them to the shelf.
    pub(crate) async fn read_again(&self, positions: &[u64]) -> Result<(), SourceError> {
        let _one = self.reading.lock().await;
        let events = self.events_at(positions).await?;
        let events = self.with_groups(events);
        self.shelf.lock().read_again(positions, events, Self::clock());
        self.changed.notify_waiters();
        Ok(())
    }

    /// The events at some positions, which are in order.
    pub(crate) async fn events_at(&self, positions: &[u64]) -> Result<Vec<Event>, SourceError> {
        let mut found = Vec::new();
        for near in positions.chunk_by(|one, next| next - one <= NEAR) {
            let (Some(&first), Some(&last)) = (near.first(), near.last()) else { continue };
            let mut read = self.noted(Read::new(Query::all()).map_err(ReadError::from))?;
            (read.after, read.limit) = (Position::new(first - 1), PAGE);
            read.up_to = Some(Position::new(last));
            loop {
                let page = self.noted(self.engine.read(read.clone()).await)?;
                let is_asked = |event: &Event| near.binary_search(&event.position().get()).is_ok();
                found.extend(page.events.into_iter().filter(is_asked));
                match page.next {
                    Some(next) => read.after = next,
                    None => break,
                }
            }
        }
        Ok(found)
    }

    fn with_groups(&self, events: Vec<Event>) -> Vec<(Event, Option<Arc<str>>)> {
        let with_group = |event: Event| {
            let group = self.about.group(&event);
            (event, group)
        };
        events.into_iter().map(with_group).collect()
    }

    /// Remembers what became of a read.
    fn noted<T>(&self, read: Result<T, ReadError>) -> Result<T, SourceError> {
        let failure = read.as_ref().err().map(ToString::to_string);
        self.unread.lock().clone_from(&failure);
        read.map_err(SourceError::new)
    }
}
