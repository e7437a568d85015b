//! The front of the store, on the engine in memory.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod filled;
#[cfg(test)]
mod gated;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod paper_003;
#[cfg(test)]
mod projections;
#[cfg(test)]
mod store;

#[cfg(test)]
use filled::{fill, of_course, store_with};
