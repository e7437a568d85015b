-- Version 1: reading. Plans must not depend on statistics that were taken while the tables were empty, so only what
-- goes by an index is left to the planner.

-- The positions of the first events after `low`, up to `high`, of one of the types, if there are any, that have all the
-- tags. At most so many.
--
-- A leap goes to the first position that no list of keys rules out as far as it is asked, and then a block of the list
-- that leaped last is looked at row by row. While leaps skip less than blocks cover, blocks grow.
CREATE FUNCTION {s}.match_events(of_tags text[], of_types text[], low bigint, high bigint, most int) RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    found_here bigint[] := '{}';
    more bigint[];
    here bigint := low + 1;
    far bigint;
    leaped bigint;
    of_type bigint;
    ahead text;
    driver text;
    block int := 16;
    seen bigint;
    last bigint;
BEGIN
    IF cardinality(of_tags) = 0 AND cardinality(of_types) = 0 THEN
        RETURN ARRAY(SELECT e.position FROM {s}.events e WHERE e.position > low AND e.position <= high
            ORDER BY e.position LIMIT most);
    ELSIF cardinality(of_tags) = 0 THEN
        RETURN ARRAY(SELECT k.position FROM unnest(of_types) AS t (name), LATERAL (
                SELECT o.position FROM {s}.event_keys o
                WHERE o.key = ':' || t.name AND o.position > low AND o.position <= high
                ORDER BY o.position LIMIT most
            ) k ORDER BY k.position LIMIT most);
    ELSIF cardinality(of_tags) = 1 AND cardinality(of_types) = 0 THEN
        RETURN ARRAY(SELECT o.position FROM {s}.event_keys o
            WHERE o.key = of_tags[1] AND o.position > low AND o.position <= high ORDER BY o.position LIMIT most);
    END IF;
    WHILE here <= high AND cardinality(found_here) < most LOOP
        leaped := here;
        FOR n IN 1 .. 4 LOOP
            SELECT CASE WHEN count(*) = count(k.position) THEN max(k.position) END,
                (array_agg(t.key ORDER BY k.position DESC NULLS LAST))[1]
            INTO far, ahead
            FROM unnest(of_tags) AS t (key) LEFT JOIN LATERAL (
                SELECT o.position FROM {s}.event_keys o WHERE o.key = t.key AND o.position >= here
                ORDER BY o.position LIMIT 1
            ) k ON true;
            IF far IS NULL THEN
                RETURN found_here;
            ELSIF far > here OR driver IS NULL THEN
                driver := ahead;
            END IF;
            IF cardinality(of_types) > 0 THEN
                SELECT min(k.position) INTO of_type FROM unnest(of_types) AS t (name), LATERAL (
                    SELECT o.position FROM {s}.event_keys o WHERE o.key = ':' || t.name AND o.position >= far
                    ORDER BY o.position LIMIT 1
                ) k;
                IF of_type IS NULL THEN
                    RETURN found_here;
                END IF;
                far := of_type;
            END IF;
            EXIT WHEN far = here;
            here := far;
        END LOOP;
        leaped := here - leaped;
        SELECT count(*), max(d.position), array_agg(d.position ORDER BY d.position) FILTER (WHERE e.position IS NOT NULL)
        INTO seen, last, more
        FROM (
            SELECT o.position FROM {s}.event_keys o
            WHERE o.key = driver AND o.position >= here AND o.position <= high ORDER BY o.position LIMIT block
        ) d LEFT JOIN {s}.events e ON e.position = d.position AND e.tags @> of_tags
            AND (cardinality(of_types) = 0 OR e.type = ANY (of_types));
        found_here := found_here || more;
        IF seen < block THEN
            RETURN found_here[:most];
        END IF;
        block := CASE WHEN leaped > last - here THEN 32 ELSE least(block * 4, 4096) END;
        here := last + 1;
    END LOOP;
    RETURN found_here[:most];
END
$$;

-- The first events after `low`, up to `high`, that one of the items asks for, or all; at most so many, and no more once
-- they have so many bytes. An item is two arrays that are written as text. `matched` is how many there were before
-- their bytes were counted.
CREATE FUNCTION {s}.read_events(item_tags text[], item_types text[], low bigint, high bigint, most int, most_bytes bigint)
RETURNS TABLE ("position" bigint, "time" timestamptz, type text, tags text[], data text, matched int)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    places bigint[];
BEGIN
    IF cardinality(item_tags) = 1 THEN
        places := {s}.match_events(item_tags[1]::text[], item_types[1]::text[], low, high, most);
    ELSE
        places := ARRAY(
            SELECT DISTINCT p.place FROM unnest(item_tags, item_types) AS i (tags, types),
                unnest({s}.match_events(i.tags::text[], i.types::text[], low, high, most)) AS p (place)
            ORDER BY p.place LIMIT most);
    END IF;
    RETURN QUERY
    SELECT r.position, r.time, r.type, r.tags, r.data::text, cardinality(places) FROM (
        SELECT e.*, sum(e.bytes) OVER (ORDER BY e.position ROWS UNBOUNDED PRECEDING) - e.bytes AS before
        FROM {s}.events e WHERE e.position = ANY (places)
    ) r WHERE r.before < most_bytes ORDER BY r.position;
END
$$;

-- Where appends begin that were made after `low`, by their tokens.
CREATE FUNCTION {s}.find_appends(tokens bigint[], low bigint) RETURNS TABLE (token bigint, "position" bigint)
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
    SELECT e.token, e.position FROM {s}.events e WHERE e.position > low AND e.token = ANY (tokens)
$$;

-- Where the last event stands, or zero.
CREATE FUNCTION {s}.head_of_events() RETURNS bigint
LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
    SELECT coalesce(max(e.position), 0) FROM {s}.events e
$$;
