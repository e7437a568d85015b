-- From version 2 to 3: what rests is noted. Whoever still runs the old version goes on as before.
ALTER TABLE {s}.messages ADD COLUMN rests timestamptz;
