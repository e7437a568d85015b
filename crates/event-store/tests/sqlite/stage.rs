//! What the tests of the embedded engine are written in.

use std::future::Future;
use std::path::PathBuf;

use futures_util::future::join_all;
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Engine, Event, NewEvent, Position, Query, Read,
    SqliteEngine, SqliteSettings,
};
use sluicegate_tasks::{Context, TaskGroup};
use tempfile::TempDir;

/// A file of events.
pub(crate) struct Stage {
    pub(crate) engine: SqliteEngine,
    pub(crate) folder: TempDir,
}

pub(crate) fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("events.db")
}

impl Stage {
    pub(crate) async fn open() -> Self {
        Self::open_with(SqliteSettings::default()).await
    }

    pub(crate) async fn open_with(settings: SqliteSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = SqliteEngine::open_with(file(&folder), settings).await.unwrap();
        Self { engine, folder }
    }

    /// Drops it without a word and opens the file again.
    pub(crate) async fn again(self) -> Self {
        let Self { engine, folder } = self;
        drop(engine);
        let engine = SqliteEngine::open(file(&folder)).await.unwrap();
        Self { engine, folder }
    }

    pub(crate) async fn append(&self, events: Vec<NewEvent>) -> Result<Position, AppendError> {
        append(&self.engine, events, None).await
    }

    pub(crate) async fn all(&self, query: Query) -> Vec<Event> {
        all(&self.engine, query).await
    }
}

/// An event about something.
pub(crate) fn about(key: &str, value: impl std::fmt::Display) -> NewEvent {
    NewEvent::of("Said").tag(key, value)
}

pub(crate) async fn append(
    engine: &SqliteEngine,
    events: Vec<NewEvent>,
    condition: Option<AppendCondition>,
) -> Result<Position, AppendError> {
    engine.append(Append::new(events, condition).unwrap()).await
}

/// Everything that matches, page after page.
pub(crate) async fn all(engine: &SqliteEngine, query: Query) -> Vec<Event> {
    let (mut read, mut events) = (Read::new(query).unwrap(), Vec::new());
    loop {
        let page = engine.read(read.clone()).await.unwrap();
        events.extend(page.events);
        match page.next {
            Some(next) => read.after = next,
            None => return events,
        }
    }
}

/// Has everything done at once, each on a task of its own.
pub(crate) async fn at_once<T: Send + 'static, F>(work: impl IntoIterator<Item = F>) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let group = TaskGroup::new("at-once", 1_000).unwrap();
    let tasks = work.into_iter().map(|work| group.try_submit(Context::new(), |_| work).unwrap());
    let ended = join_all(tasks.collect::<Vec<_>>()).await;
    ended.into_iter().map(Result::unwrap).collect()
}
