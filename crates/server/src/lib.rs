//! The daemon: what it is told, and what it does about it.

pub mod settings;
