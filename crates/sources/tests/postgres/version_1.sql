-- Version 1: the tables. `{s}` is the schema.
--
-- A message is in one of three states:
--   0  nobody has looked at it: a publisher does not know which pools keep order
--   1  it was looked at, and its pool keeps no order
--   2  it belongs to a key (pool and group) of a pool that keeps order
-- In the states 0 and 1 it is claimed by itself; `until` is when it can be received: null is now,
-- and with a token it is the end of the claim. In state 2 its key is claimed instead, as a lease
-- on the whole group, and `until` is only the end of the message's own delay.
CREATE TABLE {s}.queues (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE
);
CREATE SEQUENCE {s}.numbers;
CREATE SEQUENCE {s}.tokens;
CREATE TABLE {s}.messages (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    until timestamptz,
    token bigint,
    -- Within a key: 0 was out, 1 is of high priority, 2 is regular, 3 is of high priority and late.
    -- The place orders within a rank: the number, and for rank 3 the time in microseconds.
    place bigint NOT NULL,
    queue int NOT NULL,
    holder int,
    attempts int NOT NULL,
    state smallint NOT NULL,
    rank smallint NOT NULL,
    high boolean NOT NULL,
    reason text,
    id bytea NOT NULL,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    body bytea NOT NULL
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.5,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX messages_fresh ON {s}.messages (queue, pool, seq) WHERE state = 0;
CREATE INDEX messages_ready ON {s}.messages (queue, seq) WHERE state < 2 AND until IS NULL;
CREATE INDEX messages_later ON {s}.messages (queue, until, seq) WHERE state < 2 AND until IS NOT NULL;
CREATE INDEX messages_key ON {s}.messages (queue, pool, grp, rank, place) WHERE state = 2;
-- A key of a pool that keeps order: there is a row while there are messages. It can be claimed from
-- `until` on. With a token, `head` is out until then.
CREATE TABLE {s}.keys (
    queue int NOT NULL,
    holder int,
    until timestamptz NOT NULL,
    head bigint NOT NULL,
    token bigint,
    pool bytea NOT NULL,
    grp bytea NOT NULL,
    PRIMARY KEY (queue, pool, grp)
) WITH (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX keys_until ON {s}.keys (queue, until, head);
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
-- Version 1: what is done to the tables. Each call is one statement, and so all or nothing.
--
-- Whoever claims for pools that keep order holds the queue's advisory lock to the end of its
-- transaction. Under it alone messages enter and leave keys, keys are made and deleted, and heads are
-- chosen: no claimer ever sees half of what another one does, and none takes a later message because
-- an earlier one is locked. Settling needs no such lock: it frees the key's row, and the next claim
-- chooses. Plans must not depend on statistics that were taken while the tables were empty, so only
-- what goes by an index is left to the planner.

-- A time as a number, to compare it with places.
CREATE FUNCTION {s}.micros(moment timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT (extract(epoch FROM moment) * 1000000)::bigint
$$;

-- The message of a key that is next, and from when on.
CREATE FUNCTION {s}.head_of(q int, of_pool bytea, of_grp bytea, moment timestamptz)
RETURNS TABLE (seq bigint, due timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT c.seq, c.due FROM (
        (SELECT 0 AS class, m.seq, m.until AS due FROM {s}.messages m
         WHERE m.state = 2 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 0
         -- One that is out since before order was kept holds the key.
         ORDER BY (m.token IS NOT NULL AND m.until > moment) DESC, m.place LIMIT 1)
        UNION ALL
        (SELECT 1, m.seq, NULL FROM {s}.messages m
         WHERE m.state = 2 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 1
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 1, m.seq, NULL FROM {s}.messages m
         WHERE m.state = 2 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 3
           AND m.place <= {s}.micros(moment)
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 2, m.seq, m.until FROM {s}.messages m
         WHERE m.state = 2 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 2
         ORDER BY m.place LIMIT 1)
        UNION ALL
        (SELECT 3, m.seq, m.until FROM {s}.messages m
         WHERE m.state = 2 AND m.queue = q AND m.pool = of_pool AND m.grp = of_grp AND m.rank = 3
           AND m.place > {s}.micros(moment)
         ORDER BY m.place LIMIT 1)
    ) c ORDER BY c.class, c.seq LIMIT 1
$$;

-- Puts messages into their keys. Under the queue's lock.
CREATE FUNCTION {s}.fold(q int, seqs bigint[], moment timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    pools bytea[];
    grps bytea[];
BEGIN
    WITH folded AS (
        UPDATE {s}.messages m SET
            state = 2,
            rank = CASE WHEN m.state = 1 THEN 0 WHEN NOT m.high THEN 2 WHEN m.until > moment THEN 3 ELSE 1 END,
            place = CASE WHEN m.state = 0 AND m.high AND m.until > moment THEN {s}.micros(m.until) ELSE m.seq END
        WHERE m.seq = ANY (seqs)
        RETURNING m.seq, m.at, m.pool, m.grp
    ), found AS (
        SELECT pool, grp, min(seq) AS head, least(min(at), moment) AS until FROM folded GROUP BY pool, grp
    ), made AS (
        INSERT INTO {s}.keys (queue, pool, grp, head, until)
        SELECT q, pool, grp, head, until FROM found
        ON CONFLICT (queue, pool, grp) DO NOTHING
    )
    SELECT array_agg(pool), array_agg(grp) INTO pools, grps FROM found;
    -- A key that waits for a late head may have a better one now. One that is being settled is free
    -- anyway, so it is passed over.
    UPDATE {s}.keys k SET until = moment FROM (
        SELECT k.queue, k.pool, k.grp FROM unnest(pools, grps) AS f (pool, grp)
        JOIN {s}.keys k ON k.queue = q AND k.pool = f.pool AND k.grp = f.grp
        WHERE k.token IS NULL AND k.until > moment
        FOR UPDATE OF k SKIP LOCKED
    ) f WHERE k.queue = f.queue AND k.pool = f.pool AND k.grp = f.grp;
END
$$;

-- Claims messages. Answers one row without a number, and how long to wait, if there are none.
CREATE FUNCTION {s}.claim(q int, strict bytea[], most int, most_bytes bigint, span bigint, who int)
RETURNS TABLE (seq bigint, token bigint, attempts int, again boolean, id bytea, grp bytea, body bytea, rest bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    mark bigint;
    pools bytea[];
    grps bytea[];
    heads bigint[] := '{}';
    free bigint[];
    known bigint[] := '{}';
    known_free bigint[];
    astray bigint[];
    chosen bigint[];
    next_time timestamptz;
    changed boolean;
BEGIN
    IF cardinality(strict) > 0 THEN
        PERFORM pg_advisory_xact_lock({lock}, q);
        moment := clock_timestamp();
        SELECT array_agg(m.seq) INTO astray FROM unnest(strict) AS s (pool), LATERAL (
            SELECT seq FROM {s}.messages m
            WHERE m.queue = q AND m.state = 0 AND m.pool = s.pool ORDER BY m.seq LIMIT 500
        ) m;
        IF astray IS NOT NULL THEN
            PERFORM {s}.fold(q, astray, moment);
        END IF;
        FOR round IN 1..8 LOOP
            -- Keys whose head is late wait for it, and empty ones go. Both make room for others.
            -- They are locked by a statement of their own: what is chosen must be seen as of later.
            SELECT array_agg(k.pool), array_agg(k.grp) INTO pools, grps FROM (
                SELECT pool, grp FROM {s}.keys
                WHERE queue = q AND until <= moment AND pool = ANY (strict)
                ORDER BY until, head LIMIT most FOR UPDATE SKIP LOCKED
            ) k;
            WITH k AS MATERIALIZED (
                SELECT k.pool, k.grp, k.head, k.token FROM unnest(pools, grps) AS f (pool, grp)
                JOIN {s}.keys k ON k.queue = q AND k.pool = f.pool AND k.grp = f.grp
            ), h AS MATERIALIZED (
                -- The head of a lease that has ended stays the head.
                SELECT k.pool, k.grp, o.seq IS NOT NULL AS was_out, coalesce(o.seq, h.seq) AS seq,
                    CASE WHEN o.seq IS NULL THEN h.due END AS due
                FROM k
                LEFT JOIN {s}.messages o ON o.seq = k.head AND k.token IS NOT NULL AND o.state = 2
                LEFT JOIN LATERAL {s}.head_of(q, k.pool, k.grp, moment) h ON true
            ), empty AS (
                DELETE FROM {s}.keys k USING h
                WHERE k.queue = q AND k.pool = h.pool AND k.grp = h.grp AND h.seq IS NULL
                RETURNING 1
            ), late AS (
                UPDATE {s}.keys k SET token = NULL, holder = NULL, head = h.seq,
                    until = least(h.due, (
                        SELECT m.until FROM {s}.messages m
                        WHERE m.state = 2 AND m.queue = q AND m.pool = h.pool AND m.grp = h.grp AND m.rank = 3
                          AND m.place > {s}.micros(moment)
                        ORDER BY m.place LIMIT 1))
                FROM h
                WHERE k.queue = q AND k.pool = h.pool AND k.grp = h.grp AND h.due > moment
                RETURNING 1
            )
            SELECT coalesce(array_agg(h.seq) FILTER (WHERE h.due IS NULL OR h.due <= moment), '{}'),
                coalesce(array_agg(h.seq) FILTER (WHERE h.was_out), '{}'),
                EXISTS (SELECT FROM empty) OR EXISTS (SELECT FROM late)
            INTO heads, known, changed FROM h WHERE h.seq IS NOT NULL;
            EXIT WHEN NOT changed OR cardinality(heads) >= most;
        END LOOP;
    END IF;
    WITH late AS MATERIALIZED (
        SELECT seq, state, pool FROM {s}.messages
        WHERE queue = q AND state < 2 AND until <= moment
        ORDER BY until, seq LIMIT most FOR UPDATE SKIP LOCKED
    ), ready AS MATERIALIZED (
        SELECT seq, state, pool FROM {s}.messages
        WHERE queue = q AND state < 2 AND until IS NULL AND NOT (state = 0 AND pool = ANY (strict))
        ORDER BY seq LIMIT most FOR UPDATE SKIP LOCKED
    ), both_of AS (SELECT * FROM late UNION ALL SELECT * FROM ready)
    SELECT array_agg(seq) FILTER (WHERE pool <> ALL (strict)),
        array_agg(seq) FILTER (WHERE state = 1),
        array_agg(seq) FILTER (WHERE pool = ANY (strict))
    INTO free, known_free, astray FROM both_of;
    -- They were claimed by someone who did not keep order yet.
    IF astray IS NOT NULL THEN
        PERFORM {s}.fold(q, astray, moment);
    END IF;
    SELECT array_agg(c.seq) INTO chosen FROM (
        SELECT m.seq, row_number() OVER w AS n, sum(octet_length(m.body)) OVER w AS bytes
        FROM {s}.messages m WHERE m.seq = ANY (heads || free)
        WINDOW w AS (ORDER BY m.seq)
    ) c WHERE c.n <= most AND (c.n = 1 OR c.bytes <= most_bytes);
    IF chosen IS NULL THEN
        SELECT min(u.until) INTO next_time FROM (
            (SELECT until FROM {s}.messages
             WHERE queue = q AND state < 2 AND until > moment ORDER BY until LIMIT 1)
            UNION ALL
            (SELECT until FROM {s}.keys WHERE queue = q AND until > moment ORDER BY until, head LIMIT 1)
        ) u;
        rest := CASE WHEN astray IS NOT NULL OR changed THEN 0
            ELSE {s}.micros(next_time) - {s}.micros(clock_timestamp()) END;
        RETURN NEXT;
        RETURN;
    END IF;
    mark := nextval('{s}.tokens');
    UPDATE {s}.keys k SET token = mark, holder = who, head = m.seq, until = moment + span * interval '1 microsecond'
    FROM {s}.messages m
    WHERE m.seq = ANY (chosen) AND m.seq = ANY (heads) AND k.queue = q AND k.pool = m.pool AND k.grp = m.grp;
    -- One that was out since before order was kept: its receipt is not valid any more.
    UPDATE {s}.messages m SET token = NULL, holder = NULL, until = NULL
    WHERE m.seq = ANY (chosen) AND m.state = 2 AND m.token IS NOT NULL;
    UPDATE {s}.messages m SET state = 1, token = mark, holder = who, until = moment + span * interval '1 microsecond'
    WHERE m.seq = ANY (chosen) AND m.state < 2;
    RETURN QUERY
        SELECT m.seq, mark, m.attempts, m.rank = 0 OR m.seq = ANY (known || known_free),
            m.id, m.grp, m.body, NULL::bigint
        FROM {s}.messages m WHERE m.seq = ANY (chosen) ORDER BY m.seq;
END
$$;

-- Settles deliveries: 0 is gone, 1 comes again, 2 is buried. Without a number of tries it comes again
-- as if it had never been out. Answers those that were settled.
CREATE FUNCTION {s}.settle(
    seqs bigint[], marks bigint[], endings smallint[], afters bigint[], tries int[], reasons text[]
) RETURNS TABLE (seq bigint, mark bigint, freed boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    ours bigint[];
BEGIN
    WITH f AS (
        UPDATE {s}.keys k SET token = NULL, holder = NULL,
            until = moment + i.after * interval '1 microsecond'
        FROM unnest(seqs, marks, afters) AS i (seq, mark, after), {s}.messages m
        WHERE m.seq = i.seq AND m.state = 2
          AND k.queue = m.queue AND k.pool = m.pool AND k.grp = m.grp AND k.head = i.seq AND k.token = i.mark
        RETURNING i.seq
    )
    SELECT coalesce(array_agg(f.seq), '{}') INTO ours FROM f;
    RETURN QUERY
    WITH i AS MATERIALIZED (
        SELECT * FROM unnest(seqs, marks, endings, afters, tries, reasons)
            AS i (seq, mark, ending, after, tries, reason)
    ), gone AS (
        DELETE FROM {s}.messages m USING i
        WHERE m.seq = i.seq AND i.ending <> 1 AND (m.token = i.mark OR m.seq = ANY (ours))
        RETURNING m.*, i.ending, i.mark
    ), dead AS (
        INSERT INTO {s}.buried (seq, queue, at, buried_at, attempts, id, pool, grp, body)
        SELECT seq, queue, at, moment, attempts, id, pool, grp, body FROM gone WHERE ending = 2
    ), back AS (
        UPDATE {s}.messages m SET token = NULL, holder = NULL,
            until = CASE WHEN i.after > 0 THEN moment + i.after * interval '1 microsecond' END,
            attempts = coalesce(i.tries, m.attempts),
            reason = coalesce(i.reason, m.reason),
            rank = CASE WHEN m.state = 2 AND i.tries IS NOT NULL THEN 0 ELSE m.rank END,
            place = CASE WHEN m.state = 2 AND i.tries IS NOT NULL THEN m.seq ELSE m.place END
        FROM i
        WHERE m.seq = i.seq AND i.ending = 1 AND (m.token = i.mark OR m.seq = ANY (ours))
        RETURNING m.seq, i.mark, m.queue, m.state, m.pool, m.grp
    ), done AS (
        SELECT seq, mark, queue, state, pool, grp FROM gone
        UNION ALL SELECT seq, mark, queue, state, pool, grp FROM back
    ), poked AS (
        UPDATE {s}.keys k SET until = moment FROM done d
        WHERE d.state = 2 AND d.seq <> ALL (ours) AND k.token IS NULL
          AND k.queue = d.queue AND k.pool = d.pool AND k.grp = d.grp
    )
    SELECT d.seq, d.mark, d.state = 2 FROM done d;
END
$$;

-- Begins windows anew. Answers those that were valid.
CREATE FUNCTION {s}.extend(seqs bigint[], marks bigint[], span bigint) RETURNS TABLE (seq bigint, mark bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    ends timestamptz := clock_timestamp() + span * interval '1 microsecond';
BEGIN
    RETURN QUERY
        UPDATE {s}.keys k SET until = ends
        FROM unnest(seqs, marks) AS i (seq, mark), {s}.messages m
        WHERE m.seq = i.seq AND m.state = 2
          AND k.queue = m.queue AND k.pool = m.pool AND k.grp = m.grp AND k.head = i.seq AND k.token = i.mark
        RETURNING i.seq, i.mark;
    RETURN QUERY
        UPDATE {s}.messages m SET until = ends
        FROM unnest(seqs, marks) AS i (seq, mark)
        WHERE m.seq = i.seq AND m.token = i.mark
        RETURNING i.seq, i.mark;
END
$$;

-- Fits messages to which pools keep order, some at a time. Answers how many; at zero it is done.
CREATE FUNCTION {s}.reorder(q int, strict bytea[], most int) RETURNS int
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    seqs bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock({lock}, q);
    moment := clock_timestamp();
    SELECT array_agg(m.seq) INTO seqs FROM (
        SELECT seq FROM {s}.messages
        WHERE queue = q AND state = 1 AND pool = ANY (strict) LIMIT most
    ) m;
    IF seqs IS NOT NULL THEN
        PERFORM {s}.fold(q, seqs, moment);
        RETURN cardinality(seqs);
    END IF;
    SELECT array_agg(m.seq) INTO seqs FROM (
        SELECT seq FROM {s}.messages
        WHERE queue = q AND state = 2 AND pool <> ALL (strict) LIMIT most
    ) m;
    IF seqs IS NULL THEN
        DELETE FROM {s}.keys WHERE queue = q AND pool <> ALL (strict);
        RETURN 0;
    END IF;
    UPDATE {s}.messages m SET
        state = CASE WHEN m.rank = 0 OR k.token IS NOT NULL THEN 1 ELSE 0 END,
        rank = 2,
        place = m.seq,
        token = coalesce(k.token, m.token),
        holder = coalesce(k.holder, m.holder),
        until = coalesce(k.until, m.until)
    FROM unnest(seqs) AS s (seq)
    JOIN {s}.messages o ON o.seq = s.seq
    LEFT JOIN {s}.keys k
        ON k.queue = q AND k.pool = o.pool AND k.grp = o.grp AND k.head = o.seq AND k.token IS NOT NULL
    WHERE m.seq = o.seq;
    RETURN cardinality(seqs);
END
$$;
