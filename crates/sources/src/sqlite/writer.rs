//! The file's one writer, as the queue uses it: what keeps it from writing is the source's error.

use std::sync::Arc;

use rusqlite::Connection;
use sluicegate_dispatch::SourceError;
use sluicegate_sqlite_file as file;
use std::time::Duration;

pub(crate) use file::{ROW_BYTES, Write};

#[derive(Clone, Debug)]
pub(crate) struct Writer {
    shared: Arc<file::Writer>,
}

impl Writer {
    /// A writer whose requests wait at most this long for whoever else holds the file.
    pub(crate) fn new(connection: Connection, patience: Duration) -> Self {
        Self { shared: file::Writer::new(connection, patience) }
    }

    /// Has it written. Dropped while it waits for its turn, nothing happens; dropped after that, it is
    /// written all the same.
    pub(crate) async fn write<W: Write>(
        &self,
        make: impl FnOnce() -> W,
    ) -> Result<W::Answer, SourceError> {
        self.shared.write(make).await.map_err(SourceError::new)
    }

    /// Why the last write failed, or the one that is under way will if nothing changes.
    pub(crate) fn failure(&self) -> Option<String> {
        self.shared.failure()
    }

    /// The same one, for whoever else keeps something in the file.
    pub(crate) fn shared(&self) -> &Arc<file::Writer> {
        &self.shared
    }
}
