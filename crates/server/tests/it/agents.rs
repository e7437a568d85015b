//! Requests to agents, asked over loopback and run by real processes.

mod asking;
mod bounds;
mod configuring;
mod failing;
mod listing;
mod stage;
mod watching;
