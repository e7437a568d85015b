//! Deliveries over HTTP against a scripted endpoint on loopback.

mod bench;
mod stage;
mod statuses;
