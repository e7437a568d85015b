-- Version 1: the tables. `{s}` is the schema.

-- The log. Rows only come, in the order of their positions: who inserts holds a lock until the transaction has ended,
-- so an event that can be read has all events before it.
CREATE TABLE {s}.events (
    position bigint PRIMARY KEY,
    time timestamptz NOT NULL,
    -- By which the first event of an append is found when its answer was lost.
    token bigint,
    -- Of type, tags and data.
    bytes int NOT NULL,
    type text COLLATE "C" NOT NULL,
    tags text[] COLLATE "C" NOT NULL,
    data json NOT NULL
);

-- What events are found by: a row for each tag, and one for the type. The key of a type begins with a colon, which no
-- tag does.
CREATE TABLE {s}.event_keys (
    key text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (key, position)
);

CREATE SEQUENCE {s}.event_positions;

CREATE FUNCTION {s}.refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are only appended, and only by append_events' USING
        ERRCODE = 'insufficient_privilege',
        DETAIL = 'Whoever decides on what is in the log relies on the lock that it takes.',
        HINT = 'Disable the trigger append_only for the while of a repair, with every process stopped.';
END
$$;

CREATE TRIGGER append_only BEFORE INSERT ON {s}.events FOR EACH STATEMENT
    WHEN (coalesce(current_setting('sluicegate.appends_to', true), '') <> '{s}')
    EXECUTE FUNCTION {s}.refuse_event_change();
CREATE TRIGGER append_only BEFORE INSERT ON {s}.event_keys FOR EACH STATEMENT
    WHEN (coalesce(current_setting('sluicegate.appends_to', true), '') <> '{s}')
    EXECUTE FUNCTION {s}.refuse_event_change();
CREATE TRIGGER never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON {s}.events FOR EACH STATEMENT
    EXECUTE FUNCTION {s}.refuse_event_change();
CREATE TRIGGER never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON {s}.event_keys FOR EACH STATEMENT
    EXECUTE FUNCTION {s}.refuse_event_change();
