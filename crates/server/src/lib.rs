//! The daemon: what it is told, and what it does about it.

pub mod fetch;
pub mod plan;
pub mod settings;
pub mod sync;
