//! What a replay would do, without doing it.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, Row, params_from_iter};
use sluicegate_dispatch::SourceError;

use super::parked_index::HeldKey;
use super::parked_list::ParkedFilter;
use super::replay_error::ReplayError;
use super::store::Store;

/// What a replay of some parked messages would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayPlan {
    /// The ids of those that would go back to their queues, in order.
    pub ids: Vec<String>,
    /// Those that would not, and why.
    pub refused: Vec<ReplayError>,
    /// The last number that was looked at; `None` at the end of the list.
    pub last: Option<i64>,
}

/// A parked message, as far as it matters here.
struct Candidate {
    number: i64,
    queue: String,
    key: Option<HeldKey>,
    is_message: bool,
    is_begun: bool,
}

impl Store {
    /// What a replay of those behind this number would do, of so many at most. Nothing changes.
    ///
    /// # Errors
    /// If they could not be read.
    pub async fn plan_replay(
        &self,
        filter: &ParkedFilter,
        after: i64,
        limit: usize,
        queues: &HashSet<String>,
    ) -> Result<ReplayPlan, SourceError> {
        let (filter, queues) = (filter.clone(), queues.clone());
        self.inner
            .readers
            .read(move |connection| plan(connection, &filter, after, limit, &queues))
            .await
    }
}

fn plan(
    connection: &Connection,
    filter: &ParkedFilter,
    after: i64,
    limit: usize,
    queues: &HashSet<String>,
) -> rusqlite::Result<ReplayPlan> {
    let columns = "number, queue, published, grp, code <> 'malformed', \
        EXISTS (SELECT 1 FROM replays WHERE replays.number = parked.number)";
    let found = filter.select(connection, columns, after, limit, candidate)?.found;
    let mut plan =
        ReplayPlan { last: found.last().map(|last| last.number), ..ReplayPlan::default() };
    let mut left: HashMap<HeldKey, Option<i64>> = HashMap::new();
    for Candidate { number, queue, key, is_message, is_begun } in found {
        let id = number.to_string();
        let earlier = match key {
            None => None,
            Some(key) => match left.get(&key) {
                Some(earlier) => *earlier,
                None => {
                    let earlier = stays(connection, filter, &key)?;
                    left.insert(key, earlier);
                    earlier
                }
            },
        };
        let refused = match earlier.filter(|&earlier| earlier < number) {
            _ if !is_message => ReplayError::Malformed { id },
            _ if !queues.contains(&queue) => ReplayError::NoQueue { id, queue },
            Some(earlier) => ReplayError::Behind { id, earlier: earlier.to_string() },
            None if is_begun => ReplayError::Busy { id },
            None => {
                plan.ids.push(id);
                continue;
            }
        };
        plan.refused.push(refused);
    }
    Ok(plan)
}

fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    let queue: String = row.get(1)?;
    let (pool, group): (Option<String>, Option<String>) = (row.get(2)?, row.get(3)?);
    let key = pool.zip(group).map(|(pool, group)| (queue.clone(), pool, group));
    Ok(Candidate {
        number: row.get(0)?,
        queue,
        key,
        is_message: row.get(4)?,
        is_begun: row.get(5)?,
    })
}

/// The first message that holds a key and that the filter leaves where it is.
fn stays(
    connection: &Connection,
    filter: &ParkedFilter,
    key: &HeldKey,
) -> rusqlite::Result<Option<i64>> {
    let mut values: Vec<rusqlite::types::Value> =
        [&key.0, &key.1, &key.2].map(|part| part.clone().into()).into();
    let mut meant = vec!["1".to_owned()];
    for (condition, value) in filter.conditions() {
        values.push(value);
        meant.push(format!("ifnull({condition} ?{}, 0)", values.len()));
    }
    let sql = format!(
        "SELECT min(number) FROM parked WHERE queue = ?1 AND published = ?2 AND grp = ?3 AND holds \
         AND NOT ({}) AND NOT EXISTS (SELECT 1 FROM replays WHERE replays.number = parked.number)",
        meant.join(" AND ")
    );
    connection.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))
}
