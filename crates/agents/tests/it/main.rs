//! The pool of agents with scripted agents, in paused time.

mod checks;
mod paper_001;
mod stage;
