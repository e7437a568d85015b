-- Version 3: settling.

-- Locks the keys of deliveries that are out as heads.
CREATE OR REPLACE FUNCTION {s}.lock_keys(
    seqs bigint[], marks bigint[], OUT rows tid[], OUT queues int[], OUT pools bytea[], OUT grps bytea[]
) LANGUAGE plpgsql AS $$
DECLARE
    k record;
    row_of tid;
BEGIN
    FOR k IN
        SELECT DISTINCT o.queue, o.pool, o.grp FROM unnest(seqs, marks) AS i (seq, mark), LATERAL (
            SELECT m.queue, m.pool, m.grp FROM {s}.messages m
            WHERE m.seq = i.seq AND m.token = i.mark AND m.keyed OFFSET 0
        ) o ORDER BY o.queue, o.pool, o.grp
    LOOP
        SELECT o.ctid INTO row_of FROM {s}.keys o
        WHERE o.queue = k.queue AND o.pool = k.pool AND o.grp = k.grp FOR NO KEY UPDATE;
        IF FOUND THEN
            rows := rows || row_of;
            queues := queues || k.queue;
            pools := pools || k.pool;
            grps := grps || k.grp;
        END IF;
    END LOOP;
END
$$;

-- Settles deliveries: 0 is gone, 1 comes again, 2 is buried. Without a number of tries it comes again
-- as if it had never been out. No number comes twice. Answers those that were settled, and whether something can be
-- claimed for that.
CREATE OR REPLACE FUNCTION {s}.settle(
    seqs bigint[], marks bigint[], endings smallint[], afters bigint[], tries int[], reasons text[]
) RETURNS TABLE (seq bigint, mark bigint, freed boolean)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    locked record;
    over bigint[];
    done bigint[];
    is_freed boolean;
BEGIN
    locked := {s}.lock_keys(seqs, marks);
    SELECT array_agg(i.seq) INTO over FROM unnest(seqs, endings) AS i (seq, ending) WHERE i.ending <> 1;
    WITH gone AS (
        DELETE FROM {s}.messages m
        WHERE m.seq = ANY (over) AND m.token = marks[array_position(seqs, m.seq)]
        RETURNING m.*
    ), dead AS (
        INSERT INTO {s}.buried (seq, queue, at, buried_at, attempts, id, pool, grp, body)
        SELECT seq, queue, at, moment, attempts, id, pool, grp, body FROM gone
        WHERE endings[array_position(seqs, seq)] = 2
    )
    SELECT array_agg(seq) INTO done FROM gone;
    FOR n IN 1 .. cardinality(seqs) LOOP
        CONTINUE WHEN endings[n] <> 1;
        UPDATE {s}.messages m SET token = NULL, holder = NULL, keyed = false, base = NULL, rests = NULL,
            until = CASE WHEN afters[n] > 0 THEN moment + afters[n] * interval '1 microsecond' END,
            attempts = coalesce(tries[n], m.attempts),
            reason = coalesce(reasons[n], m.reason),
            rank = CASE WHEN tries[n] IS NOT NULL THEN 1 ELSE coalesce(m.base, 1) END,
            place = m.seq
        WHERE m.seq = seqs[n] AND m.token = marks[n];
        IF FOUND THEN
            done := done || seqs[n];
        END IF;
    END LOOP;
    is_freed := {s}.look(locked.rows, locked.queues, locked.pools, locked.grps, clock_timestamp()) > 0;
    RETURN QUERY SELECT d.seq, marks[array_position(seqs, d.seq)], is_freed FROM unnest(done) AS d (seq);
END
$$;

-- Ends the claims of those that died. They are expired, not undone: the heads of their keys stay heads. What rests is
-- late, as if it had been settled like that.
-- A server that has just started has not seen anybody yet. Answers how many claims ended.
CREATE OR REPLACE FUNCTION {s}.bury_the_dead() RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    dead int[];
    seqs bigint[];
    marks bigint[];
BEGIN
    SELECT array_agg(d.id) INTO dead FROM (
        SELECT i.id FROM {s}.instances i
        WHERE i.seen < moment - interval '15 seconds'
          AND pg_postmaster_start_time() < moment - interval '15 seconds'
          AND NOT EXISTS (
            SELECT FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.classid::bigint::bit(32)::int = {life} AND l.objid::bigint::bit(32)::int = i.id)
        FOR UPDATE SKIP LOCKED
    ) d;
    IF dead IS NULL THEN
        RETURN 0;
    END IF;
    SELECT coalesce(array_agg(m.seq ORDER BY m.seq), '{}'), coalesce(array_agg(m.token ORDER BY m.seq), '{}')
    INTO seqs, marks FROM {s}.messages m
    WHERE m.holder = ANY (dead) AND m.token IS NOT NULL AND m.until > moment;
    PERFORM {s}.extend(seqs, marks, 0);
    UPDATE {s}.messages m SET token = NULL, holder = NULL, keyed = false, base = NULL, rests = NULL, rank = 1
    WHERE m.seq = ANY (seqs) AND m.token = marks[array_position(seqs, m.seq)] AND m.rests > moment;
    DELETE FROM {s}.instances i WHERE i.id = ANY (dead);
    RETURN cardinality(seqs);
END
$$;
