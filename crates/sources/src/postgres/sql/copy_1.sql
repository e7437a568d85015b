-- From version 1 to 2, between the new tables and their indexes: everything is taken over. What is out stays
-- out, by the receipts that were given for it. Old messages are of no tenant.
INSERT INTO {s}.messages
    (seq, at, until, token, place, queue, holder, attempts, rank, base, high, loose, reason, id, pool, grp, tenant, body)
SELECT o.seq, at, until, token, CASE WHEN rank = 4 THEN (extract(epoch FROM until) * 1000000)::bigint ELSE o.seq END,
    queue, holder, attempts, rank, CASE WHEN token IS NOT NULL THEN base END, high, grp = '__DEFAULT__'::bytea,
    reason, id, pool, grp, '', body
FROM (
    SELECT m.seq, m.at, m.queue, m.attempts, m.high, m.reason, m.id, m.pool, m.grp, m.body,
        coalesce(k.until, m.until) AS until, coalesce(k.token, m.token) AS token,
        coalesce(k.holder, m.holder) AS holder,
        -- One that was out, whether its window has ended or it was settled to come again.
        CASE WHEN m.state = 1 OR m.state = 2 AND m.rank = 0 THEN 1 WHEN m.high THEN 2 ELSE 3 END::smallint AS base,
        CASE
            WHEN k.token IS NOT NULL OR m.token IS NOT NULL THEN 0
            WHEN m.state = 1 OR m.state = 2 AND m.rank = 0 THEN 1
            WHEN NOT m.high THEN 3
            WHEN m.until > clock_timestamp() THEN 4
            ELSE 2
        END::smallint AS rank
    FROM {s}.old_messages m
    LEFT JOIN {s}.old_keys k ON m.state = 2 AND k.queue = m.queue AND k.head = m.seq AND k.token IS NOT NULL
) o ORDER BY o.seq;
-- They are looked at by the first claim.
INSERT INTO {s}.keys (queue, state, rank, high, loose, head, pool, grp, tenant)
SELECT DISTINCT ON (queue, pool, grp) queue, 0, rank, high, loose, seq, pool, grp, tenant
FROM {s}.messages ORDER BY queue, pool, grp, rank, place;
DROP TABLE {s}.old_messages, {s}.old_keys;
