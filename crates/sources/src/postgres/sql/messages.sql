-- Version 2: messages and the keys that order is kept by.
--
-- A message can be received when `until` is null. With a token it is out until then, or was out and
-- nobody has settled it: the token is what its receipt is checked by.
CREATE TABLE {s}.messages (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    until timestamptz,
    token bigint,
    -- Within a key: 0 is out, 1 was out, 2 is of high priority, 3 is regular, 4 is of high priority and late.
    -- The place orders within a rank: the number, and for rank 4 the time in microseconds.
    place bigint NOT NULL,
    queue int NOT NULL,
    holder int,
    attempts int NOT NULL,
    rank smallint NOT NULL,
    -- The rank of before it was out, for one that is handed back as if it had never been.
    base smallint,
    high boolean NOT NULL,
    -- Without a group.
    loose boolean NOT NULL,
    -- It is out as the head of its key.
    keyed boolean NOT NULL DEFAULT false,
    reason text,
    -- Until when it rests with whoever has it: it is out for so long, whatever becomes of that one.
    rests timestamptz,
    id bytea NOT NULL,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    tenant bytea NOT NULL,
    body bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.5,
    autovacuum_vacuum_cost_delay = 0
);
-- A key is a group of a pool, and a lease on it. Every message has the row of its key, for who publishes
-- does not know which pools keep order; the keys of those that do not are never looked at.
--   0  its head may be claimed
--   1  its head is out until then
--   2  its head is late, or it is to be looked at again then
--   3  there was no message of it: see `confirm`
-- `head`, `rank`, `high` and `tenant` are of the head when it was last looked at.
CREATE TABLE {s}.keys (
    queue int NOT NULL,
    state smallint NOT NULL,
    rank smallint NOT NULL,
    -- How often in a row it was found late.
    looks smallint NOT NULL DEFAULT 0,
    high boolean NOT NULL,
    loose boolean NOT NULL,
    head bigint NOT NULL,
    until timestamptz,
    stamp xid8,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    tenant bytea NOT NULL,
    PRIMARY KEY (queue, pool, grp)
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
