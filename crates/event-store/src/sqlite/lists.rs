//! The lists of positions: in the file, and for the last events in memory.

use rusqlite::{CachedStatement, Connection, params};
use sluicegate_tasks::Context;

use super::search::Lists;
use super::statements::SEEK;
use super::tail::View;

pub(crate) struct StoredLists<'a> {
    seek: CachedStatement<'a>,
    view: &'a View,
    /// Looked at now and then: who asked may be gone.
    cx: Option<&'a Context>,
}

impl<'a> StoredLists<'a> {
    /// The lists as a view has them. The connection must not see less than that, so the view comes first.
    pub(crate) fn new(
        connection: &'a Connection,
        view: &'a View,
        cx: Option<&'a Context>,
    ) -> rusqlite::Result<Self> {
        Ok(Self { seek: connection.prepare_cached(SEEK)?, view, cx })
    }
}

impl Lists for StoredLists<'_> {
    type Error = rusqlite::Error;

    fn seek(
        &mut self,
        key: &str,
        from: i64,
        count: usize,
        into: &mut Vec<i64>,
    ) -> Result<(), Self::Error> {
        if self.cx.is_some_and(Context::is_cancelled) {
            return Err(interrupted());
        }
        let filed = self.view.filed.min(self.view.up_to);
        if from <= filed {
            let mut rows = self.seek.query(params![key, from, filed, count])?;
            while let Some(row) = rows.next()? {
                into.push(row.get(0)?);
            }
        }
        self.view.seek(key, from, count, into);
        Ok(())
    }
}

/// Nobody waits for it any more.
pub(crate) fn interrupted() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
    rusqlite::Error::SqliteFailure(code, None)
}
