-- Version 2: publishing.

-- Sees to it that messages that are stored by now are found by their keys. Their transaction must have begun to
-- write before this looks: see `confirm`.
CREATE FUNCTION {s}.touch(q int, pools bytea[], grps bytea[], heads bigint[], highs boolean[], tenants bytea[])
RETURNS void
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_nestloop = on
AS $$
DECLARE
    n bigint;
BEGIN
    -- Those that wait for nothing, for something later, or behind others of their tenant.
    FOR n IN
        SELECT i.ord FROM unnest(pools, grps, highs) WITH ORDINALITY AS i (pool, grp, high, ord),
        LATERAL (
            SELECT k.state, k.rank, k.high FROM {s}.keys k
            WHERE k.queue = q AND k.pool = i.pool AND k.grp = i.grp OFFSET 0
        ) o
        WHERE o.state = 3 OR o.state = 2 AND (o.rank = 4 OR i.high AND o.rank > 1) OR o.state = 0 AND i.high AND NOT o.high
        ORDER BY i.pool, i.grp
    LOOP
        UPDATE {s}.keys k SET state = 0, until = NULL, stamp = NULL, looks = 0,
            head = CASE WHEN k.state = 3 THEN heads[n] ELSE k.head END,
            tenant = CASE WHEN k.state = 3 THEN tenants[n] ELSE k.tenant END,
            high = CASE WHEN k.state = 3 THEN highs[n] ELSE k.high OR highs[n] END
        WHERE k.queue = q AND k.pool = pools[n] AND k.grp = grps[n] AND (
            k.state + 0 = 3 OR k.state + 0 = 2 AND (k.rank = 4 OR highs[n] AND k.rank > 1)
            OR k.state + 0 = 0 AND highs[n]);
    END LOOP;
    -- With a later snapshot: one that was just about to go is gone. To try to insert what is there would wait
    -- for whoever has it.
    INSERT INTO {s}.keys (queue, state, rank, high, loose, head, pool, grp, tenant)
    SELECT q, 0, CASE WHEN i.high THEN 2 ELSE 3 END, i.high, i.grp = '__DEFAULT__'::bytea, i.head, i.pool, i.grp, i.tenant
    FROM unnest(pools, grps, heads, highs, tenants) AS i (pool, grp, head, high, tenant)
    WHERE NOT EXISTS (
        SELECT FROM {s}.keys o WHERE o.queue = q AND o.pool = i.pool AND o.grp = i.grp OFFSET 0)
    ORDER BY i.pool, i.grp
    ON CONFLICT (queue, pool, grp) DO NOTHING;
END
$$;

-- Stores messages; answers how many of them were new. Ids are taken in the order of their bytes, so that none
-- waits for another that waits for it. An id is remembered for five minutes.
CREATE FUNCTION {s}.publish(
    q int, ids bytea[], pools bytea[], grps bytea[], tenants bytea[], highs boolean[], delays bigint[], bodies bytea[]
) RETURNS bigint
LANGUAGE plpgsql
SET jit = off SET enable_nestloop = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    of_pools bytea[];
    of_grps bytea[];
    of_heads bigint[];
    of_highs boolean[];
    of_tenants bytea[];
    stored_count bigint;
BEGIN
    WITH input AS MATERIALIZED (
        SELECT i.*, moment + i.delay * interval '1 microsecond' AS due
        FROM unnest(ids, pools, grps, tenants, highs, delays, bodies)
            WITH ORDINALITY AS i (id, pool, grp, tenant, high, delay, body, ord)
    ), firsts AS (
        SELECT min(ord) AS ord FROM input GROUP BY id
    ), numbered AS MATERIALIZED (
        SELECT nextval('{s}.numbers') AS seq, ord FROM (SELECT ord FROM firsts ORDER BY ord) o
    ), fresh AS (
        INSERT INTO {s}.ids AS known (queue, id, seq, at)
        SELECT q, i.id, n.seq, moment FROM numbered n JOIN input i USING (ord) ORDER BY i.id
        ON CONFLICT (queue, id) DO UPDATE SET seq = excluded.seq, at = excluded.at
            WHERE known.at <= excluded.at - interval '5 minutes'
        RETURNING seq
    ), stored AS (
        INSERT INTO {s}.messages
            (seq, at, until, place, queue, attempts, rank, high, loose, reason, id, pool, grp, tenant, body)
        SELECT n.seq, moment, CASE WHEN i.delay > 0 THEN i.due END,
            CASE WHEN i.high AND i.delay > 0 THEN {s}.micros(i.due) ELSE n.seq END,
            q, 0, CASE WHEN NOT i.high THEN 3 WHEN i.delay > 0 THEN 4 ELSE 2 END, i.high,
            i.grp = '__DEFAULT__'::bytea, CASE WHEN i.delay > 0 THEN 'scheduled' END,
            i.id, i.pool, i.grp, i.tenant, i.body
        FROM fresh f JOIN numbered n USING (seq) JOIN input i USING (ord) ORDER BY n.seq
        RETURNING seq, pool, grp, tenant, high
    ), found AS (
        SELECT pool, grp, min(seq) AS head, bool_or(high) AS high, count(*) AS count,
            (array_agg(tenant ORDER BY seq))[1] AS tenant
        FROM stored GROUP BY pool, grp
    )
    SELECT array_agg(pool), array_agg(grp), array_agg(head), array_agg(high), array_agg(tenant),
        coalesce(sum(count), 0)
    INTO of_pools, of_grps, of_heads, of_highs, of_tenants, stored_count FROM found;
    IF stored_count > 0 THEN
        PERFORM {s}.touch(q, of_pools, of_grps, of_heads, of_highs, of_tenants);
    END IF;
    RETURN stored_count;
END
$$;
