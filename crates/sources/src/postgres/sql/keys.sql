-- Version 2: keys. Whoever changes a key or the order of its messages holds a lock on its row, from before it
-- looks at the messages. Who locks several does so in the order of pools and groups; who claims waits for none.
-- Plans must not depend on statistics that were taken while the tables were empty, so only what goes by an
-- index is left to the planner.

-- A time as a number, to compare it with places.
CREATE FUNCTION {s}.micros(moment timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT (extract(epoch FROM moment) * 1000000)::bigint
$$;

-- The message of a key that is next. One that is out holds the key, whoever claimed it.
CREATE FUNCTION {s}.head_of(q int, of_pool bytea, of_grp bytea, moment timestamptz)
RETURNS TABLE (seq bigint, until timestamptz, rank smallint, high boolean, tenant bytea, size int, is_out boolean)
LANGUAGE sql STABLE AS $$
    SELECT c.seq, c.until, c.rank, c.high, c.tenant, c.size, c.class = 0
    FROM (
        SELECT m.rank FROM {s}.messages m
        WHERE m.queue = q AND m.pool = of_pool AND m.grp = of_grp ORDER BY m.rank, m.place LIMIT 1
    ) f, LATERAL (
        (SELECT 0 AS class, m.seq, m.until, m.rank, m.high, m.tenant, m.place, octet_length(m.body) AS size
         FROM {s}.messages m
         WHERE f.rank = 0 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 0
           AND m.until > moment
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 1, m.seq, NULL, m.rank, m.high, m.tenant, m.place, octet_length(m.body) FROM {s}.messages m
         WHERE f.rank = 0 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 0
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 1, m.seq, m.until, m.rank, m.high, m.tenant, m.place, octet_length(m.body) FROM {s}.messages m
         WHERE f.rank <= 1 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 1
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 2, m.seq, m.until, m.rank, m.high, m.tenant, m.place, octet_length(m.body) FROM {s}.messages m
         WHERE f.rank = 2 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 2
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 3, m.seq, NULL, m.rank, m.high, m.tenant, m.place, octet_length(m.body) FROM {s}.messages m
         WHERE f.rank IN (3, 4) AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 4
           AND m.place <= {s}.micros(moment)
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 4, m.seq, m.until, m.rank, m.high, m.tenant, m.place, octet_length(m.body) FROM {s}.messages m
         WHERE f.rank IN (3, 4) AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = f.rank
         ORDER BY m.place LIMIT 1)
    ) c ORDER BY c.class, c.place LIMIT 1
$$;

-- Looks at keys that are locked, by where their rows are: what their heads are, and so what they are.
-- Answers how many can be claimed.
CREATE FUNCTION {s}.look(rows tid[], queues int[], pools bytea[], grps bytea[], moment timestamptz) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    h record;
    soon timestamptz;
    ready int := 0;
BEGIN
    FOR n IN 1 .. coalesce(cardinality(rows), 0) LOOP
        SELECT o.* INTO h FROM {s}.head_of(queues[n], pools[n], grps[n], moment) o;
        IF h.seq IS NULL THEN
            UPDATE {s}.keys k SET state = 3, until = NULL, stamp = NULL, looks = 0 WHERE k.ctid = rows[n];
        ELSIF h.is_out THEN
            -- Nobody tells of one that is out without its key.
            UPDATE {s}.keys k SET state = 2, until = least(h.until, moment + interval '250 milliseconds'),
                head = h.seq, rank = h.rank, high = h.high, tenant = h.tenant, looks = 0, stamp = NULL
            WHERE k.ctid = rows[n];
        ELSIF h.until > moment THEN
            -- One who publishes may not have seen that it waits, so it is looked at again soon, and then less
            -- and less often.
            SELECT m.until INTO soon FROM {s}.messages m
            WHERE m.queue = queues[n] AND m.pool = pools[n] AND m.grp = grps[n]
              AND m.rank = 4 AND m.place > {s}.micros(moment)
            ORDER BY m.place LIMIT 1;
            UPDATE {s}.keys k SET state = 2,
                until = least(h.until, soon, moment + interval '200 milliseconds' * 16 ^ least(k.looks, 8)),
                head = h.seq, rank = h.rank, high = h.high, tenant = h.tenant, looks = least(k.looks + 1, 100),
                stamp = NULL
            WHERE k.ctid = rows[n];
        ELSE
            UPDATE {s}.keys k SET state = 0, until = NULL, head = h.seq, rank = h.rank, high = h.high,
                tenant = h.tenant, looks = 0, stamp = NULL
            WHERE k.ctid = rows[n];
            ready := ready + 1;
        END IF;
    END LOOP;
    RETURN ready;
END
$$;

-- What was late or out until now can be received. Answers whether there may be more of it.
CREATE FUNCTION {s}.ripen(q int, moment timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    rows tid[];
    seqs bigint[];
BEGIN
    SELECT array_agg(f.ctid) INTO rows FROM (
        SELECT o.ctid FROM {s}.keys o
        WHERE o.queue = q AND o.until <= moment ORDER BY o.until LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED
    ) f;
    IF rows IS NOT NULL THEN
        UPDATE {s}.keys k SET state = 0, until = NULL WHERE k.ctid = ANY (rows);
    END IF;
    SELECT array_agg(f.seq) INTO seqs FROM (
        SELECT o.seq FROM {s}.messages o
        WHERE o.queue = q AND o.until <= moment ORDER BY o.until, o.seq LIMIT 500 FOR UPDATE SKIP LOCKED
    ) f;
    IF seqs IS NOT NULL THEN
        UPDATE {s}.messages m SET until = NULL WHERE m.seq = ANY (seqs);
    END IF;
    RETURN coalesce(greatest(cardinality(rows), cardinality(seqs)) >= 500, false);
END
$$;

-- Keys of which there was no message. One who published meanwhile may not have seen that: the key goes only
-- when everyone is done who had begun to publish before it could be seen, and nothing has come of it.
CREATE FUNCTION {s}.confirm(q int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    rows tid[];
    used tid[];
BEGIN
    IF NOT EXISTS (SELECT FROM {s}.keys k WHERE k.queue = q AND k.state = 3) THEN
        RETURN;
    END IF;
    -- What came after all, where that is likely.
    SELECT array_agg(f.ctid) INTO used FROM (
        SELECT o.ctid FROM (
            SELECT r.ctid, r.pool, r.grp FROM {s}.keys r
            WHERE r.queue = q AND r.state = 3 AND r.stamp IS NOT NULL ORDER BY r.stamp DESC LIMIT 100
            FOR NO KEY UPDATE SKIP LOCKED
        ) o WHERE EXISTS (
            SELECT FROM {s}.messages m WHERE m.queue = q AND m.pool = o.pool AND m.grp = o.grp OFFSET 0)
    ) f;
    IF used IS NOT NULL THEN
        UPDATE {s}.keys k SET state = 0, stamp = NULL WHERE k.ctid = ANY (used);
    END IF;
    SELECT array_agg(f.ctid) FILTER (WHERE f.is_used), array_agg(f.ctid) FILTER (WHERE NOT f.is_used)
    INTO used, rows FROM (
        SELECT o.ctid, EXISTS (
            SELECT FROM {s}.messages m WHERE m.queue = q AND m.pool = o.pool AND m.grp = o.grp OFFSET 0
        ) AS is_used FROM (
            SELECT r.ctid, r.pool, r.grp FROM {s}.keys r
            WHERE r.queue = q AND r.state = 3 AND r.stamp < pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY r.stamp LIMIT 500 FOR UPDATE SKIP LOCKED
        ) o
    ) f;
    IF used IS NOT NULL THEN
        UPDATE {s}.keys k SET state = 0, stamp = NULL WHERE k.ctid = ANY (used);
    END IF;
    IF rows IS NOT NULL THEN
        DELETE FROM {s}.keys k WHERE k.ctid = ANY (rows);
    END IF;
    -- Who gets a number from now on sees it before its first look at keys.
    SELECT array_agg(f.ctid) INTO rows FROM (
        SELECT o.ctid FROM {s}.keys o
        WHERE o.queue = q AND o.state = 3 AND o.stamp IS NULL LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED
    ) f;
    IF rows IS NOT NULL THEN
        UPDATE {s}.keys k SET stamp = pg_snapshot_xmax(pg_current_snapshot()) WHERE k.ctid = ANY (rows);
    END IF;
END
$$;

-- Goes a few steps further through the keys, for those whose messages went without them. Answers where it stands,
-- and how many it looked at.
CREATE FUNCTION {s}.sweep_keys(q int, after_pool bytea, after_grp bytea, most int)
RETURNS TABLE (pool bytea, grp bytea, looked int)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    pools bytea[];
    grps bytea[];
    empty boolean[];
BEGIN
    SELECT array_agg(o.pool), array_agg(o.grp), array_agg(o.state + 0 = 0 AND NOT EXISTS (
        SELECT FROM {s}.messages m WHERE m.queue = q AND m.pool = o.pool AND m.grp = o.grp OFFSET 0))
    INTO pools, grps, empty FROM (
        SELECT k.state, k.pool, k.grp FROM {s}.keys k
        WHERE k.queue = q AND (k.pool, k.grp) > (after_pool, after_grp) ORDER BY k.queue, k.pool, k.grp LIMIT most
    ) o;
    looked := coalesce(cardinality(pools), 0);
    FOR n IN 1 .. looked LOOP
        IF empty[n] THEN
            UPDATE {s}.keys k SET state = 3, until = NULL, stamp = NULL
            WHERE k.queue = q AND k.pool = pools[n] AND k.grp = grps[n] AND k.state + 0 = 0;
        END IF;
    END LOOP;
    pool := pools[looked];
    grp := grps[looked];
    RETURN NEXT;
END
$$;
