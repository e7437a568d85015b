//! How far readers have come: a row for each of them, written with whatever else is.

use rusqlite::Connection;
use sluicegate_sqlite_file::{ROW_BYTES, Write, WriteError};

use super::SqliteEngine;
use super::statements::{STORE_CURSOR, TAKE_CURSOR};
use crate::{BoxFuture, Cursor, Cursors, EngineError};

struct Take {
    name: String,
}

struct Store {
    name: String,
    turn: i64,
    state: String,
}

impl Write for Take {
    type Answer = (i64, Option<String>);

    fn weight(&self) -> usize {
        1
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer> {
        let mut take = connection.prepare_cached(TAKE_CURSOR)?;
        take.query_one([&self.name], |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

impl Write for Store {
    type Answer = bool;

    fn weight(&self) -> usize {
        1 + self.state.len() / ROW_BYTES
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        let mut store = connection.prepare_cached(STORE_CURSOR)?;
        Ok(store.execute((&self.name, self.turn, &self.state))? == 1)
    }
}

impl Cursors for SqliteEngine {
    fn take<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Cursor, EngineError>> {
        Box::pin(async {
            let make = || Take { name: name.to_owned() };
            let (turn, state) = self.file.writer().write(make).await.map_err(failed)?;
            Ok(Cursor { turn: turn.unsigned_abs(), state })
        })
    }

    fn store<'a>(
        &'a self,
        name: &'a str,
        turn: u64,
        state: String,
    ) -> BoxFuture<'a, Result<bool, EngineError>> {
        Box::pin(async move {
            let turn = i64::try_from(turn).unwrap_or(i64::MAX);
            let make = || Store { name: name.to_owned(), turn, state };
            self.file.writer().write(make).await.map_err(failed)
        })
    }
}

fn failed(error: WriteError) -> EngineError {
    EngineError { cause: error.cause }
}
