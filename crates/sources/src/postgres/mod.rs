//! Queues in PostgreSQL.
