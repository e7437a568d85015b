//! The deterministic simulation: a scenario in simulated time, load and faults drawn from one seed,
//! and oracles that watch it. The same seed gives the same trace, to the byte.
//!
//! A scenario tells the oracles what happens, as facts; an oracle says what must not be. A new
//! scenario is a module beside [`scenarios::kernel`] and a line in [`scenarios::ALL`].

pub mod oracles;
pub mod rng;
pub mod run;
pub mod scenarios;
pub mod trace;
