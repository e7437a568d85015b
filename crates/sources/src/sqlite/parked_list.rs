//! Looking at parked messages: one, a page of them, those that have something in common.

use std::net::Ipv6Addr;
use std::sync::Arc;

use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use serde_json::Value;
use sluicegate_dispatch::{DEFAULT_GROUP, LastError, ParkedCode, SourceError};

use super::last_error;
use super::parked::host_of;
use super::store::Store;
use crate::wire;

/// How many items a page has at most.
const MAX_PAGE: usize = 1000;
/// How many bytes of bodies are read at once, if the last one may go beyond: so many of them that a page of large
/// messages does not take all memory.
pub(super) const MAX_BYTES: usize = 8 * 1024 * 1024;
/// How far the place of a message in its key is counted.
const MAX_PLACE: u32 = 1000;

/// A message that was put aside, as it is shown: without its token.
#[derive(Clone, Debug, PartialEq)]
pub struct ParkedItem {
    /// What it is replayed or discarded by.
    pub id: String,
    /// The message's own id, if it is a message.
    pub message_id: Option<Arc<str>>,
    /// The queue it came from.
    pub queue: String,
    /// The pool it was in, if it came that far.
    pub pool: Option<String>,
    /// Its group, if it has one.
    pub group: Option<Arc<str>>,
    /// Why it is here, as a word.
    pub code: String,
    /// Why it is here, in words.
    pub reason: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it came here, in milliseconds since 1970.
    pub parked_at: i64,
    /// Which one it is of those that hold its key, from 1 and counted up to 1,000; `None` if it holds none.
    pub place: Option<u32>,
    /// How its last attempt failed.
    pub last_error: Option<LastError>,
    /// The message, or the text of what is none.
    pub message: Value,
}

/// Some of the messages that were put aside, in the order in which they were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParkedPage {
    /// They.
    pub items: Vec<ParkedItem>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// What parked messages have in common. What is not said does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedFilter {
    /// The queue that they came from.
    pub queue: Option<String>,
    /// The pool that they were in.
    pub pool: Option<String>,
    /// Their group.
    pub group: Option<String>,
    /// Why they are here, as a word.
    pub code: Option<String>,
    /// The host of their target, with or without its port.
    pub host: Option<String>,
    /// They came here at this time or later, in milliseconds since 1970.
    pub after: Option<i64>,
    /// They came here before this time.
    pub before: Option<i64>,
    /// They have this number or an earlier one.
    pub last: Option<i64>,
}

/// A parked message as it is kept, with its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRecord {
    /// Its number in the list.
    pub number: i64,
    /// The queue it came from.
    pub queue: String,
    /// What that called it.
    pub broker_id: String,
    /// The pool it was in, if it came that far.
    pub pool: Option<String>,
    /// Why it is here, as a word.
    pub code: String,
    /// Why it is here, in words.
    pub reason: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it came here, in milliseconds since 1970.
    pub parked_at: i64,
    /// Whether its key is parked with it.
    pub holds_key: bool,
    /// How its last attempt failed.
    pub last_error: Option<LastError>,
    /// The message as JSON, or the raw text of what is none.
    pub body: String,
}

impl Store {
    /// How many messages are put aside.
    #[must_use]
    pub fn parked_count(&self) -> u64 {
        self.inner.parked.count()
    }

    /// A page of the messages that were put aside, at most 1,000 and fewer if they are large.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn parked(
        &self,
        filter: &ParkedFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ParkedPage, SourceError> {
        let after: i64 = match cursor {
            None => 0,
            Some(cursor) => cursor.parse().map_err(|_| SourceError::new("no such cursor"))?,
        };
        let limit = limit.clamp(1, MAX_PAGE);
        let filter = filter.clone();
        let read =
            move |connection: &Connection| filter.select(connection, SHOWN, after, limit, item);
        let Rows { found: items, more } = self.inner.readers.read(read).await?;
        let next = items.last().filter(|_| more).map(|item| item.id.clone());
        Ok(ParkedPage { items, next })
    }

    /// The highest number that a message has which was put aside; 0 if there is none.
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn last_parked(&self) -> Result<i64, SourceError> {
        let read = self.inner.readers.read(|connection| {
            let mut last =
                connection.prepare_cached("SELECT ifnull(max(number), 0) FROM parked")?;
            last.query_row((), |row| row.get(0))
        });
        read.await
    }

    /// The pools of which messages were put aside because their attempts are used up, or behind such a one.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn exhausted_pools(&self) -> Result<Vec<String>, SourceError> {
        let read = self.inner.readers.read(|connection| {
            let mut pools = connection.prepare_cached(EXHAUSTED)?;
            pools.query_map((), |row| row.get(0))?.collect()
        });
        read.await
    }

    /// The numbers of messages that were put aside, behind this one and so many at most.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn parked_numbers(
        &self,
        filter: &ParkedFilter,
        after: i64,
        limit: usize,
    ) -> Result<Vec<i64>, SourceError> {
        let filter = filter.clone();
        let read = move |connection: &Connection| {
            filter.select(connection, "number", after, limit, |row| row.get(0))
        };
        self.inner.readers.read(read).await.map(|rows| rows.found)
    }

    /// Messages that were put aside, as they are kept, behind this one and so many at most; fewer if they are large,
    /// but never none while there are any.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn parked_records(
        &self,
        filter: &ParkedFilter,
        after: i64,
        limit: usize,
    ) -> Result<Vec<ParkedRecord>, SourceError> {
        let filter = filter.clone();
        let read =
            move |connection: &Connection| filter.select(connection, KEPT, after, limit, record);
        self.inner.readers.read(read).await.map(|rows| rows.found)
    }

    /// A message that was put aside, by its [`ParkedItem::id`].
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn parked_item(&self, id: &str) -> Result<Option<ParkedItem>, SourceError> {
        let Ok(number) = id.parse::<i64>() else { return Ok(None) };
        self.parked_where("number = ?1", SqlValue::Integer(number)).await
    }

    /// The first message that was put aside of those with this id of their own.
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn parked_message(&self, id: &str) -> Result<Option<ParkedItem>, SourceError> {
        self.parked_where("message_id = ?1", SqlValue::Text(id.to_owned())).await
    }

    async fn parked_where(
        &self,
        condition: &'static str,
        value: SqlValue,
    ) -> Result<Option<ParkedItem>, SourceError> {
        let read = self.inner.readers.read(move |connection| {
            let sql =
                format!("SELECT {SHOWN} FROM parked WHERE {condition} ORDER BY number LIMIT 1");
            connection.prepare_cached(&sql)?.query_row([value], item).optional()
        });
        read.await
    }
}

impl ParkedFilter {
    /// Those of one pool, or all.
    #[must_use]
    pub fn of_pool(pool: Option<&str>) -> Self {
        Self { pool: pool.map(str::to_owned), ..Self::default() }
    }

    /// Reads rows, in the order of their numbers, behind this one and so many at most; fewer if their bodies are
    /// read and large.
    pub(super) fn select<T>(
        &self,
        connection: &Connection,
        columns: &str,
        after: i64,
        limit: usize,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Rows<T>> {
        // One more says whether there are more.
        let most = SqlValue::Integer(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1));
        let (mut conditions, mut values) = (Vec::new(), vec![SqlValue::Integer(after), most]);
        for (condition, value) in self.conditions() {
            values.push(value);
            conditions.push(format!("{condition} ?{} AND ", values.len()));
        }
        let sql = format!(
            "SELECT {columns} FROM parked WHERE {} number > ?1 ORDER BY number LIMIT ?2",
            conditions.concat()
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            if found.len() >= limit || bytes >= MAX_BYTES {
                return Ok(Rows { found, more: true });
            }
            bytes += body_len(row);
            found.push(read(row)?);
        }
        Ok(Rows { found, more: false })
    }

    pub(super) fn conditions(&self) -> Vec<(&'static str, SqlValue)> {
        let text = |value: &Option<String>| value.clone().map(SqlValue::Text);
        let host = self.host.as_ref().map(|host| bracketed(host.to_ascii_lowercase()));
        let bare = host.as_deref().map(host_of).map(str::to_owned);
        let with_port = host.filter(|host| Some(host) != bare.as_ref());
        let all = [
            ("queue =", text(&self.queue)),
            ("pool =", text(&self.pool)),
            ("grp =", text(&self.group)),
            ("code =", text(&self.code)),
            ("host =", text(&bare)),
            (WITH_PORT, text(&with_port)),
            ("at >=", self.after.map(SqlValue::Integer)),
            ("at <", self.before.map(SqlValue::Integer)),
            ("number <=", self.last.map(SqlValue::Integer)),
        ];
        all.into_iter().filter_map(|(condition, value)| Some((condition, value?))).collect()
    }
}

/// The host and port of a target: one that goes without saying is said.
const WITH_PORT: &str = "iif(authority = host, host || \
    iif(json_extract(body, '$.mediationTarget') LIKE 'https:%', ':443', ':80'), authority) =";

/// A host as it stands in a URL.
fn bracketed(host: String) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host }
}

/// Rows that were read.
pub(super) struct Rows<T> {
    pub(super) found: Vec<T>,
    /// Whether there are more.
    pub(super) more: bool,
}

/// How long the body is that a row was read with.
fn body_len(row: &Row<'_>) -> usize {
    row.get_ref("body").ok().and_then(|body| body.as_bytes().ok()).map_or(0, <[u8]>::len)
}

/// One step for each pool, however many messages it has.
const EXHAUSTED: &str = "WITH RECURSIVE pools (pool) AS ( \
    SELECT min(pool) FROM parked INDEXED BY parked_warned \
    WHERE code IN ('exhausted', 'key_parked') \
    UNION ALL SELECT (SELECT min(pool) FROM parked INDEXED BY parked_warned \
    WHERE code IN ('exhausted', 'key_parked') AND parked.pool > pools.pool) \
    FROM pools WHERE pools.pool IS NOT NULL) \
    SELECT pool FROM pools WHERE pool IS NOT NULL";

/// With the place among those that hold the same key, counted as far as that is of use.
const SHOWN: &str = "number, queue, pool, code, reason, status, attempts, at, body, \
    CASE WHEN holds THEN (SELECT count(*) FROM (SELECT 1 FROM parked before \
    WHERE before.queue = parked.queue AND before.published = parked.published \
    AND before.grp = parked.grp \
    AND before.holds AND before.number <= parked.number LIMIT 1000)) END, last_error";

const KEPT: &str =
    "number, queue, broker_id, pool, code, reason, status, attempts, at, holds, body, last_error";

fn item(row: &Row<'_>) -> rusqlite::Result<ParkedItem> {
    let code: String = row.get(3)?;
    let body = row.get_ref(8)?.as_str()?;
    let message = if code == ParkedCode::Malformed.label() {
        None
    } else {
        wire::parse_stored(body).ok().map(|incoming| incoming.message)
    };
    let shown = match &message {
        Some(message) => wire::shown(message),
        None => Value::String(wire::redacted(body).into_owned()),
    };
    let place: Option<u32> = row.get(9)?;
    Ok(ParkedItem {
        id: row.get::<_, i64>(0)?.to_string(),
        message_id: message.as_ref().map(|message| Arc::clone(&message.id)),
        queue: row.get(1)?,
        pool: row.get(2)?,
        group: message.and_then(|message| message.group),
        code,
        reason: row.get(4)?,
        status: row.get(5)?,
        attempts: row.get(6)?,
        parked_at: row.get(7)?,
        place: place.map(|place| place.min(MAX_PLACE)),
        last_error: last_error::read(row.get_ref(10)?.as_str_or_null()?),
        message: shown,
    })
}

fn record(row: &Row<'_>) -> rusqlite::Result<ParkedRecord> {
    Ok(ParkedRecord {
        number: row.get(0)?,
        queue: row.get(1)?,
        broker_id: row.get(2)?,
        pool: row.get(3)?,
        code: row.get(4)?,
        reason: row.get(5)?,
        status: row.get(6)?,
        attempts: row.get(7)?,
        parked_at: row.get(8)?,
        holds_key: row.get(9)?,
        body: row.get(10)?,
        last_error: last_error::read(row.get_ref(11)?.as_str_or_null()?),
    })
}

impl ParkedRecord {
    /// The group that it was in; messages without one are a group of their own. `None` for what is no message.
    #[must_use]
    pub fn group(&self) -> Option<Arc<str>> {
        let message = wire::parse_stored(&self.body).ok().filter(|_| self.is_message())?.message;
        Some(message.group.unwrap_or_else(|| DEFAULT_GROUP.into()))
    }

    /// Whether it is a message.
    #[must_use]
    pub fn is_message(&self) -> bool {
        self.code != ParkedCode::Malformed.label()
    }
}
