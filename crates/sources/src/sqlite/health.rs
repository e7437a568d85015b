//! Whether the file can be written: what the last write said, and a write that only asks.

use rusqlite::Connection;
use sluicegate_dispatch::SourceError;

use super::store::Store;
use super::writer::Write;

impl Store {
    /// Why the last write failed, or why the one that is under way has waited for too long; `None` if all is well. It stays until something is written: where nobody
    /// else may come to write, [`check`](Store::check) asks.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.inner.writer.failure()
    }

    /// Writes a page that changes nothing, to the disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub async fn check(&self) -> Result<(), SourceError> {
        self.inner.writer.write(|| Check).await
    }
}

/// Writes the file's version anew, as it is.
struct Check;

impl Write for Check {
    type Answer = ();

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let version: i64 = connection.query_row("PRAGMA user_version", (), |row| row.get(0))?;
        connection.pragma_update(None, "user_version", version)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::Connection;

    use crate::sqlite::{Store, StoreSettings};

    #[tokio::test]
    async fn a_failure_stays_until_something_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        let busy = Some(Duration::from_millis(10));
        let settings = StoreSettings { busy, ..StoreSettings::default() };
        let store = Store::open_with(&path, settings).await.unwrap();
        assert_eq!((store.failure(), store.check().await), (None, Ok(())));
        let wal = || std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
        let before = wal();
        store.check().await.unwrap();
        assert!(wal() > before, "it writes");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let failed = store.check().await.unwrap_err();
        let failure = store.failure().expect("it failed");
        assert!(failed.cause.starts_with(&failure), "{failed} is not {failure}");
        other.execute_batch("ROLLBACK").unwrap();
        assert!(store.failure().is_some(), "nobody has written yet");
        store.check().await.unwrap();
        assert_eq!(store.failure(), None);
    }
}
