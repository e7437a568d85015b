//! Suites that every implementation of a seam runs through, the fakes included.

#[cfg(feature = "events")]
pub mod events;
#[cfg(feature = "scripted")]
pub mod source;
