//! The tables, and the steps from one version of them to the next.
//!
//! The number of a message carries the number of its queue in its upper bits, so the messages of a
//! queue lie beside each other, in order, and need no index for that.
//!
//! A lane is a tenant of a pool in a queue. Lanes have numbers, which are never used again; the number of a pool is
//! that of its first lane.

use rusqlite::{Connection, TransactionBehavior};
use sluicegate_sqlite_file::{APPLICATION_ID, OpenError, check_owner};

/// How many low bits of a message's number count within its queue.
pub(crate) const SEQ_BITS: u32 = 47;
/// How many queues a file can have.
pub(crate) const MAX_QUEUES: i64 = (1 << (63 - SEQ_BITS)) - 2;

/// Each step from one version to the next; the version is how many were taken.
const STEPS: &[&str] = &[
    "
    CREATE TABLE queues (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        next INTEGER NOT NULL,
        stored INTEGER NOT NULL
    );
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY,
        queue INTEGER NOT NULL,
        pool TEXT NOT NULL,
        grp TEXT NOT NULL,
        high INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        due INTEGER,
        reason TEXT,
        at INTEGER NOT NULL,
        body TEXT NOT NULL
    );
    CREATE INDEX messages_key ON messages (pool, grp, high);
    CREATE INDEX messages_high ON messages (queue) WHERE high;
    CREATE INDEX messages_due ON messages (queue, due) WHERE due IS NOT NULL;
    CREATE TABLE ids (
        queue INTEGER NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (queue, id)
    ) WITHOUT ROWID;
    CREATE TABLE parked (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        broker_id TEXT NOT NULL,
        pool TEXT,
        grp TEXT,
        code TEXT NOT NULL,
        reason TEXT NOT NULL,
        status INTEGER,
        attempts INTEGER NOT NULL,
        holds INTEGER NOT NULL,
        at INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (queue, broker_id)
    );
    CREATE INDEX parked_pool ON parked (pool);
    CREATE INDEX parked_key ON parked (queue, pool, grp) WHERE holds;
    CREATE TABLE replays (
        seq INTEGER PRIMARY KEY,
        number INTEGER NOT NULL
    );
", "
    CREATE TABLE lanes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        queue INTEGER NOT NULL,
        code TEXT NOT NULL,
        tenant TEXT NOT NULL,
        pool INTEGER NOT NULL,
        UNIQUE (queue, code, tenant)
    );
    ALTER TABLE messages RENAME TO messages_1;
    CREATE TEMP VIEW old AS
        SELECT *, CASE
            WHEN NOT json_valid(body) OR trim(ifnull(json_extract(body, '$.tenant'), '')) = '' THEN ''
            ELSE CAST(json_extract(body, '$.tenant') AS TEXT)
        END AS tenant FROM main.messages_1;
    INSERT OR IGNORE INTO lanes (queue, code, tenant, pool)
        SELECT queue, pool, tenant, 0 FROM temp.old ORDER BY seq;
    UPDATE lanes SET pool = first.id
        FROM (SELECT queue, code, min(id) AS id FROM lanes GROUP BY queue, code) AS first
        WHERE first.queue = lanes.queue AND first.code = lanes.code;
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY,
        queue INTEGER NOT NULL,
        lane INTEGER NOT NULL,
        pool INTEGER NOT NULL,
        grp TEXT NOT NULL,
        high INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        due INTEGER,
        reason TEXT,
        at INTEGER NOT NULL,
        body TEXT NOT NULL
    );
    INSERT INTO messages
        SELECT old.seq, old.queue, lanes.id, lanes.pool, old.grp, old.high, old.attempts, old.due,
            old.reason, old.at, old.body
        FROM temp.old CROSS JOIN lanes
        ON lanes.queue = old.queue AND lanes.code = old.pool AND lanes.tenant = old.tenant
        ORDER BY old.seq;
    DROP VIEW temp.old;
    DROP TABLE messages_1;
    CREATE INDEX messages_lane ON messages (lane, high);
    CREATE INDEX messages_key ON messages (pool, grp, high);
    CREATE INDEX messages_high ON messages (queue) WHERE high;
    CREATE INDEX messages_due ON messages (queue, due) WHERE due IS NOT NULL;
    CREATE INDEX messages_lane_due ON messages (lane, due) WHERE due IS NOT NULL;
", "
    ALTER TABLE parked ADD COLUMN message_id TEXT;
    ALTER TABLE parked ADD COLUMN authority TEXT;
    ALTER TABLE parked ADD COLUMN host TEXT;
    ALTER TABLE parked ADD COLUMN follows INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE parked ADD COLUMN last_error TEXT;
    UPDATE parked SET message_id = json_extract(body, '$.id'),
        authority = json_extract(body, '$.mediationTarget')
        WHERE code <> 'malformed' AND json_valid(body);
    UPDATE parked SET host = CASE WHEN authority LIKE 'https:%' THEN ':443' ELSE ':80' END;
    UPDATE parked SET authority = lower(substr(authority, instr(authority, '://') + 3));
    UPDATE parked SET authority = substr(authority, 1, instr(authority || '/', '/') - 1);
    UPDATE parked SET authority = substr(authority, 1, instr(authority || '?', '?') - 1);
    UPDATE parked SET authority = substr(authority, 1, instr(authority || '#', '#') - 1);
    UPDATE parked SET authority = rtrim(rtrim(authority, '0123456789'), ':')
        WHERE authority LIKE '%' || host OR authority LIKE '%:';
    UPDATE parked SET host = CASE WHEN rtrim(authority, '0123456789') LIKE '%:'
        THEN rtrim(rtrim(authority, '0123456789'), ':') ELSE authority END;
    CREATE INDEX parked_message ON parked (message_id) WHERE message_id IS NOT NULL;
    CREATE INDEX parked_queue ON parked (queue);
    CREATE INDEX parked_group ON parked (grp);
    CREATE INDEX parked_host ON parked (host);
    CREATE INDEX parked_code ON parked (code);
    CREATE INDEX parked_warned ON parked (pool) WHERE code IN ('exhausted', 'key_parked');
    ALTER TABLE replays RENAME TO old_replays;
    CREATE TABLE replays (
        number INTEGER PRIMARY KEY,
        queue TEXT NOT NULL,
        message_id TEXT NOT NULL,
        pool TEXT,
        grp TEXT,
        holds INTEGER NOT NULL,
        stage INTEGER NOT NULL,
        at INTEGER NOT NULL,
        UNIQUE (queue, message_id)
    );
    CREATE INDEX replays_key ON replays (queue, pool, grp) WHERE holds;
    INSERT OR IGNORE INTO replays (number, queue, message_id, pool, grp, holds, stage, at)
        SELECT r.number, q.name, json_extract(m.body, '$.id'), l.code, m.grp, 1, 1, m.at
        FROM old_replays r JOIN messages m ON m.seq = r.seq JOIN queues q ON q.id = m.queue
        JOIN lanes l ON l.id = m.lane
        WHERE json_valid(m.body);
    DROP TABLE old_replays;
", "
    CREATE INDEX messages_held ON messages (pool, grp)
        WHERE (attempts > 0 OR ifnull(reason, 'scheduled') <> 'scheduled');
", "
    ALTER TABLE parked ADD COLUMN published TEXT;
    UPDATE parked SET published = ifnull(json_extract(body, '$.poolCode'), 'DEFAULT-POOL')
        WHERE code <> 'malformed' AND json_valid(body);
    UPDATE parked SET published = pool WHERE code <> 'malformed' AND published IS NULL;
    UPDATE parked SET holds = 1 WHERE code = 'unknown_pool' AND grp IS NOT NULL AND json_valid(body)
        AND CASE WHEN json_valid(body) THEN json_extract(body, '$.messageGroupId') IS NOT NULL ELSE 0 END;
    DROP INDEX parked_key;
    CREATE INDEX parked_key ON parked (queue, published, grp) WHERE holds;
    UPDATE replays SET pool = parked.published FROM parked WHERE parked.number = replays.number;
", "
    CREATE TABLE requests (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        session TEXT NOT NULL,
        admitted TEXT NOT NULL,
        outcome TEXT,
        at INTEGER NOT NULL,
        ended INTEGER,
        bytes INTEGER NOT NULL
    );
    CREATE INDEX requests_ended ON requests (ended) WHERE ended IS NOT NULL;
    CREATE INDEX requests_open ON requests (number) WHERE ended IS NULL;
    CREATE TABLE requests_kept (bytes INTEGER NOT NULL);
    INSERT INTO requests_kept (bytes) VALUES (0);
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        begun INTEGER NOT NULL,
        at INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX sessions_at ON sessions (at);
"];

/// The latest version that is known.
pub(crate) const KNOWN: i64 = STEPS.len() as i64;

/// The version of the tables, if they are ours and not from the future. Changes nothing.
pub(crate) fn inspect(connection: &Connection) -> Result<i64, OpenError> {
    let found = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    check_owner(connection)?;
    if found > KNOWN {
        return Err(OpenError::Newer { found, known: KNOWN });
    }
    Ok(found)
}

/// Brings the tables up to what this version knows.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    if inspect(connection)? == KNOWN {
        return Ok(());
    }
    // Another process may be at the same: whoever comes second finds it done.
    let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = inspect(&write)?;
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        write.execute_batch(step)?;
    }
    write.pragma_update(None, "user_version", KNOWN)?;
    write.pragma_update(None, "application_id", APPLICATION_ID)?;
    write.commit()?;
    Ok(())
}

/// The first number that a message of a queue can have.
pub(crate) const fn base(queue: i64) -> i64 {
    queue << SEQ_BITS
}

/// What a message is called outside: its number within its queue.
pub(crate) const fn within(seq: i64) -> i64 {
    seq & ((1 << SEQ_BITS) - 1)
}
