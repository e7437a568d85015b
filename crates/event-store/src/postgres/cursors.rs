//! How far readers have come: a row for each of them.

use sluicegate_postgres_link::Broken;

use super::link::Link;
use super::schema::Names;
use crate::{BoxFuture, Cursor, Cursors, EngineError};

/// The table, over connections of its own: a cursor is stored while all others read.
#[derive(Debug)]
pub(super) struct CursorTable {
    link: Link,
    take: String,
    store: String,
}

impl CursorTable {
    pub(super) fn new(link: Link, names: &Names) -> Self {
        Self {
            link,
            take: names.write(
                "INSERT INTO {s}.event_cursors AS c (name, turn, at) VALUES ($1, 1, now()) \
                 ON CONFLICT (name) DO UPDATE SET turn = c.turn + 1, at = now() \
                 RETURNING turn, state",
            ),
            store: names.write(
                "UPDATE {s}.event_cursors SET state = $3, at = now() \
                 WHERE name = $1 AND turn = $2 RETURNING turn",
            ),
        }
    }

    async fn take_over(&self, name: &str) -> Result<Cursor, Broken> {
        // Sent twice, because a connection had ended, it is taken twice, by us.
        let rows = self.link.rows(&self.take, &[&name]).await?;
        let gone = || Broken::Other("the cursor was not answered".to_owned());
        let row = rows.first().ok_or_else(gone)?;
        let turn: i64 = row.try_get(0)?;
        let turn = u64::try_from(turn).map_err(|_| Broken::Other(format!("{turn} is no turn")))?;
        Ok(Cursor { turn, state: row.try_get(1)? })
    }
}

impl Cursors for CursorTable {
    fn take<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Cursor, EngineError>> {
        Box::pin(async move { Ok(self.take_over(name).await?) })
    }

    fn store<'a>(
        &'a self,
        name: &'a str,
        turn: u64,
        state: String,
    ) -> BoxFuture<'a, Result<bool, EngineError>> {
        Box::pin(async move {
            let turn = i64::try_from(turn).unwrap_or(i64::MAX);
            let rows = self.link.rows(&self.store, &[&name, &turn, &state]).await?;
            Ok(!rows.is_empty())
        })
    }
}
