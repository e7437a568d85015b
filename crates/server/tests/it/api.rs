//! The HTTP API, asked over loopback.

mod access;
mod ack;
mod backlog;
mod bounds;
mod config;
mod drains;
mod drift;
mod failing;
mod incidents;
mod last_errors;
mod locked;
mod messages;
mod not_open;
mod openapi;
mod operate;
mod own_address;
mod pages;
mod parking;
pub(crate) mod schema;
mod scrape;
pub(crate) mod stage;
mod stream;
mod stuck;
mod typos;
mod unknown_pools;
mod views;
mod waiting;
