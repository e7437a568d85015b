//! An append-only event store whose decisions still hold when they are appended.
//!
//! A decision reads the events it depends on, decides, and appends under the condition that no event came meanwhile
//! that it would have read: [`AppendCondition`]. Which events those are is said by a [`Query`], not by a stream, so that a
//! decision may span entities (a dynamic consistency boundary).
//!
//! | file | is |
//! |---|---|
//! | `event.rs`, `query.rs`, `condition.rs` | what is stored; what is asked for; under which condition it is appended |
//! | `check.rs` | what may be stored and asked for, and the error that names the field |
//! | `engine.rs`, `memory.rs` | the seam; the engine in memory |
//! | `store/`, `settings.rs` | [`EventStore`]: appending, reading, projecting, executing commands; what bounds it |
//! | `cursors.rs` | how far readers have come, kept beside the events |
//! | `reader.rs` | page after page, to an end or on and on |
//! | `projection/` | events folded into states of your own types |
//! | `decision.rs`, `given.rs` | what a command reads and appends, and testing it without a store |
//! | `sqlite/` | the embedded engine: a file of its own, or part of the daemon's state file |
//! | `error.rs` | what can go wrong, a type for each operation |
//! | `postgres` | the engine for any number of processes, with the feature of that name |

mod check;
mod condition;
mod cursors;
mod decision;
mod engine;
mod error;
mod event;
mod given;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod projection;
mod query;
mod reader;
mod settings;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;

pub use check::{
    Invalid, MAX_BATCH, MAX_BATCH_BYTES, MAX_DATA, MAX_DEPTH, MAX_ITEMS, MAX_NAMES, MAX_TAG,
    MAX_TAGS, MAX_TYPE,
};
pub use condition::AppendCondition;
pub use cursors::{Cursor, Cursors};
pub use decision::{Decision, decision};
pub use engine::{Append, BoxFuture, Engine, Page, Read};
pub use error::{
    AppendError, EngineError, ExecuteError, ProjectError, ReadError, TooManyProjections,
};
pub use event::{Event, NewEvent, Position};
pub use given::{Decided, Given, given};
pub use memory::MemoryEngine;
pub use projection::{BoxError, Projection, Projections, fold};
pub use query::{Query, QueryItem};
pub use reader::{EventStream, Reader};
pub use settings::Settings;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteEngine, SqliteSettings};
pub use store::{
    EventStore, Execute, Executed, Project, ProjectStream, Projected, ProjectionStream, StoreStats,
};
