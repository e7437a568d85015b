//! What runs a message.
//!
//! | you want | use |
//! |---|---|
//! | to deliver it to an endpoint | `http::HttpExecutor`, with the feature `http` |
//! | to run code of your own | [`InProcess`] |
//! | to run a program, with all that it starts | [`process::Spawner`], with the feature `process` |
//!
//! `Breakers` keeps the circuit breakers of the endpoints.

#[cfg(feature = "http")]
mod breakers;
#[cfg(feature = "http")]
pub mod http;
mod in_process;
#[cfg(feature = "process")]
pub mod process;

#[cfg(feature = "http")]
pub use breakers::{BreakerReport, BreakerScope, Breakers};
pub use in_process::InProcess;
