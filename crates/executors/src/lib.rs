//! What runs a message.
//!
//! | you want | use |
//! |---|---|
//! | to deliver it to an endpoint | `http::HttpExecutor`, with the feature `http` |
//! | to run code of your own | [`InProcess`] |
//!
//! `Breakers` keeps the circuit breakers of the endpoints.

#[cfg(feature = "http")]
mod breakers;
#[cfg(feature = "http")]
pub mod http;
mod in_process;

#[cfg(feature = "http")]
pub use breakers::{BreakerReport, BreakerScope, Breakers};
pub use in_process::InProcess;
