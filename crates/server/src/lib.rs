//! The daemon: what it is told, and what it does about it.

pub mod feed;
pub mod fetch;
pub mod health;
pub mod log;
pub mod metrics;
pub mod plan;
pub mod record;
pub mod settings;
pub mod sync;
pub mod time;
pub mod warnings;
