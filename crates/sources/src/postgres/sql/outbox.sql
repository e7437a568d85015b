-- Version 5: publishing within somebody's own transaction.
--
-- Who publishes to `messages` locks keys and ids until the transaction ends, and that of a service may last: it only
-- adds a row here, which stands in nobody's way. Once it is committed, the daemon that is told of it takes it in.

CREATE TABLE {s}.outbox (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue int NOT NULL,
    high boolean NOT NULL,
    due timestamptz NOT NULL,
    id bytea NOT NULL,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    tenant bytea NOT NULL,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);
CREATE INDEX outbox_queue ON {s}.outbox (queue, number);

-- A field of a message that is a name.
CREATE FUNCTION {s}.name_in(message jsonb, field text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    kind text := coalesce(jsonb_typeof(message -> field), 'null');
    found text := message ->> field;
BEGIN
    IF kind NOT IN ('string', 'null') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s must be a string, not %s', field, kind);
    END IF;
    IF octet_length(found) > 512 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('%s has %s bytes; at most 512 are right', field, octet_length(found));
    END IF;
    RETURN CASE WHEN btrim(found, E' \t\r\n') <> '' THEN found END;
END
$$;

-- Publishes a message as part of the caller's transaction: it is delivered once that is committed, and never if not.
CREATE FUNCTION {s}.sluicegate_publish(queue text, message jsonb) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    q int;
    size int := octet_length(message::text);
    wait numeric := 0;
    wrong text;
BEGIN
    SELECT o.id INTO q FROM {s}.queues o WHERE o.name = queue;
    IF q IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('there is no queue %L', queue),
            HINT = format('Sluicegate makes a queue when it first opens it. There are: %s.',
                coalesce((SELECT string_agg(o.name, ', ' ORDER BY o.name) FROM {s}.queues o), 'none'));
    END IF;
    wrong := CASE
        WHEN message IS NULL THEN 'the message is null'
        WHEN jsonb_typeof(message) <> 'object' THEN format('the message must be an object, not %s', jsonb_typeof(message))
        WHEN size > 1048576 THEN format('the message has %s bytes; at most 1048576 are right', size)
        WHEN coalesce({s}.name_in(message, 'id'), '') = '' THEN 'id is missing or empty; it must have 1 to 512 bytes'
        WHEN jsonb_typeof(message -> 'highPriority') NOT IN ('boolean', 'null') THEN
            format('highPriority must be true or false, not %s', message -> 'highPriority')
        WHEN jsonb_typeof(message -> 'mediationTarget') NOT IN ('string', 'null') THEN
            format('mediationTarget must be a string, not %s', jsonb_typeof(message -> 'mediationTarget'))
        WHEN jsonb_typeof(message -> 'delaySeconds') NOT IN ('number', 'null') THEN
            format('delaySeconds must be a number, not %s', jsonb_typeof(message -> 'delaySeconds'))
    END;
    IF wrong IS NULL THEN
        wait := coalesce((message ->> 'delaySeconds')::numeric, 0);
        wrong := CASE WHEN wait < 0 OR wait > 315360000 OR wait <> trunc(wait) THEN
            format('delaySeconds is %s; a whole number from 0 to 315360000 is right', wait) END;
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong;
    END IF;
    INSERT INTO {s}.outbox (queue, high, due, id, pool, grp, tenant, body) VALUES (
        q, coalesce((message ->> 'highPriority')::boolean, false),
        clock_timestamp() + wait::float8 * interval '1 second',
        convert_to(message ->> 'id', 'UTF8'),
        convert_to(coalesce({s}.name_in(message, 'poolCode'), 'DEFAULT-POOL'), 'UTF8'),
        convert_to(coalesce({s}.name_in(message, 'messageGroupId'), '__DEFAULT__'), 'UTF8'),
        convert_to(coalesce({s}.name_in(message, 'tenant'), ''), 'UTF8'),
        convert_to(message::text, 'UTF8'));
    PERFORM pg_notify('{s}_' || q, 'outbox');
END
$$;

-- Takes in what was published like that and is committed, in the order in which it was put in, some at a time; answers
-- how many. One at a time for each queue, so that none overtakes another.
CREATE FUNCTION {s}.take_in(q int, most int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    got record;
BEGIN
    IF NOT EXISTS (SELECT FROM {s}.outbox o WHERE o.queue = q) THEN
        RETURN 0;
    END IF;
    PERFORM FROM {s}.queues o WHERE o.id = q FOR UPDATE;
    WITH heads AS MATERIALIZED (
        SELECT f.number, sum(octet_length(f.body)) OVER (ORDER BY f.number) AS upto, row_number() OVER (ORDER BY f.number)
        FROM (SELECT o.number, o.body FROM {s}.outbox o WHERE o.queue = q ORDER BY o.number LIMIT most) f
    ), taken AS (
        DELETE FROM {s}.outbox o USING heads s
        WHERE o.number = s.number AND (s.row_number = 1 OR s.upto <= 16777216)
        RETURNING o.*
    )
    SELECT count(*)::int AS count, array_agg(id ORDER BY number) AS ids, array_agg(pool ORDER BY number) AS pools,
        array_agg(grp ORDER BY number) AS grps, array_agg(tenant ORDER BY number) AS tenants,
        array_agg(high ORDER BY number) AS highs, array_agg(body ORDER BY number) AS bodies,
        array_agg(greatest(0, {s}.micros(due) - {s}.micros(moment)) ORDER BY number) AS delays
    INTO got FROM taken;
    IF got.count > 0 THEN
        PERFORM {s}.publish(q, got.ids, got.pools, got.grps, got.tenants, got.highs, got.delays, got.bodies);
    END IF;
    RETURN got.count;
END
$$;

-- The name that services call without a schema, where this user may make it.
DO $$
BEGIN
    IF '{s}' = 'sluicegate' THEN
        CREATE OR REPLACE FUNCTION public.sluicegate_publish(queue text, message jsonb) RETURNS void
            LANGUAGE sql AS 'SELECT {s}.sluicegate_publish(queue, message)';
    END IF;
EXCEPTION WHEN insufficient_privilege OR invalid_schema_name OR invalid_function_definition THEN
    NULL;
END
$$;
