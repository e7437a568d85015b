//! Reading pages, and the head.

use sluicegate_postgres_link::Broken;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::columns::literal;
use super::link::Link;
use super::schema::Names;
use crate::{Event, MAX_TAGS, Page, Position, Query, QueryItem, Read};
use std::time::{Duration, SystemTime};

/// Reads over a few connections.
#[derive(Debug)]
pub(super) struct Reader {
    link: Link,
    page: String,
    head: String,
    first: String,
}

impl Reader {
    pub(super) fn new(link: Link, names: &Names) -> Self {
        Self {
            link,
            page: names.write(
                "SELECT position, time, type, tags, data, matched \
                 FROM {s}.read_events($1, $2, $3, $4, $5, $6)",
            ),
            head: names.write("SELECT {s}.head_of_events()"),
            // Of one snapshot: what it does not find up to the head does not come any more.
            first: names.write(
                "SELECT h.head, (SELECT min(p.place) FROM unnest($1::text[], $2::text[]) AS i (tags, types), \
                 unnest({s}.match_events(i.tags::text[], i.types::text[], least($3, h.head), h.head, 1)) AS p (place)) \
                 FROM {s}.head_of_events() AS h (head)",
            ),
        }
    }

    pub(super) async fn head(&self) -> Result<i64, Broken> {
        let rows = self.link.rows(&self.head, &[]).await?;
        rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(Broken::from)
    }

    /// The first event after a position that a query asks for, and up to where it was looked for.
    pub(super) async fn first(
        &self,
        query: &Query,
        after: i64,
    ) -> Result<(Option<i64>, i64), Broken> {
        let (tags, types) = literals(query);
        let rows = self.link.rows(&self.first, &[&tags, &types, &after]).await?;
        let row = rows.first().ok_or_else(|| Broken::Other("there is no head".to_owned()))?;
        Ok((row.try_get(1)?, row.try_get(0)?))
    }

    pub(super) async fn page(&self, read: &Read) -> Result<Page, Broken> {
        let (tags, types) = literals(read.query());
        let (low, high) = (read.after.as_i64(), read.up_to.map_or(i64::MAX, Position::as_i64));
        if low >= high || tags.is_empty() {
            return Ok(Page::default());
        }
        let limit = i32::try_from(read.limit.max(1)).unwrap_or(i32::MAX);
        let most_bytes = i64::try_from(Read::PAGE_BYTES).unwrap_or(i64::MAX);
        let rows =
            self.link.rows(&self.page, &[&tags, &types, &low, &high, &limit, &most_bytes]).await?;
        let matched = rows.first().map_or(Ok(0), |row| row.try_get::<_, i32>(5))?;
        let events = rows.iter().map(event).collect::<Result<Vec<Event>, Broken>>()?;
        // Cut by their bytes or by their number: there may be more.
        let is_cut = matched == limit || events.len() < usize::try_from(matched).unwrap_or(0);
        let next = events.last().map(Event::position).filter(|_| is_cut);
        Ok(Page { events, next })
    }
}

/// The tags and the types of a query's items.
fn literals(query: &Query) -> (Vec<String>, Vec<String>) {
    let all = [QueryItem::default()];
    let items = if query.is_all() { &all[..] } else { query.items() };
    // No event has more tags than that.
    let items = items.iter().filter(|item| item.all_tags().len() <= MAX_TAGS);
    items.map(|item| (literal(item.all_tags()), literal(item.event_types()))).unzip()
}

fn event(row: &Row) -> Result<Event, Broken> {
    debug_assert_eq!(row.columns()[1].type_(), &Type::TIMESTAMPTZ);
    let number: i64 = row.try_get(0)?;
    let position = Position::try_from(number)
        .map_err(|_| Broken::Other(format!("{number} is no position")))?;
    let time: SystemTime = row.try_get(1)?;
    let tags: Vec<&str> = row.try_get(3)?;
    Ok(Event::new(position, millis(time), row.try_get(2)?, tags, row.try_get(4)?))
}

/// Milliseconds since 1970.
fn millis(time: SystemTime) -> i64 {
    let number = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => number(since),
        Err(before) => -number(before.duration()),
    }
}
