//! Which parked messages go back by themselves.

use rusqlite::OptionalExtension;
use sluicegate_dispatch::SourceError;

use super::store::Store;

impl Store {
    /// Whether a parked message goes back by itself once those of its group before it are over.
    ///
    /// # Errors
    /// If it could not be read.
    pub async fn parked_follows(&self, id: &str) -> Result<bool, SourceError> {
        let Ok(number) = id.parse::<i64>() else { return Ok(false) };
        let read = self.inner.readers.read(move |connection| {
            let mut follows =
                connection.prepare_cached("SELECT follows FROM parked WHERE number = ?1")?;
            follows.query_row([number], |row| row.get(0)).optional()
        });
        Ok(read.await?.unwrap_or(false))
    }
}
