//! Reading a page: by one list of positions, by several, or all events.

use rusqlite::{Connection, Row, Rows, params};
use sluicegate_tasks::Context;

use super::append::position;
use super::lists::{Patience, StoredLists, interrupted};
use super::search::Search;
use super::statements::{SCAN, SCAN_KEY};
use super::tail::View;
use crate::{Event, Page, Read};

/// Up to how many events that are not asked for lie between two that are, for the database to walk over them rather than
/// to look for the second.
const NEAR: i64 = 8;
/// How many events are read between two looks at whether somebody still waits for them.
const LOOK: usize = 256;

/// Reads a page as a view has it, which is older than what the connection sees.
pub(crate) fn page(
    connection: &Connection,
    cx: &Context,
    view: &View,
    read: &Read,
) -> rusqlite::Result<Page> {
    let mut reading = Reading {
        cx,
        limit: read.limit.max(1),
        bytes: 0,
        events: Vec::with_capacity(read.limit.clamp(1, 1_024)),
    };
    let after = read.after.as_i64();
    let up_to = read.up_to.map_or(i64::MAX, |at| at.as_i64()).min(view.up_to);
    let limit = i64::try_from(reading.limit).unwrap_or(i64::MAX);
    let Some(mut search) = Search::new(read.query()) else {
        let mut scan = connection.prepare_cached(SCAN)?;
        reading.take(scan.query(params![after, up_to, limit])?)?;
        return Ok(reading.page());
    };
    let mut from = after.saturating_add(1);
    let filed = view.filed.min(up_to);
    if let Some(key) = search.only_key()
        && from <= filed
    {
        let mut scan = connection.prepare_cached(SCAN_KEY)?;
        reading.take(scan.query(params![after, filed, limit, key])?)?;
        from = filed.saturating_add(1);
    }
    if from <= up_to && !reading.is_full() {
        reading.search(connection, view, &mut search, from, up_to)?;
    }
    Ok(reading.page())
}

/// A page on its way.
struct Reading<'a> {
    cx: &'a Context,
    limit: usize,
    bytes: usize,
    events: Vec<Event>,
}

impl Reading<'_> {
    fn is_full(&self) -> bool {
        self.events.len() >= self.limit || self.bytes >= Read::PAGE_BYTES
    }

    fn page(self) -> Page {
        let next = self.events.last().filter(|_| self.is_full()).map(Event::position);
        Page { next, events: self.events }
    }

    /// Takes what comes, until the page is full.
    fn take(&mut self, mut rows: Rows<'_>) -> rusqlite::Result<()> {
        while !self.is_full()
            && let Some(row) = rows.next()?
        {
            self.push(row)?;
        }
        Ok(())
    }

    fn push(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let event = event(row)?;
        self.bytes += event.bytes();
        self.events.push(event);
        match self.events.len().is_multiple_of(LOOK) && self.cx.is_cancelled() {
            true => Err(interrupted()),
            false => Ok(()),
        }
    }

    /// Takes what is found, from a position on and up to another.
    fn search(
        &mut self,
        connection: &Connection,
        view: &View,
        search: &mut Search,
        from: i64,
        up_to: i64,
    ) -> rusqlite::Result<()> {
        // One transaction, so that the file is not locked anew for each statement.
        let _snapshot = connection.unchecked_transaction()?;
        let mut lists = StoredLists::new(connection, view, Patience::While(self.cx))?;
        let mut scan = connection.prepare_cached(SCAN)?;
        let mut found = search.next(&mut lists, from)?.filter(|at| *at <= up_to);
        while let Some(wanted) = found
            && !self.is_full()
        {
            let mut rows = scan.query(params![wanted - 1, up_to, i64::MAX])?;
            while let (Some(row), Some(wanted)) = (rows.next()?, found) {
                let at = row.get::<_, i64>(0)?;
                if at < wanted {
                    continue;
                }
                self.push(row)?;
                found = search.next(&mut lists, at.saturating_add(1))?.filter(|at| *at <= up_to);
                if self.is_full() || found.is_none_or(|next| next - at > NEAR) {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str()?);
    let tags = row.get_ref(3)?.as_bytes()?;
    let tags = std::str::from_utf8(tags).map_err(rusqlite::Error::from)?;
    Ok(Event::stored(position(row.get(0)?), row.get(1)?, text(2)?, tags, text(4)?))
}
