//! Integration tests of the server crate.

mod feed;
mod health;
mod metrics;
mod record;
mod scene;
mod settings;
mod warnings;
