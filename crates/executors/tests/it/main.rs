//! Deliveries over HTTP against a scripted endpoint on loopback.

mod breakers;
mod cancelled;
mod connections;
mod endpoint;
mod in_process;
mod requests;
mod secure;
mod stage;
mod statuses;
mod targets;
