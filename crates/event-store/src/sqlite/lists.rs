//! The lists of positions: in the file, and for the last events in memory.

use rusqlite::{CachedStatement, Connection, params};
use sluicegate_tasks::Context;

use super::search::Lists;
use super::statements::SEEK;
use super::tail::View;

/// How many positions are read in about the time that it takes to look for the first.
const BLOCK: usize = 32;

pub(crate) struct StoredLists<'a> {
    seek: CachedStatement<'a>,
    view: &'a View,
    patience: Patience<'a>,
}

/// How long lists are sought in. Then it is [`interrupted`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience<'a> {
    /// For so many steps: a look into a list, and a block of what is found there.
    Steps(usize),
    /// Until nobody waits for it any more.
    While(&'a Context),
}

impl<'a> StoredLists<'a> {
    /// The lists as a view has them. The connection must not see less than that, so the view comes first.
    pub(crate) fn new(
        connection: &'a Connection,
        view: &'a View,
        patience: Patience<'a>,
    ) -> rusqlite::Result<Self> {
        Ok(Self { seek: connection.prepare_cached(SEEK)?, view, patience })
    }

    /// Whether all its steps are done.
    pub(crate) const fn is_out_of_steps(&self) -> bool {
        matches!(self.patience, Patience::Steps(0))
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
        match &mut self.patience {
            Patience::Steps(0) => return Err(interrupted()),
            Patience::Steps(left) => *left = left.saturating_sub(1 + count / BLOCK),
            Patience::While(cx) if cx.is_cancelled() => return Err(interrupted()),
            Patience::While(_) => {}
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

/// Nobody waits for it any more, or not now.
pub(crate) fn interrupted() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
    rusqlite::Error::SqliteFailure(code, None)
}
