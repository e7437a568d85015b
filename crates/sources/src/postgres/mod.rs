//! PostgreSQL: messages wait in tables of a database, and any number of daemons share them.
//!
//! | part | is |
//! |---|---|
//! | [`PostgresSettings`] | an address, and how long deliveries stay hidden |
//! | [`PostgresSource`] | one queue of a database |
//! | [`probe`] | whether one could be opened |
//!
//! The way of a message:
//!
//! | step | by | is |
//! |---|---|---|
//! | published | `publish.rs`, `sql/publish.sql` | a row in `messages`; the row of its key (pool and group) in `keys` is made or woken |
//! | asked for | `source.rs`, `front.rs` | a receive leaves its [`Demand`](sluicegate_dispatch::Demand) in the front |
//! | wanted | `wants.rs` | what all who wait have room for, by pool |
//! | claimed | `claimer.rs`, `sql/claim.sql` | pools with room, tenants in turn; from a pool that keeps order heads of keys, else messages |
//! | handed out | `front.rs` | to who takes a place for it; without one it waits for the next receive, and then goes back |
//! | settled | `settle.rs`, `sql/settle.sql` | its row goes or waits, and its key has another head |
//!
//! Invariants:
//! 1. Every operation is one statement, so it is done or not done wherever it is cut off.
//! 2. All times are the database's. What is out, and until when, is in the row of the message; `keys` says
//!    what may be claimed next, and can be made anew from it.
//! 3. Of a key that is kept in order one message is out at most, whoever received it: heads are chosen
//!    under a lock on the row of the key. Who publishes takes no such lock on keys that are in use; see
//!    `confirm` in `sql/keys.sql` for why none of its messages is overlooked.
//! 4. Which messages are kept in order is decided by each claim, and nothing is rewritten when that changes.
//! 5. What was claimed and nobody took is kept here for a moment, bounded by what was asked for, and then
//!    handed back.
//! 6. Notifications are hints. Without them everything works, a second later.

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
