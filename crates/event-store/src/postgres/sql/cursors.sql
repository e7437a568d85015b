-- Version 2: how far those who read on and on have come. A cursor is stored by who took it last.
CREATE TABLE {s}.event_cursors (
    name text COLLATE "C" PRIMARY KEY,
    turn bigint NOT NULL,
    state text,
    at timestamptz NOT NULL
);
