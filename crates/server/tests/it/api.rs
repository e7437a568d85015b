//! The HTTP API, asked over loopback.

mod access;
mod bounds;
mod config;
mod drains;
mod drift;
mod incidents;
mod messages;
mod openapi;
mod operate;
mod pages;
mod parking;
mod schema;
mod scrape;
mod stage;
mod stream;
mod typos;
mod unknown_pools;
mod views;
