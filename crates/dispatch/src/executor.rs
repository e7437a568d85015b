//! The seam to whatever runs a message.

use std::sync::Arc;

use sluicegate_tasks::Context;

use crate::{BoxFuture, Message, Outcome, PoolSettings};

/// What runs a message.
///
/// # Cancel safety
/// The context ends when the drain deadline passes: an executor then stops at its next await and
/// answers [`Outcome::Interrupted`]. Whatever it was doing is not repeated.
pub trait Executor: Send + Sync + 'static {
    /// Makes one attempt.
    fn execute<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Outcome>;
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
