//! Parked messages that are given up for good.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::Connection;

use super::parked_index::{Changes, ParkedIndex, firsts};
use super::replay::Row;
use super::replay_error::DiscardError;
use super::store::Store;
use super::writer::Write;

impl Store {
    /// Gives messages up for good, all or none.
    ///
    /// # Errors
    /// Names one that is not there.
    pub async fn discard(&self, ids: &[impl AsRef<str> + Sync]) -> Result<u64, DiscardError> {
        let numbers = numbers(ids).map_err(|id| DiscardError::NotFound { id })?;
        let count = numbers.len() as u64;
        let index = Arc::clone(&self.inner.parked);
        let write = self.inner.writer.write(|| Discard { index, numbers });
        write.await.map_err(DiscardError::Source)?.map(|_| count)
    }
}

fn numbers(ids: &[impl AsRef<str>]) -> Result<BTreeSet<i64>, String> {
    ids.iter().map(|id| id.as_ref().parse().map_err(|_| id.as_ref().to_owned())).collect()
}

struct Discard {
    index: Arc<ParkedIndex>,
    numbers: BTreeSet<i64>,
}

impl Write for Discard {
    type Answer = Result<Changes, DiscardError>;

    fn weight(&self) -> usize {
        self.numbers.len()
    }

    fn write(&mut self, connection: &Connection) -> rusqlite::Result<Self::Answer> {
        let (mut changes, mut touched) = (Changes::default(), BTreeSet::new());
        let mut is_replayed =
            connection.prepare_cached("SELECT 1 FROM replays WHERE number = ?1")?;
        for &number in &self.numbers {
            let id = number.to_string();
            match Row::find(connection, number)? {
                None => return Ok(Err(DiscardError::NotFound { id })),
                Some(_) if is_replayed.exists([number])? => {
                    return Ok(Err(DiscardError::Busy { id }));
                }
                Some(row) => touched.extend(row.key().filter(|_| row.holds)),
            }
        }
        let mut remove = connection.prepare_cached("DELETE FROM parked WHERE number = ?1")?;
        for number in &self.numbers {
            remove.execute([number])?;
            changes.count -= 1;
        }
        changes.keys = firsts(connection, touched)?;
        Ok(Ok(changes))
    }

    fn written(&mut self, answer: &Self::Answer) {
        if let Ok(changes) = answer {
            self.index.apply(changes);
        }
    }
}
