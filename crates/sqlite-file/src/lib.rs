//! The state file: a SQLite database that one process serves, for all who keep something in it.
//!
//! | part | is |
//! |---|---|
//! | [`Lock`] | what says that a file is served |
//! | [`writer`], [`reader`] | connections, with their settings |
//! | [`Writer`] | the one that writes: whatever waits to be written goes into one transaction, and is synced once |
//! | [`ServedFile`] | a file that is served already, for somebody else who keeps something in it |
//! | [`Clock`] | what time it is, for what is stored |
//!
//! Each user of a file brings its own tables, and steps from one version of them to the next.

mod clock;
mod file;
mod open_error;
mod served;
mod trouble;
mod writer;

pub use clock::Clock;
pub use file::{APPLICATION_ID, BUSY, Lock, check_owner, reader, writer};
pub use open_error::OpenError;
pub use served::ServedFile;
pub use trouble::{HELD, cause};
pub use writer::{ROW_BYTES, Write, WriteError, Writer};
