//! Test support for the whole workspace.
//!
//! [`needs`] is the one table of what the tests want from the machine: `cargo xtask` installs from
//! it, and a test that finds something missing names the same packages. [`brokers`] starts private
//! brokers.
//! `endpoint`, a feature, is an HTTP endpoint that answers as it is told.

pub mod brokers;
#[cfg(feature = "endpoint")]
pub mod endpoint;
pub mod needs;
