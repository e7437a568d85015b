//! Reading: on which threads and connections.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use sluicegate_sqlite_file as file;
use sluicegate_tasks::{Context, Permits, TaskGroup};

use crate::EngineError;

/// How many read at once.
const READERS: u32 = 4;
/// How many more may wait to read.
const WAITING: u32 = 100_000;

/// The connections that read, and the threads they are used on.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    group: TaskGroup,
    callers: Permits,
    cx: Context,
}

impl Readers {
    pub(crate) fn new(path: PathBuf) -> Arc<Self> {
        let group = TaskGroup::new("event-readers", READERS);
        Arc::new(Self {
            path,
            idle: Mutex::default(),
            group: group.expect("the name and the limit are constants"),
            callers: Permits::new(WAITING).expect("it is not zero"),
            cx: Context::new(),
        })
    }

    /// Reads on a thread of its own. Dropped before it has begun, it is not begun.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection, &Context) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let _caller = self.callers.try_acquire().map_err(EngineError::new)?;
        let cx = self.cx.child();
        let _given_up = cx.cancel_on_drop();
        let own = Arc::clone(self);
        let task = self.group.submit_blocking(&cx, move |cx| own.read_here(&cx, query));
        task.await.map_err(EngineError::new)?.await.map_err(EngineError::new)?
    }

    /// Reads on this thread. After an error the connection is closed: a new one may work.
    fn read_here<T>(
        &self,
        cx: &Context,
        query: impl FnOnce(&Connection, &Context) -> rusqlite::Result<T>,
    ) -> Result<T, EngineError> {
        cx.check().map_err(EngineError::new)?;
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => file::reader(&self.path).map_err(EngineError::new)?,
        };
        let answer = query(&connection, cx);
        let answer = answer.map_err(|error| EngineError::new(file::cause(&error)))?;
        self.idle.lock().push(connection);
        Ok(answer)
    }
}
