//! The front of the store, on the engine in memory.

mod memory;
