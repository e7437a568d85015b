//! The real binary, run as a person would.

mod check;
mod command;
mod crash;
mod demo;
mod operations;
mod outside;
mod parking;
mod publish;
mod resting;
mod serve;
mod soak;
mod soon;
mod stage;
mod staying;
mod views;
mod watching;
