//! Bare INSERTs into SQLite: the rows that our tables have, of events and of keys, with the same settings of the
//! database, and one transaction after the other.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::load::{self, Plain};
use super::turns::Crowd;

const TABLES: &str = "
    CREATE TABLE events (
        position INTEGER PRIMARY KEY, type TEXT NOT NULL, tags BLOB NOT NULL, data TEXT NOT NULL, time INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE event_keys (
        key TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (key, position)
    ) STRICT, WITHOUT ROWID;
";
const EVENT: &str = "INSERT INTO events (type, tags, data, time) VALUES (?1, ?2, ?3, ?4)";
const KEY: &str = "INSERT INTO event_keys (key, position) VALUES (?1, ?2)";
/// Some moment.
const TIME: i64 = 1_795_000_000_000;

/// A file of its own.
pub(super) struct Bare {
    connection: Connection,
}

impl Bare {
    pub(super) fn filled(path: &Path, count: u64) -> Result<Self, String> {
        let bare = Self::create(path).and_then(|mut bare| {
            bare.fill(count)?;
            Ok(bare)
        });
        bare.map_err(|error| error.to_string())
    }

    fn create(path: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        connection.pragma_update(None, "cache_size", -32 * 1024)?;
        connection.pragma_update(None, "wal_autocheckpoint", 4096)?;
        connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
        connection.execute_batch(TABLES)?;
        Ok(Self { connection })
    }

    /// In the order of the keys at last: one by one it would take minutes.
    fn fill(&mut self, count: u64) -> rusqlite::Result<()> {
        let write = self.connection.transaction()?;
        let mut keys = Vec::new();
        {
            let mut insert = write.prepare(EVENT)?;
            let mut left = count;
            while left > 0 {
                let events = load::some(left.min(1_000));
                left -= events.len() as u64;
                for event in events {
                    insert_event(&mut insert, &event)?;
                    let position = write.last_insert_rowid();
                    keys.push((format!(":{}", event.event_type), position));
                    keys.extend(event.tags.into_iter().map(|tag| (tag, position)));
                }
            }
            keys.sort_unstable();
            let mut insert = write.prepare(KEY)?;
            for (key, position) in keys {
                insert.execute(params![key, position])?;
            }
        }
        write.commit()
    }

    /// Inserts for a while, so many events in each transaction; answers how many a second.
    pub(super) fn insert(&mut self, crowd: Crowd, turn: Duration) -> Result<f64, String> {
        let together = match crowd.batch {
            1 => 64,
            10 => 640,
            _ => 1_000,
        };
        let begun = Instant::now();
        let mut count = 0;
        while begun.elapsed() < turn {
            let inserted = self.insert_together(&load::some(together));
            inserted.map_err(|error| error.to_string())?;
            count += together;
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }

    fn insert_together(&mut self, events: &[Plain]) -> rusqlite::Result<()> {
        let immediate = TransactionBehavior::Immediate;
        let write: Transaction<'_> = self.connection.transaction_with_behavior(immediate)?;
        {
            let mut event_row = write.prepare_cached(EVENT)?;
            let mut key_row = write.prepare_cached(KEY)?;
            for event in events {
                insert_event(&mut event_row, event)?;
                let position = write.last_insert_rowid();
                key_row.execute(params![format!(":{}", event.event_type), position])?;
                for tag in &event.tags {
                    key_row.execute(params![tag, position])?;
                }
            }
        }
        write.commit()
    }
}

fn insert_event(insert: &mut rusqlite::Statement<'_>, event: &Plain) -> rusqlite::Result<usize> {
    let tags = event.tags.join("\0");
    insert.execute(params![event.event_type, tags.as_bytes(), event.data, TIME])
}
