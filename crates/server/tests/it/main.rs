//! Integration tests of the server crate.

mod settings;
mod settings_problems;
mod settings_random;
mod settings_shown;
mod settings_synced;
