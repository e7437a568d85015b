//! Test support for the whole workspace.
//!
//! [`needs`] is the one table of what the tests want from the machine: `cargo xtask` installs from
//! it, and a test that finds something missing names the same packages. [`brokers`] starts private
//! brokers. [`programs`] builds programs that tests start.
//!
//! With the feature `scripted`: `conformance`, the suites that every implementation of a seam runs
//! through; `FakeSource`, a source in memory whose faults are switched on at will; and `scripted`, the
//! ends of a router that do as they are told. With the feature `endpoint`: an HTTP endpoint that
//! answers as it is told. With the feature `events`: the suite that every engine of the event store
//! runs through, and `checker`, which looks for answers that no exact store gives.
//! With the feature `engines`: all engines of it, for both.

pub mod brokers;
#[cfg(feature = "events")]
pub mod checker;
#[cfg(any(feature = "events", feature = "scripted"))]
pub mod conformance;
#[cfg(feature = "endpoint")]
pub mod endpoint;
#[cfg(feature = "engines")]
pub mod engines;
#[cfg(feature = "scripted")]
mod fake_source;
pub mod needs;
pub mod programs;
#[cfg(feature = "scripted")]
pub mod scripted;

#[cfg(feature = "scripted")]
pub use fake_source::{FakeSource, Fault};
