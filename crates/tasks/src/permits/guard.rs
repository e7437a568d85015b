//! Permits in hand, and the word that none is free.

use std::fmt;
use std::sync::Arc;

use super::Permits;

/// The right to run, borrowed from [`Permits`]. Dropping it gives it back.
///
/// There is no `release` and no `forget`; `std::mem::forget` on it is what the lint's `leaky-permit`
/// is for.
///
/// ```
/// use sluicegate_tasks::{AtLimit, Permits};
///
/// fn work(permits: &Permits) -> Result<u32, AtLimit> {
///     let _permit = permits.try_acquire()?; // given back on every way out, a panic's included
///     Ok(permits.in_use())
/// }
/// let permits = Permits::new(1)?;
/// assert_eq!(work(&permits), Ok(1));
/// assert_eq!(permits.in_use(), 0);
/// # Ok::<(), sluicegate_tasks::Invalid>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a permit gives it back at once"]
pub struct Permit<'a> {
    pub(super) permits: &'a Permits,
}

/// A [`Permit`] that owns its [`Permits`], to be moved into a task.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Permits, TaskGroup};
/// use std::sync::Arc;
///
/// let connections = Arc::new(Permits::new(1)?);
/// let group = TaskGroup::new("queries", 8)?;
/// let connection = connections.acquire_owned(&Context::new()).await?;
/// let task = group.submit(Context::new(), |cx| async move {
///     let _connection = connection; // held until the task ends
///     cx.check()
/// });
/// assert_eq!(task.await?.await?, Ok(()));
/// assert_eq!(connections.in_use(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a permit gives it back at once"]
pub struct OwnedPermit {
    pub(super) permits: Arc<Permits>,
}

/// Every permit is in use.
///
/// ```
/// use sluicegate_tasks::Permits;
///
/// let permits = Permits::new(2)?;
/// let _held = (permits.try_acquire()?, permits.try_acquire()?);
/// permits.resize(1)?;
/// let at_limit = permits.try_acquire().unwrap_err();
/// assert_eq!(at_limit.to_string(), "at the limit: 2 of 1 in use");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtLimit {
    /// How many permits there are.
    pub limit: u32,
    /// How many are in use. More than `limit` only after the limit was lowered.
    pub in_use: u32,
}

impl Drop for Permit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.permits.give_back();
    }
}

impl Drop for OwnedPermit {
    #[inline]
    fn drop(&mut self) {
        self.permits.give_back();
    }
}

impl fmt::Display for AtLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at the limit: {} of {} in use", self.in_use, self.limit)
    }
}

impl std::error::Error for AtLimit {}
