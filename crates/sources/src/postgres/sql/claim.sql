-- Version 2: claiming.
--
-- The pools that are asked for are walked together with those that have something ready, so that neither many
-- pools without work nor many without room are walked one by one. In a pool tenants take turns: the first one
-- behind the cursor that has something ready. Nobody waits for another who claims: what that one has locked is
-- passed over. Each message that is claimed leaves the index that it was found by.
-- How plans are made is set by `claim`, for all that it calls.

-- How many of these go into so many bytes, in their order; the first one always does.
CREATE FUNCTION {s}.fitting(sizes int[], bytes bigint) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    rest bigint := bytes;
BEGIN
    FOR n IN 1 .. coalesce(cardinality(sizes), 0) LOOP
        IF n > 1 AND sizes[n] > rest THEN
            RETURN n - 1;
        END IF;
        rest := rest - sizes[n];
    END LOOP;
    RETURN coalesce(cardinality(sizes), 0);
END
$$;

-- Claims messages of one tenant by themselves. Answers them, and how large they are together.
CREATE FUNCTION {s}.claim_messages(
    q int, of_pool bytea, of_tenant bytea, of_loose boolean, most int, most_bytes bigint,
    mark bigint, who int, ends timestamptz, OUT seqs bigint[], OUT bytes bigint
) LANGUAGE plpgsql AS $$
DECLARE
    sizes int[];
BEGIN
    SELECT array_agg(f.seq), array_agg(f.size) INTO seqs, sizes FROM (
        SELECT m.seq, octet_length(m.body) AS size FROM {s}.messages m
        WHERE m.queue = q AND m.loose = of_loose AND m.pool = of_pool AND m.tenant = of_tenant AND m.until IS NULL
        ORDER BY m.high DESC, m.seq LIMIT most FOR UPDATE SKIP LOCKED
    ) f;
    bytes := 0;
    IF seqs IS NULL THEN
        RETURN;
    END IF;
    seqs := seqs[1:{s}.fitting(sizes, most_bytes)];
    SELECT sum(s.size) INTO bytes FROM unnest(sizes[1:cardinality(seqs)]) AS s (size);
    UPDATE {s}.messages m SET token = mark, holder = who, until = ends, keyed = false, rank = 0, place = m.seq,
        base = CASE m.rank WHEN 0 THEN 1 WHEN 4 THEN 2 ELSE m.rank END
    WHERE m.seq = ANY (seqs);
END
$$;

-- Claims the heads of keys of one tenant. Answers them, how large they are together, and how many keys it had.
CREATE FUNCTION {s}.claim_heads(
    q int, of_pool bytea, of_tenant bytea, of_loose boolean, most int, most_bytes bigint,
    mark bigint, who int, ends timestamptz, moment timestamptz, OUT seqs bigint[], OUT bytes bigint, OUT looked int
) LANGUAGE plpgsql AS $$
DECLARE
    rows tid[];
    grps bytea[];
    h record;
    is_ours boolean;
BEGIN
    SELECT array_agg(k.ctid), array_agg(k.grp), count(*) INTO rows, grps, looked FROM (
        SELECT o.ctid, o.grp FROM {s}.keys o
        WHERE o.queue = q AND o.loose = of_loose AND o.pool = of_pool AND o.tenant = of_tenant AND o.state = 0
        ORDER BY o.high DESC, o.head LIMIT most FOR NO KEY UPDATE SKIP LOCKED
    ) k;
    bytes := 0;
    FOR n IN 1 .. looked LOOP
        EXIT WHEN bytes >= most_bytes;
        -- The key is locked, and its head is as of later.
        SELECT o.* INTO h FROM {s}.head_of(q, of_pool, grps[n], moment) o;
        is_ours := h.seq IS NOT NULL AND NOT h.is_out AND (h.until IS NULL OR h.until <= moment);
        IF is_ours THEN
            -- Someone who keeps no order may have been quicker, or another claim is about to let it ripen.
            PERFORM FROM {s}.messages m
            WHERE m.seq = h.seq AND (m.token IS NULL OR m.until IS NULL OR m.until <= moment)
            FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                looked := looked - 1;
                CONTINUE;
            END IF;
            UPDATE {s}.messages m SET token = mark, holder = who, until = ends, keyed = true, rank = 0, place = m.seq,
                base = CASE m.rank WHEN 0 THEN 1 WHEN 4 THEN 2 ELSE m.rank END
            WHERE m.seq = h.seq;
            UPDATE {s}.keys k SET state = 1, rank = 0, looks = 0, until = ends, head = h.seq, high = h.high,
                tenant = h.tenant
            WHERE k.ctid = rows[n];
            seqs := seqs || h.seq;
            bytes := bytes + h.size;
        ELSE
            PERFORM {s}.look(rows[n:n], ARRAY[q], ARRAY[of_pool], grps[n:n], clock_timestamp());
        END IF;
    END LOOP;
END
$$;

-- The first pool from `begin_at` on with something ready in the lanes that are asked for.
CREATE FUNCTION {s}.next_pool(q int, begin_at bytea, by_message boolean, by_key boolean) RETURNS bytea
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT l.pool FROM (
        (SELECT m.pool FROM {s}.messages m
         WHERE by_message AND m.queue = q AND NOT m.loose AND m.until IS NULL AND m.pool >= begin_at
         ORDER BY m.pool LIMIT 1)
        UNION ALL
        (SELECT m.pool FROM {s}.messages m
         WHERE by_message AND m.queue = q AND m.loose AND m.until IS NULL AND m.pool >= begin_at
         ORDER BY m.pool LIMIT 1)
        UNION ALL
        (SELECT k.pool FROM {s}.keys k
         WHERE by_key AND k.queue = q AND NOT k.loose AND k.state = 0 AND k.pool >= begin_at
         ORDER BY k.pool LIMIT 1)
        UNION ALL
        (SELECT k.pool FROM {s}.keys k
         WHERE by_key AND k.queue = q AND k.loose AND k.state = 0 AND k.pool >= begin_at
         ORDER BY k.pool LIMIT 1)
    ) l ORDER BY l.pool LIMIT 1);
END
$$;

-- Who is next in a pool from `begin_at` on, in which lane, and how many lanes it has something in.
-- Of what is kept in order: 1 are messages with a group, 2 are those without one.
CREATE FUNCTION {s}.next_tenant(
    q int, of_pool bytea, kept smallint, begin_at bytea, OUT lane int, OUT tenant bytea, OUT lanes bigint
) LANGUAGE plpgsql STABLE
AS $$
BEGIN
    SELECT p.lane, p.tenant, p.lanes INTO lane, tenant, lanes FROM (
        SELECT u.*, count(*) OVER (PARTITION BY u.tenant) AS lanes FROM (
            (SELECT 0 AS lane, m.tenant, m.high, m.seq FROM {s}.messages m
             WHERE kept & 1 = 0 AND m.queue = q AND NOT m.loose AND m.pool = of_pool AND m.until IS NULL
               AND m.tenant >= begin_at
             ORDER BY m.tenant, m.high DESC, m.seq LIMIT 1)
            UNION ALL
            (SELECT 1, m.tenant, m.high, m.seq FROM {s}.messages m
             WHERE kept & 2 = 0 AND m.queue = q AND m.loose AND m.pool = of_pool AND m.until IS NULL
               AND m.tenant >= begin_at
             ORDER BY m.tenant, m.high DESC, m.seq LIMIT 1)
            UNION ALL
            (SELECT 2, k.tenant, k.high, k.head FROM {s}.keys k
             WHERE kept & 1 = 1 AND k.queue = q AND NOT k.loose AND k.pool = of_pool AND k.state = 0
               AND k.tenant >= begin_at
             ORDER BY k.tenant, k.high DESC, k.head LIMIT 1)
            UNION ALL
            (SELECT 3, k.tenant, k.high, k.head FROM {s}.keys k
             WHERE kept & 2 = 2 AND k.queue = q AND k.loose AND k.pool = of_pool AND k.state = 0
               AND k.tenant >= begin_at
             ORDER BY k.tenant, k.high DESC, k.head LIMIT 1)
        ) u
    ) p ORDER BY p.tenant, p.high DESC, p.seq LIMIT 1;
END
$$;

-- Claims messages: for each pool that is named, how many at most (below zero: as of those that are not named), what
-- of it is kept in order, and whose turn was last; and how many of pools that are not named. It begins behind
-- `named_at` and `others_at`, and answers where it ended.
-- Answers one row without a number, and how long to wait, if there are none.
CREATE FUNCTION {s}.claim(
    q int, codes bytea[], rooms int[], orders smallint[], cursors bytea[], others int, others_kept smallint,
    named_at bytea, others_at bytea, others_first boolean, most int, most_bytes bigint, span bigint, who int
) RETURNS TABLE (
    seq bigint, token bigint, attempts int, again boolean, id bytea, grp bytea, body bytea, pool bytea, tenant bytea,
    turn int, rest bigint, named_ended bytea, others_ended bytea
)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    ends timestamptz := moment + span * interval '1 microsecond';
    mark bigint := nextval('{s}.tokens');
    named int := cardinality(codes);
    room_of int[] := rooms;
    -- Pools that are not named follow, as they are met.
    cursor_of bytea[] := cursors;
    strangers bytea[] := '{}';
    left_for_others int := others;
    left_in_all int := most;
    left_bytes bigint := most_bytes;
    -- Turns that may come to nothing, so that no claim takes long whatever it meets.
    looks int := 100 + most * 4;
    is_ripe boolean;
    is_partial boolean := false;
    by_message boolean;
    by_key boolean;
    is_named boolean;
    next_at bytea;
    origin bytea;
    has_wrapped boolean;
    skips int;
    place int;
    here bytea;
    last_here bytea;
    kept smallint;
    room int;
    turns int;
    misses int;
    got record;
    cursor_here bytea;
    whose record;
    count_of int;
    came int;
    chosen bigint[] := '{}';
    next_time timestamptz;
BEGIN
    is_ripe := {s}.ripen(q, moment);
    PERFORM {s}.confirm(q);
    named_ended := named_at;
    others_ended := others_at;
    FOREACH is_named IN ARRAY CASE WHEN others_first THEN '{f,t}'::boolean[] ELSE '{t,f}' END LOOP
        CONTINUE WHEN NOT is_named AND others <= 0;
        SELECT coalesce(bool_or(o.kept <> 3), false), coalesce(bool_or(o.kept <> 0), false)
        INTO by_message, by_key FROM (
            SELECT o.kept FROM unnest(orders, rooms) AS o (kept, room)
            WHERE CASE WHEN is_named THEN o.room > 0 ELSE o.room < 0 END
            UNION ALL SELECT others_kept WHERE NOT is_named
        ) o;
        CONTINUE WHEN NOT by_message AND NOT by_key;
        next_at := CASE WHEN is_named THEN named_at ELSE others_at END;
        origin := next_at;
        has_wrapped := false;
        last_here := NULL;
        skips := 0;
        WHILE left_in_all > 0 AND left_bytes > 0 AND looks > 0 LOOP
            IF is_named THEN
                -- The next one that has room.
                place := width_bucket(next_at, codes);
                IF place = 0 OR codes[place] < next_at THEN
                    place := place + 1;
                END IF;
                WHILE place <= named AND room_of[place] <= 0 LOOP
                    place := place + 1;
                END LOOP;
                next_at := codes[place];
            END IF;
            here := {s}.next_pool(q, next_at, by_message, by_key);
            IF here IS NULL THEN
                EXIT WHEN has_wrapped;
                has_wrapped := true;
                next_at := '';
                CONTINUE;
            END IF;
            EXIT WHEN has_wrapped AND here >= origin;
            next_at := here || '\x00'::bytea;
            place := width_bucket(here, codes);
            IF place > 0 AND codes[place] = here THEN
                room := room_of[place];
                kept := orders[place];
            ELSE
                place := array_position(strangers, here);
                IF place IS NULL THEN
                    strangers := strangers || here;
                    place := cardinality(strangers);
                END IF;
                place := named + place;
                room := -1;
                kept := others_kept;
            END IF;
            IF is_named <> (room >= 0) THEN
                skips := skips + 1;
                -- To pools that nobody named it may be a long way past those that have no room: in steps.
                IF NOT is_named AND skips >= 32 THEN
                    is_partial := true;
                    EXIT;
                END IF;
                CONTINUE;
            END IF;
            room := CASE WHEN is_named THEN room ELSE left_for_others END;
            EXIT WHEN room <= 0 AND NOT is_named;
            -- Some at a time, so that pools take turns too; one that is alone needs none.
            turns := least(room, left_in_all);
            IF here IS DISTINCT FROM last_here THEN
                turns := least(turns, greatest(1, left_in_all / 8));
            END IF;
            last_here := here;
            cursor_here := cursor_of[place];
            misses := 0;
            came := 0;
            WHILE turns > 0 AND left_bytes > 0 AND misses < 4 AND looks > 0 LOOP
                looks := looks - 1;
                SELECT n.lane, n.tenant, n.lanes INTO whose
                FROM {s}.next_tenant(q, here, kept, coalesce(cursor_here || '\x00'::bytea, '')) n;
                IF whose.tenant IS NULL AND cursor_here IS NOT NULL THEN
                    SELECT n.lane, n.tenant, n.lanes INTO whose FROM {s}.next_tenant(q, here, kept, '') n;
                END IF;
                EXIT WHEN whose.tenant IS NULL;
                count_of := CASE WHEN whose.tenant = cursor_here AND whose.lanes = 1 THEN turns ELSE 1 END;
                IF whose.lane < 2 THEN
                    SELECT c.seqs, c.bytes, 0 AS looked INTO got FROM {s}.claim_messages(
                        q, here, whose.tenant, whose.lane = 1, count_of, left_bytes, mark, who, ends) c;
                ELSE
                    SELECT c.seqs, c.bytes, c.looked INTO got FROM {s}.claim_heads(
                        q, here, whose.tenant, whose.lane = 3, count_of, left_bytes, mark, who, ends, moment) c;
                END IF;
                -- Who only had keys that wait keeps its turn.
                IF got.seqs IS NOT NULL OR got.looked = 0 THEN
                    cursor_here := whose.tenant;
                END IF;
                count_of := coalesce(cardinality(got.seqs), 0);
                misses := CASE WHEN count_of = 0 AND got.looked = 0 THEN misses + 1 ELSE 0 END;
                turns := turns - count_of;
                came := came + count_of;
                left_bytes := left_bytes - got.bytes;
                chosen := chosen || got.seqs;
            END LOOP;
            cursor_of[place] := cursor_here;
            left_in_all := left_in_all - came;
            IF is_named THEN
                room_of[place] := room_of[place] - came;
            ELSE
                left_for_others := left_for_others - came;
            END IF;
            IF came > 0 THEN
                origin := next_at;
                has_wrapped := false;
                looks := looks + came;
            END IF;
        END LOOP;
        IF is_named THEN
            named_ended := coalesce(next_at, '');
        ELSE
            others_ended := coalesce(next_at, '');
        END IF;
    END LOOP;
    IF cardinality(chosen) > 0 THEN
        RETURN QUERY
            SELECT m.seq, mark, m.attempts, m.base <= 1, m.id, m.grp, m.body, m.pool, m.tenant,
                array_position(chosen, m.seq), NULL::bigint, named_ended, others_ended
            FROM {s}.messages m WHERE m.seq = ANY (chosen);
        RETURN;
    END IF;
    SELECT min(u.until) INTO next_time FROM (
        (SELECT until FROM {s}.messages WHERE queue = q AND until IS NOT NULL ORDER BY until LIMIT 1)
        UNION ALL
        (SELECT until FROM {s}.keys WHERE queue = q AND until IS NOT NULL ORDER BY until LIMIT 1)
    ) u;
    rest := CASE WHEN is_ripe OR looks <= 0 THEN 0
        ELSE {s}.micros(next_time) - {s}.micros(clock_timestamp()) END;
    IF is_partial THEN
        rest := least(rest, 50000);
    END IF;
    RETURN NEXT;
END
$$;
