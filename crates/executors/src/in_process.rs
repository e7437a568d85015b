//! Messages run by code of this process.

use std::fmt;

use sluicegate_dispatch::{Attempt, BoxFuture, Executor, Message, Outcome};
use sluicegate_tasks::Context;

/// An executor that runs a function.
///
/// ```
/// use sluicegate_dispatch::Outcome;
/// use sluicegate_executors::InProcess;
///
/// let executor = InProcess::new(|message, cx| {
///     Box::pin(async move {
///         match cx.check() {
///             Ok(()) if !message.id.is_empty() => Outcome::Done,
///             _ => Outcome::Interrupted,
///         }
///     })
/// });
/// # drop(executor);
/// ```
///
/// When the context ends the function's future is dropped at its next await, and the attempt is
/// [`Outcome::Interrupted`].
pub struct InProcess<F> {
    run: F,
}

impl<F> InProcess<F>
where
    F: for<'a> Fn(&'a Message, &'a Context) -> BoxFuture<'a, Outcome> + Send + Sync + 'static,
{
    /// An executor that runs `run`.
    pub const fn new(run: F) -> Self {
        Self { run }
    }
}

impl<F> Executor for InProcess<F>
where
    F: for<'a> Fn(&'a Message, &'a Context) -> BoxFuture<'a, Outcome> + Send + Sync + 'static,
{
    fn execute<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            if attempt.cx.is_cancelled() {
                return Outcome::Interrupted;
            }
            let running = (self.run)(attempt.message, attempt.cx);
            attempt.cx.until_interrupted(running).await.unwrap_or(Outcome::Interrupted)
        })
    }
}

impl<F> fmt::Debug for InProcess<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}
