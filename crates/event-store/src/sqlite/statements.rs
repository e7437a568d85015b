//! What is asked of the database: every statement, so that a test can show that each uses its index.

/// Positions of a key, in order.
pub(crate) const SEEK: &str = "SELECT position FROM event_keys \
     WHERE key = ?1 AND position >= ?2 AND position <= ?3 ORDER BY position LIMIT ?4";

/// The last position.
pub(crate) const HEAD: &str = "SELECT max(position) FROM events";

/// Events, in order.
pub(crate) const SCAN: &str = "SELECT position, time, type, tags, data FROM events \
     WHERE position > ?1 AND position <= ?2 ORDER BY position LIMIT ?3";

/// Events of a key, in order.
pub(crate) const SCAN_KEY: &str = "SELECT e.position, e.time, e.type, e.tags, e.data \
     FROM event_keys AS k CROSS JOIN events AS e ON e.position = k.position \
     WHERE k.key = ?4 AND k.position > ?1 AND k.position <= ?2 ORDER BY k.position LIMIT ?3";

/// An event: it gets the next position.
pub(crate) const INSERT_EVENT: &str =
    "INSERT INTO events (type, tags, data, time) VALUES (?1, ?2, ?3, ?4)";

/// What the keys of events are told from.
pub(crate) const LOAD: &str =
    "SELECT position, type, tags FROM events WHERE position > ?1 ORDER BY position";

/// What a query is compared with.
pub(crate) const COMPARED: &str = "SELECT position, type, tags FROM events \
     WHERE position > ?1 AND position <= ?2 ORDER BY position";

/// A key of an event.
pub(crate) const FILE_KEY: &str =
    "INSERT OR IGNORE INTO event_keys (key, position) VALUES (?1, ?2)";

/// Up to which position all keys are filed.
pub(crate) const FILED: &str = "SELECT max(position) FROM events_filed";

/// They are now, up to this one.
pub(crate) const SET_FILED: &str = "UPDATE events_filed SET position = ?1";

/// Takes a cursor over.
pub(crate) const TAKE_CURSOR: &str = "INSERT INTO event_cursors (name, turn) VALUES (?1, 1) \
     ON CONFLICT (name) DO UPDATE SET turn = turn + 1 RETURNING turn, state";

/// Stores a cursor, if nobody took it over.
pub(crate) const STORE_CURSOR: &str =
    "UPDATE event_cursors SET state = ?3 WHERE name = ?1 AND turn = ?2";

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::super::schema;
    use super::*;

    #[test]
    fn every_statement_uses_its_index() {
        let cases: [(&str, &[&str]); 12] = [
            (SEEK, &["SEARCH event_keys USING PRIMARY KEY (key=? AND position>? AND position<?)"]),
            (HEAD, &["SEARCH events"]),
            (SCAN, &["SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]),
            (
                SCAN_KEY,
                &[
                    "SEARCH k USING PRIMARY KEY (key=? AND position>? AND position<?)",
                    "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)",
                ],
            ),
            (INSERT_EVENT, &[]),
            (LOAD, &["SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"]),
            (COMPARED, &["SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]),
            (FILE_KEY, &[]),
            // A table of one row.
            (FILED, &["SEARCH events_filed"]),
            (SET_FILED, &["SCAN events_filed"]),
            (TAKE_CURSOR, &[]),
            (STORE_CURSOR, &["SEARCH event_cursors USING PRIMARY KEY (name=?)"]),
        ];
        let connection = Connection::open_in_memory().unwrap();
        schema::migrate(&connection).unwrap().unwrap();
        for (statement, expected) in cases {
            let mut explain =
                connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let mut rows = explain.raw_query();
            let mut plan = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                plan.push(row.get::<_, String>(3).unwrap());
            }
            assert_eq!(plan, expected, "{statement}");
        }
    }
}
