//! Suites that every implementation of a seam runs through, the fakes included.

pub mod source;
