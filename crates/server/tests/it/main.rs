//! Integration tests of the server crate.

mod agents;
mod alerts;
mod api;
mod docs;
mod feed;
mod health;
mod metrics;
mod paper_002;
mod record;
mod scene;
mod settings;
mod settings_problems;
mod settings_random;
mod settings_shown;
mod settings_synced;
mod warnings;
