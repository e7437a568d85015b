-- Version 2: what claims go by.
--
-- A pool's messages are in four lanes: those with a group and those without, each by message and by key.
-- Which two of them are claimed from follows from the order that the pool keeps.
CREATE INDEX messages_ready ON {s}.messages (queue, loose, pool, tenant, high DESC, seq) WHERE until IS NULL;
CREATE INDEX messages_later ON {s}.messages (queue, until, seq) WHERE until IS NOT NULL;
CREATE INDEX messages_key ON {s}.messages (queue, pool, grp, rank, place);
CREATE INDEX keys_ready ON {s}.keys (queue, loose, pool, tenant, high DESC, head) WHERE state = 0;
CREATE INDEX keys_later ON {s}.keys (queue, until) WHERE until IS NOT NULL;
CREATE INDEX keys_idle ON {s}.keys (queue, stamp) WHERE state = 3;
