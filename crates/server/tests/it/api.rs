//! The HTTP API, asked over loopback.

mod messages;
mod stage;
mod views;
