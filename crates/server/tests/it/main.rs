//! Integration tests of the server crate.

mod settings;
