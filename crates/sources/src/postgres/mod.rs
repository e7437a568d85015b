//! PostgreSQL: messages wait in tables of a database, and any number of daemons share them.
//!
//! | part | is |
//! |---|---|
//! | [`PostgresSettings`] | an address, and how long deliveries stay hidden |
//! | [`PostgresSource`] | one queue of a database |
//! | [`probe`] | whether one could be opened |
//!
//! Invariants:
//! 1. Every operation is one statement, so it is done or not done wherever it is cut off.
//! 2. All times are the database's. What is out, and until when, is in the tables.
//! 3. Of a key that is kept in order one message is out at most, whoever received it: its row in
//!    `keys` is a lease. Heads are chosen under the queue's lock; see `functions.sql`.
//! 4. What was claimed and nobody took, because its receive was dropped, is kept here for a moment,
//!    bounded by what was asked for, and then handed back.
//! 5. Notifications are hints. Without them everything works, a second later.

mod claimer;
mod find;
mod front;
mod keeper;
mod link;
mod publish;
mod schema;
mod settings;
mod settle;
mod shared;
mod source;
mod wants;

pub use settings::PostgresSettings;
pub use source::{PostgresSource, probe};
