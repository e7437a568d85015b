//! The lists of positions, as they lie in the file.

use rusqlite::{CachedStatement, Connection, params};
use sluicegate_tasks::Context;

use super::search::Lists;
use super::statements::SEEK;

pub(crate) struct StoredLists<'a> {
    seek: CachedStatement<'a>,
    /// Looked at now and then: who asked may be gone.
    cx: Option<&'a Context>,
}

impl<'a> StoredLists<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        cx: Option<&'a Context>,
    ) -> rusqlite::Result<Self> {
        Ok(Self { seek: connection.prepare_cached(SEEK)?, cx })
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
        let mut rows = self.seek.query(params![key, from, count])?;
        while let Some(row) = rows.next()? {
            into.push(row.get(0)?);
        }
        Ok(())
    }
}

/// Nobody waits for it any more.
pub(crate) fn interrupted() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
    rusqlite::Error::SqliteFailure(code, None)
}
