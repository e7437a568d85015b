//! What is ahead of a parked message.

use rusqlite::OptionalExtension;
use sluicegate_dispatch::SourceError;

use super::parked_index::first_of;
use super::store::Store;

/// What is ahead of a parked message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outlook {
    /// Whether it goes back by itself once those of its group before it are over.
    pub follows: bool,
    /// The first parked message of its group, if that is another and must go before it.
    pub head: Option<ParkedHead>,
}

/// The first parked message of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedHead {
    /// What it is replayed by.
    pub id: String,
    /// The message's own id.
    pub message_id: Option<String>,
}

impl Store {
    /// What is ahead of a parked message.
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn parked_outlook(&self, id: &str) -> Result<Outlook, SourceError> {
        let Ok(number) = id.parse::<i64>() else { return Ok(Outlook::default()) };
        let read = self.inner.readers.read(move |connection| {
            let mut find = connection.prepare_cached(
                "SELECT follows, queue, published, grp FROM parked WHERE number = ?1 AND holds",
            )?;
            let key = |row: &rusqlite::Row<'_>| {
                let follows: bool = row.get(0)?;
                Ok((follows, (row.get(1)?, row.get(2)?, row.get(3)?)))
            };
            let Some((follows, key)) = find.query_row([number], key).optional()? else {
                return Ok(Outlook::default());
            };
            let first = first_of(connection, &key)?.filter(|first| first.number < number);
            let mut named =
                connection.prepare_cached("SELECT message_id FROM parked WHERE number = ?1")?;
            let head = |first: super::parked_index::First| {
                let message_id = named.query_row([first.number], |row| row.get(0)).optional()?;
                Ok(ParkedHead { id: first.number.to_string(), message_id: message_id.flatten() })
            };
            let head: Option<rusqlite::Result<ParkedHead>> = first.map(head);
            Ok(Outlook { follows, head: head.transpose()? })
        });
        read.await
    }
}
