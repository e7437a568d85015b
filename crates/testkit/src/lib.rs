//! Test support for the whole workspace.
//!
//! [`needs`] is the one table of what the tests want from the machine: `cargo xtask` installs from
//! it, and a test that finds something missing names the same packages. [`brokers`] starts private
//! brokers.

pub mod brokers;
pub mod needs;
