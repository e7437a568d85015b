-- Version 2: the tables beside those of messages. `{s}` is the schema.
CREATE TABLE {s}.queues (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);
CREATE SEQUENCE {s}.numbers;
CREATE SEQUENCE {s}.tokens;
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
