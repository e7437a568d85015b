-- Version 1: the tables. `{s}` is the schema.
--
-- A message is in one of three states:
--   0  nobody has looked at it: a publisher does not know which pools keep order
--   1  it was looked at, and its pool keeps no order
--   2  it belongs to a key (pool and group) of a pool that keeps order
-- In the states 0 and 1 it is claimed by itself; `until` is when it can be received: null is now,
-- and with a token it is the end of the claim. In state 2 its key is claimed instead, as a lease
-- on the whole group, and `until` is only the end of the message's own delay.
CREATE TABLE {s}.queues (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);
CREATE SEQUENCE {s}.numbers;
CREATE SEQUENCE {s}.tokens;
CREATE TABLE {s}.messages (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    until timestamptz,
    token bigint,
    -- Within a key: 0 was out, 1 is of high priority, 2 is regular, 3 is of high priority and late.
    -- The place orders within a rank: the number, and for rank 3 the time in microseconds.
    place bigint NOT NULL,
    queue int NOT NULL,
    holder int,
    attempts int NOT NULL,
    state smallint NOT NULL,
    rank smallint NOT NULL,
    high boolean NOT NULL,
    reason text,
    id bytea NOT NULL,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    body bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.5,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX messages_fresh ON {s}.messages (queue, pool, seq) WHERE state = 0;
CREATE INDEX messages_ready ON {s}.messages (queue, seq) WHERE state < 2 AND until IS NULL;
CREATE INDEX messages_later ON {s}.messages (queue, until, seq) WHERE state < 2 AND until IS NOT NULL;
CREATE INDEX messages_key ON {s}.messages (queue, pool, grp, rank, place) WHERE state = 2;
-- A key of a pool that keeps order: there is a row while there are messages. It can be claimed from
-- `until` on. With a token, `head` is out until then.
CREATE TABLE {s}.keys (
    queue int NOT NULL,
    holder int,
    until timestamptz NOT NULL,
    head bigint NOT NULL,
    token bigint,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    PRIMARY KEY (queue, pool, grp)
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX keys_until ON {s}.keys (queue, until, head);
-- Ids that were seen, and where the message is.
CREATE TABLE {s}.ids (
    queue int NOT NULL,
    id bytea NOT NULL,
    seq bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (queue, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
-- Messages that will never work.
CREATE TABLE {s}.buried (
    seq bigint PRIMARY KEY,
    queue int NOT NULL,
    at timestamptz NOT NULL,
    buried_at timestamptz NOT NULL,
    attempts int NOT NULL,
    id bytea NOT NULL,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    body bytea NOT NULL
);
-- Those who receive. Each holds a session lock on its number while it lives.
CREATE SEQUENCE {s}.instance_numbers AS int;
CREATE TABLE {s}.instances (
    id int PRIMARY KEY,
    seen timestamptz NOT NULL
);
