-- Version 3: extending and resting.

-- Begins windows anew; what rests is out until its time at least. No number comes twice. Answers those that were
-- valid.
CREATE OR REPLACE FUNCTION {s}.extend(seqs bigint[], marks bigint[], span bigint) RETURNS TABLE (seq bigint, mark bigint)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    ends timestamptz := clock_timestamp() + span * interval '1 microsecond';
    locked record;
    kept bigint[];
BEGIN
    locked := {s}.lock_keys(seqs, marks);
    WITH updated AS (
        UPDATE {s}.messages m SET until = greatest(ends, m.rests)
        WHERE m.seq = ANY (seqs) AND m.token = marks[array_position(seqs, m.seq)]
        RETURNING m.seq
    )
    SELECT array_agg(seq) INTO kept FROM updated;
    IF locked.rows IS NOT NULL THEN
        UPDATE {s}.keys k SET state = 1, until = ends, stamp = NULL
        WHERE k.ctid = ANY (locked.rows) AND k.head = ANY (kept);
    END IF;
    RETURN QUERY SELECT d.seq, marks[array_position(seqs, d.seq)] FROM unnest(kept) AS d (seq);
END
$$;

-- Notes how often deliveries were tried and until when they rest; they stay out. Where an earlier rest reached beyond the
-- window nobody knows when that ends: it begins anew. No number comes twice. Answers those that were valid.
CREATE FUNCTION {s}.rest(seqs bigint[], marks bigint[], afters bigint[], tries int[], reasons text[], span bigint)
RETURNS TABLE (seq bigint, mark bigint)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    anew timestamptz := moment + span * interval '1 microsecond';
    ends timestamptz;
BEGIN
    PERFORM {s}.lock_keys(seqs, marks);
    FOR n IN 1 .. cardinality(seqs) LOOP
        ends := moment + afters[n] * interval '1 microsecond';
        UPDATE {s}.messages m SET attempts = tries[n], reason = reasons[n], rests = ends,
            until = greatest(CASE WHEN m.until <= m.rests THEN anew ELSE m.until END, ends)
        WHERE m.seq = seqs[n] AND m.token = marks[n];
        IF FOUND THEN
            seq := seqs[n];
            mark := marks[n];
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
