//! The real binary, run as a person would.

mod check;
mod command;
mod crash;
mod demo;
mod operations;
mod parking;
mod publish;
mod serve;
mod soak;
mod stage;
mod views;
mod watching;
