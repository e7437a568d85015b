-- Version 1: appending. Processes of this version call it like this for ever: a change gets a name of its own.

-- Appends the events of several requests, each request by its own condition, and all that hold in this one
-- transaction, which must be nothing but this call.
--
-- Event n has the position `base + n`. Where `lost` has a position, the request's condition did not hold because of it,
-- and its events' positions stay empty; it is null if all hold.
--
-- A condition is rows of `list_*`: a key that its event has, and all its tags and types, written as text; no key, and
-- every event is one. A pair says that an event of an earlier request is one for the condition of a later.
CREATE FUNCTION {s}.append_events(
    owners int[], tokens bigint[], types text[], tags text[], datas text[], key_events int[], keys text[],
    list_owners int[], list_afters bigint[], list_keys text[], list_tags text[], list_types text[],
    pair_owners int[], pair_afters bigint[], pair_earlier int[], pair_events int[],
    OUT base bigint, OUT lost bigint[]
) LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET sluicegate.appends_to = '{s}'
AS $$
#variable_conflict use_variable
DECLARE
    total int := cardinality(types);
    moment timestamptz;
    hit record;
    conflict bigint;
    -- Of each request; owners ascend.
    none bigint[] := array_fill(NULL::bigint, ARRAY[owners[total]]);
BEGIN
    -- At other levels the snapshot is older than the lock, and what came meanwhile is not seen.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'append_events works at READ COMMITTED only, not at %', current_setting('transaction_isolation')
            USING ERRCODE = 'invalid_transaction_state';
    END IF;
    -- Who is told that events are there must find them there, whatever happens to the server.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_advisory_xact_lock({lock});
    IF cardinality(list_owners) > 0 THEN
        FOR hit IN
            SELECT l.owner, l.after, l.tags::text[] AS tags, l.types::text[] AS types, n.position
            FROM unnest(list_owners, list_afters, list_keys, list_tags, list_types) AS l (owner, after, key, tags, types),
            LATERAL (
                (SELECT k.position FROM {s}.event_keys k WHERE k.key = l.key AND k.position > l.after
                 ORDER BY k.position LIMIT 1)
                UNION ALL
                (SELECT e.position FROM {s}.events e WHERE l.key IS NULL AND e.position > l.after
                 ORDER BY e.position LIMIT 1)
            ) n
        LOOP
            CONTINUE WHEN lost[hit.owner] IS NOT NULL;
            conflict := hit.position;
            -- Without tags the key is all there is to ask for.
            IF cardinality(hit.tags) > 1 OR cardinality(hit.tags) = 1 AND cardinality(hit.types) > 0 THEN
                conflict := ({s}.match_events(hit.tags, hit.types, hit.position - 1, 9223372036854775807, 1))[1];
            END IF;
            IF conflict IS NOT NULL THEN
                lost := coalesce(lost, none);
                lost[hit.owner] := conflict;
            END IF;
        END LOOP;
    END IF;
    base := nextval('{s}.event_positions') - 1;
    -- Later requests come after earlier ones, so whether an earlier one holds is known.
    FOR n IN 1 .. cardinality(pair_owners) LOOP
        IF lost[pair_owners[n]] IS NULL AND lost[pair_earlier[n]] IS NULL AND base + pair_events[n] > pair_afters[n] THEN
            lost := coalesce(lost, none);
            lost[pair_owners[n]] := base + pair_events[n];
        END IF;
    END LOOP;
    IF total > 1 THEN
        PERFORM setval('{s}.event_positions', base + total);
    END IF;
    moment := clock_timestamp();
    INSERT INTO {s}.events (position, time, token, bytes, type, tags, data)
    SELECT base + i.n, moment, i.token, octet_length(i.type) + octet_length(i.tags) + octet_length(i.data), i.type,
        i.tags::text[], i.data::json
    FROM unnest(owners, tokens, types, tags, datas) WITH ORDINALITY AS i (owner, token, type, tags, data, n)
    WHERE lost IS NULL OR lost[i.owner] IS NULL;
    INSERT INTO {s}.event_keys (key, position)
    SELECT i.key, base + i.event FROM unnest(key_events, keys) AS i (event, key)
    WHERE lost IS NULL OR lost[owners[i.event]] IS NULL;
END
$$;
REVOKE ALL ON FUNCTION {s}.append_events FROM PUBLIC;
