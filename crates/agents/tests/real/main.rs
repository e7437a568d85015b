//! The pool of agents with real processes, judged by what the agents themselves saw.

mod errors;
mod flood;
mod idle;
mod rate;
mod seen;
mod sessions;
mod soak;
mod stage;
mod times;
