//! Everything about the lint that can be seen from outside, in one test binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

mod command;
mod exemptions;
mod files;
mod fixtures;
mod formats;
mod names;
mod preset;
mod test_code;
mod workbench;
