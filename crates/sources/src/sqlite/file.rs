//! Opening the state file with the queue's tables in it.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
pub(crate) use sluicegate_sqlite_file::{BUSY, Lock, OpenError, reader};

use super::schema;

/// A connection that writes, with the tables as this version knows them.
pub(crate) fn writer(
    path: &Path,
    max_pages: Option<u32>,
    busy: Option<Duration>,
    serves: bool,
) -> Result<Connection, OpenError> {
    let inspect = |connection: &Connection| schema::inspect(connection).map(drop);
    let mut connection = sluicegate_sqlite_file::writer(path, max_pages, inspect)?;
    migrate(path, &mut connection, serves)?;
    connection.busy_timeout(busy.unwrap_or(BUSY))?;
    Ok(connection)
}

/// Brings the tables up to date, unless another process serves them as they are.
fn migrate(path: &Path, connection: &mut Connection, serves: bool) -> Result<(), OpenError> {
    let (found, known) = (schema::inspect(connection)?, schema::KNOWN);
    let is_old = (1..known).contains(&found);
    let _lock = match (is_old && !serves).then(|| Lock::take(path)).transpose() {
        Err(OpenError::Served { .. }) => return Err(OpenError::Older { found, known }),
        lock => lock?,
    };
    schema::migrate(connection)
}
