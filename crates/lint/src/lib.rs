//! `cargo sluicegate-lint`: no naked spawn, no leaky permit, no nested pool, no dropped context, no
//! unbounded queue.
//!
//! The lint reads Rust source and needs neither a nightly toolchain nor a build. It follows names
//! through imports, aliases, globs and re-exports of all files it reads, and infers the kinds of
//! local values well enough to tell a task from a process. It reports what it is sure of, and what
//! nothing but a violation is likely to look like.
//!
//! # How a method call is decided
//!
//! `naked-spawn` on `receiver.spawn(argument)`:
//!
//! | receiver | `.spawn(…)` | `.spawn_blocking`, `_local`, `_on`, `_scoped`, `_fifo`, `_pinned` |
//! |---|---|---|
//! | known spawner (`Handle`, `Runtime`, `JoinSet`, `LocalSet`, `thread::Builder`, a scope, …) | finding | finding |
//! | known command (`std::process::Command`, …) | clean | clean |
//! | type of the checked code with a method of that name | clean, its body is checked | clean |
//! | other declared type | finding if given an async block or a closure | finding |
//! | unknown | finding if given one async block, closure, future, or call that is no constructor | finding |
//!
//! A path to a spawn (`tokio::spawn`, `Handle::spawn`) is a finding wherever it is taken, and so is
//! one to the constructor of a queue without a bound. Whether a permit is held is asked of the
//! expression that yields it; whether a context is fresh, of the value that is given.
//!
//! # Parts
//!
//! [`check_tree`] is pure: sources in, findings out. [`run`] walks folders, reads exemptions and
//! knows what day it is. [`report`] prints.

mod check;
mod date;
mod exemptions;
mod finding;
mod fragments;
mod infer;
mod known;
mod manifest;
mod names;
mod nesting;
mod parse;
pub mod report;
mod run;
mod sources;
mod testcode;
mod walk;

pub use date::Date;
pub use exemptions::Exemptions;
pub use finding::{Finding, Rule, sort_findings};
pub use manifest::Manifest;
pub use run::{Options, Report, check_tree, run};
pub use walk::{CannotCheck, SourceFile, SourceTree, read_tree};
