//! The real binary, run as a person would.

mod agents;
mod check;
mod command;
mod crash;
mod demo;
mod event_queue;
mod events;
mod keeper;
mod operations;
mod outside;
mod parking;
mod publish;
mod requests;
mod resting;
mod serve;
mod soak;
mod soon;
mod stage;
mod staying;
mod views;
mod watching;
