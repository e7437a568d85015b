//! What the checks are written in: appending and reading, with their expectations.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Engine, Event, NewEvent, Page, Position, Query, Read,
};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::time::timeout;

use super::Subject;

/// How long something that must happen may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A store under test.
pub(super) struct Stage {
    pub(super) subject: Box<dyn Subject>,
    pub(super) engine: Arc<dyn Engine>,
}

/// An event with tags that are written `key:value`, whose data are a number to know it by.
#[must_use]
pub fn event(event_type: &str, tags: &[&str], number: u64) -> NewEvent {
    NewEvent::of(event_type).with_tags(tags.iter().copied()).json(&number)
}

/// The numbers of events, in their order.
pub(super) fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.json().expect("its data are a number")).collect()
}

pub(super) fn read_of(query: Query) -> Read {
    Read::new(query).expect("it may be asked for")
}

impl Stage {
    pub(super) fn new(subject: Box<dyn Subject>) -> Self {
        let engine = subject.engine();
        Self { subject, engine }
    }

    pub(super) async fn append(&self, events: Vec<NewEvent>) -> Position {
        let append = Append::new(events, None).expect("they may be stored");
        self.engine.append(append).await.expect("they are appended")
    }

    /// The position of the last event, or of one that matches the condition.
    pub(super) async fn append_if(
        &self,
        events: Vec<NewEvent>,
        condition: AppendCondition,
    ) -> Result<Position, Position> {
        append_if(&*self.engine, events, condition).await
    }

    pub(super) async fn page(&self, read: Read) -> Page {
        self.engine.read(read).await.expect("it can be read")
    }

    /// All events, page after page.
    pub(super) async fn all(&self, query: Query) -> Vec<Event> {
        self.pages(read_of(query)).await.into_iter().flat_map(|page| page.events).collect()
    }

    /// Page after page, as far as there are any.
    pub(super) async fn pages(&self, mut read: Read) -> Vec<Page> {
        let mut pages = Vec::new();
        loop {
            let page = self.page(read.clone()).await;
            let next = page.next;
            pages.push(page);
            let Some(next) = next else { return pages };
            assert!(next > read.after, "it gets on: {next} after {}", read.after);
            read.after = next;
        }
    }

    pub(super) async fn numbers(&self, query: Query) -> Vec<u64> {
        numbers(&self.all(query).await)
    }

    pub(super) async fn head(&self) -> Position {
        self.engine.head().await.expect("it has a head")
    }

    /// Engines on the same events: as many as there can be, and no more than so many.
    pub(super) async fn engines(&self, most: usize) -> Vec<Arc<dyn Engine>> {
        let mut engines = vec![Arc::clone(&self.engine)];
        while engines.len() < most
            && let Some(another) = self.subject.another().await
        {
            engines.push(another);
        }
        engines
    }
}

pub(super) async fn append_if(
    engine: &dyn Engine,
    events: Vec<NewEvent>,
    condition: AppendCondition,
) -> Result<Position, Position> {
    let append = Append::new(events, Some(condition)).expect("they may be stored");
    match engine.append(append).await {
        Ok(position) => Ok(position),
        Err(AppendError::Conflict { position }) => Err(position),
        Err(error) => panic!("neither appended nor refused: {error}"),
    }
}

/// Runs all of them at once, each on a task of its own, and answers with what they come to, in their order.
pub(super) async fn at_once<T: Send + 'static>(
    works: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let works: Vec<_> = works.into_iter().collect();
    let limit = u32::try_from(works.len().max(1)).expect("they are few");
    let group = TaskGroup::new("racers", limit).expect("there is one");
    let cx = Context::new().with_timeout(PATIENCE);
    let start = |work| group.try_submit(&cx, |cx| async move { cx.until_interrupted(work).await });
    let tasks: Vec<_> = works.into_iter().map(start).collect();
    let mut ends = Vec::new();
    for task in tasks {
        let end = task.expect("there is room for each").await;
        ends.push(end.expect("it ends well").expect("it ends in time"));
    }
    ends
}

/// What must happen soon.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_elapsed) => panic!("nothing for {PATIENCE:?}: {what}"),
    }
}
