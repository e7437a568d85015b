-- From version 1 to 2, before the new tables are made: the old ones are put aside.
-- Whoever still runs the old version finds no function that claims, and no column to publish to.
DROP FUNCTION {s}.claim(int, bytea[], int, bigint, bigint, int);
DROP FUNCTION {s}.fold(int, bigint[], timestamptz);
DROP FUNCTION {s}.reorder(int, bytea[], int);
DROP FUNCTION {s}.settle(bigint[], bigint[], smallint[], bigint[], int[], text[]);
DROP FUNCTION {s}.extend(bigint[], bigint[], bigint);
DROP FUNCTION {s}.head_of(int, bytea, bytea, timestamptz);
DROP FUNCTION {s}.micros(timestamptz);
ALTER TABLE {s}.messages RENAME TO old_messages;
ALTER TABLE {s}.old_messages DROP CONSTRAINT messages_pkey;
DROP INDEX {s}.messages_fresh, {s}.messages_ready, {s}.messages_later, {s}.messages_key;
ALTER TABLE {s}.keys RENAME TO old_keys;
ALTER TABLE {s}.old_keys DROP CONSTRAINT keys_pkey;
DROP INDEX {s}.keys_until;
