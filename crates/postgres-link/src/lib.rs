//! The way to a PostgreSQL, for all who keep something in one.
//!
//! | part | is |
//! |---|---|
//! | [`Address`] | where it is and how to get there, read from a URL |
//! | [`connector`] | whom its certificate may be signed by |
//! | [`Wire`] | a connection that whoever uses it drives |
//! | [`pool`] | connections that are lent |
//! | [`Broken`] | why there is no answer, and what to do about it |
//!
//! Each user brings its own tables, and its own word for what keeps it from being opened.

mod address;
mod broken;
mod pool;
mod tls;
mod wire;

pub use address::{Address, Wrong};
pub use broken::Broken;
pub use pool::pool;
pub use tls::connector;
pub use wire::{Wire, within};

use std::time::Duration;

/// How long it may take to connect.
pub const CONNECT: Duration = Duration::from_secs(5);
