//! A context that ends with a scope.

use crate::Context;

/// Cancels a context when it is dropped: on return, on error, on a panic, when a future is given up.
///
/// ```
/// use sluicegate_tasks::Context;
///
/// let request = Context::new();
/// let part = request.child();
/// {
///     let _guard = part.cancel_on_drop();
///     assert!(!part.is_cancelled());
/// }
/// assert!(part.is_cancelled() && !request.is_cancelled());
/// ```
#[derive(Debug)]
#[must_use = "dropping it cancels the context at once"]
pub struct CancelOnDrop {
    cx: Option<Context>,
}

impl Context {
    /// A guard that cancels this context, and all its children, when it is dropped.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Interrupt, TaskGroup};
    ///
    /// let group = TaskGroup::new("parts", 1)?;
    /// let request = Context::new();
    /// let part = request.child();
    /// let guard = part.cancel_on_drop();
    /// let task = group.submit(&part, |cx| async move { cx.cancelled().await }).await?;
    /// tokio::task::yield_now().await;
    /// drop(guard); // whoever asked for it went away
    /// assert_eq!(task.await?, Interrupt::Cancelled);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop { cx: Some(self.clone()) }
    }
}

impl CancelOnDrop {
    /// Lets the context go on.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    ///
    /// let cx = Context::new();
    /// cx.cancel_on_drop().disarm();
    /// assert!(!cx.is_cancelled());
    /// ```
    pub fn disarm(mut self) {
        self.cx = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cx) = &self.cx {
            cx.cancel();
        }
    }
}
