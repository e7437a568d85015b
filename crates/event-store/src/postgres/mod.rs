//! Events in PostgreSQL: any number of processes share one log.
//!
//! | part | is |
//! |---|---|
//! | [`PostgresSettings`] | an address, and how long calls may take |
//! | [`PostgresEngine`] | the log of one schema of a database |
//!
//! The way of an append:
//!
//! | step | by | is |
//! |---|---|---|
//! | queued | `queue.rs` | bounded by count and bytes; who finds no room waits |
//! | grouped | `appender.rs`, `batch.rs` | a batch is what queued up while the last one ran |
//! | compared | `pairs.rs` | which request of a batch an earlier one of it may spoil: pure |
//! | appended | `sql/append.sql` | one call, one lock for the schema, one query for all conditions, one commit for the batch |
//! | looked up | `engine.rs` | a condition that takes too long under the lock: by its caller, beside all who append; then again |
//! | answered | `appender.rs` | each request by itself; when the answer is lost, `find_out.rs` looks for what is there |
//!
//! Invariants:
//! 1. A batch is one autocommit call under a lock that ends with its transaction. So events can be read in the order of
//!    their positions, and what a condition did not find cannot come before the events that rely on it. The lock is never
//!    taken in a transaction of a caller's, who could keep it.
//! 2. The snapshot of the check is younger than the lock: the call refuses any level but READ COMMITTED.
//! 3. Raw inserts, which would go by the lock, are refused by a trigger.
//! 4. No event is appended twice and none is denied: each request has a token that is stored with its first event. After
//!    an error the server's process that may still be at work is ended first; then what has no token there is not there.
//! 5. Notifications are hints. Without them everything works, a second later.
//! 6. Conditions are checked under the lock for a short while only. One that needs longer is looked up over a connection
//!    that reads, up to the head of that moment, and under the lock only from there on. No event comes at or before it.
//! 7. What was not sent waits for the database while it is away. Who goes without an answer either was sent, and it is not
//!    known, or is told that it never will be.

mod appender;
mod batch;
mod columns;
mod cursors;
mod engine;
mod find_out;
mod keeper;
mod link;
mod open_error;
mod pairs;
mod queue;
mod reader;
mod remedy;
mod schema;
mod settings;

pub use engine::{PostgresEngine, probe};
pub use open_error::OpenError;
pub use settings::PostgresSettings;
