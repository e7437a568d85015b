//! The embedded queue: messages wait in a file beside the daemon.
//!
//! | part | is |
//! |---|---|
//! | [`Store`] | one state file, served by one daemon |
//! | [`SqliteSource`] | one queue of it |
//! | [`Publisher`] | the file from outside, to put messages in while a daemon serves it |
//!
//! Invariants:
//! 1. What was published, settled or parked is on the disk before anyone is told so. There is one
//!    writer; it takes all requests that wait, writes them in one transaction and syncs once.
//! 2. Receiving writes nothing. Which messages are out, and until when, is known in memory only: a
//!    crash makes everything unsettled deliverable again, in order.
//! 3. Memory does not grow with the backlog: it holds what is out, a bounded read-ahead, a few words for each
//!    lane (a tenant of a pool) that has messages, and a mark for each key whose head is read, out or waits for
//!    its time.
//! 4. Locks are taken in this order: the queues by name, the read-ahead of a queue, the rooms of the demand, the
//!    index of what is parked. None of them is held while the file is read or written, or over an await.
//!
//! Nothing of it needs a thread while nothing happens: writer and readers run, in task groups, while
//! there is something to write or to read.

#[cfg(test)]
mod dice;
mod discard;
mod file;
mod find;
mod follows;
mod hash;
mod health;
mod lanes;
mod last_error;
mod parked;
mod parked_import;
mod parked_index;
mod parked_list;
mod publish;
mod put_back;
mod query;
mod read_ahead;
mod reader;
mod replay;
mod replay_error;
mod replay_notes;
mod replay_plan;
mod requests;
mod rest;
mod row;
mod schema;
mod settle;
mod source;
mod store;
mod take_out;
mod watch;
mod writer;

pub use follows::{Outlook, ParkedHead};
pub use parked_import::Imported;
pub use parked_list::{ParkedFilter, ParkedItem, ParkedPage, ParkedRecord};
pub use replay::{Batch, Replaying, Returning};
pub use replay_error::{DiscardError, ReplayError};
pub use replay_plan::ReplayPlan;
pub use requests::{EndedRequest, NewRequest, StoredRequest, StoredSession};
pub use sluicegate_sqlite_file::{Clock, OpenError, ServedFile};
pub use source::SqliteSource;
pub use store::{Publisher, Store, StoreSettings};
