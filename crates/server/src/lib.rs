//! The daemon: what it is told, and what it does about it.

pub mod feed;
pub mod health;
pub mod log;
pub mod metrics;
pub mod record;
pub mod time;
pub mod warnings;
