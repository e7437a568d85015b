//! Where messages wait: one module and one feature for each kind of queue.
//!
//! [`wire`] is the JSON that a message is written in, the same for all of them.

#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod wire;
