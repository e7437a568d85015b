//! Where the events are. Nothing else of the service knows.

use std::error::Error;
use std::path::Path;

use sluicegate::events::postgres::{PostgresEngine, PostgresSettings};
use sluicegate::events::{EventStore, SqliteEngine};

/// Opens the events of a `postgres://` address, or else of a file.
///
/// # Errors
/// They cannot be opened: the address is wrong, nobody answers there, or somebody else serves the file.
pub async fn open(place: &str) -> Result<EventStore, Box<dyn Error + Send + Sync>> {
    let is_postgres = ["postgres://", "postgresql://"].iter().any(|of| place.starts_with(of));
    if is_postgres {
        let settings = PostgresSettings::parse(place)?;
        return Ok(EventStore::new(PostgresEngine::open(settings).await?));
    }
    Ok(EventStore::new(SqliteEngine::open(Path::new(place)).await?))
}
