//! Paper 001, by its sections.

mod admission;
mod callers;
mod figures;
mod invariants;
mod journal;
mod lifecycle;
mod limits;
mod observability;
mod pace;
mod rate;
mod recycling;
mod scheduling;
mod sessions;
mod timeouts;
