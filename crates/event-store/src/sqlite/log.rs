//! What is kept in memory beside a file of events: once, however many engines use it.

use rusqlite::{Connection, OptionalExtension};
use sluicegate_sqlite_file::Write;

use super::head::Head;
use super::schema::{self, Newer};
use super::statements::FILED;
use super::tail::Tail;

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) tail: Tail,
    pub(crate) head: Head,
}

/// Brings the tables up to date, and reads what is kept in memory beside them.
pub(crate) struct Open;

impl Write for Open {
    type Answer = Result<Log, Newer>;

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer> {
        if let Err(newer) = schema::migrate(connection)? {
            return Ok(Err(newer));
        }
        let filed = connection.query_row(FILED, (), |row| row.get(0)).optional()?;
        let tail = Tail::load(connection, filed.unwrap_or(0))?;
        let head = Head::new(tail.committed());
        Ok(Ok(Log { tail, head }))
    }
}
