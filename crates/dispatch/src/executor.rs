//! The seam to whatever runs a message.

use std::sync::Arc;

use sluicegate_tasks::Context;

use crate::{BoxFuture, Message, Outcome, PoolSettings};

/// What runs a message.
///
/// # Cancel safety
/// The context ends when the drain deadline passes: an attempt then stops at its next await, with
/// [`Outcome::Interrupted`]. Whatever it was doing is not repeated.
pub trait Executor: Send + Sync + 'static {
    /// Makes one attempt.
    fn execute<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Outcome>;

    /// Whether an attempt is stopped by dropping it. Then it need not listen to its context, which
    /// costs something for every message: whoever runs it listens once for many.
    fn stops_by_drop(&self) -> bool {
        false
    }
}

/// One attempt at a message.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The message.
    pub message: &'a Message,
    /// The pool it runs in.
    pub pool: &'a Arc<PoolSettings>,
    /// Which attempt it is, from 1.
    pub number: u32,
    /// What it runs under.
    pub cx: &'a Context,
}
