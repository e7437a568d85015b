//! Test support for the whole workspace.
//!
//! [`needs`] is the one table of what the tests want from the machine: `cargo xtask` installs from
//! it, and a test that finds something missing names the same packages. [`brokers`] starts private
//! brokers. [`conformance`] holds the suites that every implementation of a seam runs through.
//! [`FakeSource`] is a source in memory whose faults are switched on at will.
//! `endpoint`, a feature, is an HTTP endpoint that answers as it is told.

pub mod brokers;
pub mod conformance;
#[cfg(feature = "endpoint")]
pub mod endpoint;
mod fake_source;
pub mod needs;

pub use fake_source::{FakeSource, Fault};
