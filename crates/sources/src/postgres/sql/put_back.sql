-- Version 4: putting back.

-- Stores messages again that were handed out before: each is recognised by a name of its own, and found by its id.
-- That is no reason to take a new message of the same id for a duplicate.
CREATE OR REPLACE FUNCTION {s}.put_back(
    q int, names bytea[], ids bytea[], pools bytea[], grps bytea[], tenants bytea[], highs boolean[], bodies bytea[]
) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM {s}.publish(q, names, pools, grps, tenants, highs, array_fill(0::bigint, ARRAY[cardinality(names)]), bodies);
    -- Whoever did not hear the answer asks again, perhaps much later: a name is remembered for longer than an id.
    UPDATE {s}.ids i SET at = clock_timestamp() + interval '30 days' WHERE i.queue = q AND i.id = ANY (names);
    INSERT INTO {s}.ids (queue, id, seq, at)
    SELECT DISTINCT ON (i.id) q, i.id, n.seq, '-infinity'::timestamptz
    FROM unnest(ids, names) WITH ORDINALITY AS i (id, name, ord)
    JOIN {s}.ids n ON n.queue = q AND n.id = i.name
    ORDER BY i.id, i.ord
    -- Also where the message itself is still there: its settlement is under way.
    ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq;
END
$$;
