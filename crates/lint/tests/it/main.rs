//! Everything about the lint that can be seen from outside, in one test binary.

mod command;
mod exemptions;
mod fixtures;
mod formats;
mod names;
mod test_code;
mod workbench;
