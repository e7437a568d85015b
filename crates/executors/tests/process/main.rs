//! Trees of real processes, killed in every state.

mod cgroups;
mod daemons;
mod killed;
mod pipes;
mod soak;
mod speed;
mod stage;
mod started;
