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
//! | `engine.rs` | the seam: two engines, and one in memory for tests |
//! | `error.rs` | what can go wrong, a type for each operation |
//! | `postgres` | the engine for any number of processes, with the feature of that name |

mod check;
mod condition;
mod engine;
mod error;
mod event;
#[cfg(feature = "postgres")]
pub mod postgres;
mod query;

pub use check::{
    Invalid, MAX_BATCH, MAX_BATCH_BYTES, MAX_DATA, MAX_ITEMS, MAX_NAMES, MAX_TAG, MAX_TAGS,
    MAX_TYPE,
};
pub use condition::AppendCondition;
pub use engine::{Append, BoxFuture, Engine, Page, Read};
pub use error::{AppendError, EngineError, ReadError};
pub use event::{Event, NewEvent, Position};
pub use query::{Query, QueryItem};
