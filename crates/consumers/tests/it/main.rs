//! Consumers over a source in memory: time is paused and nothing is left to chance.

mod ending;
mod handling;
mod logs;
mod ordering;
mod paper_000;
mod refusing;
mod retrying;
mod settling;
mod sources;
mod stage;
mod watching;
