//! Several permits in one guard.
//!
//! `docs/rules.md#permit-5`.

use crate::sync::Ordering;
use std::fmt;
use std::sync::Arc;

use sluicegate_schedule::{Fault, Invalid};

use super::{Acquire, AtLimit, Permits, WAITERS, in_use, limit};
use crate::{Context, Interrupt};

/// So many permits, borrowed from [`Permits`]. Dropping it gives them back.
///
/// ```
/// use sluicegate_tasks::Permits;
///
/// let megabytes = Permits::new(64)?;
/// let image = megabytes.try_acquire_many(48)?;
/// assert_eq!((image.count(), megabytes.in_use()), (48, 48));
/// drop(image);
/// assert_eq!(megabytes.in_use(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping permits gives them back at once"]
pub struct ManyPermits<'a> {
    permits: &'a Permits,
    count: u32,
}

/// [`ManyPermits`] that own their [`Permits`], to be moved into a task.
///
/// ```
/// use sluicegate_tasks::Permits;
/// use std::sync::Arc;
///
/// let megabytes = Arc::new(Permits::new(64)?);
/// let image = megabytes.try_acquire_many_owned(48)?;
/// assert_eq!((image.count(), megabytes.in_use()), (48, 48));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping permits gives them back at once"]
pub struct OwnedManyPermits {
    permits: Arc<Permits>,
    count: u32,
}

/// Why there are no such permits.
///
/// ```
/// use sluicegate_tasks::{AcquireManyError, Permits};
///
/// let megabytes = Permits::new(64)?;
/// let refused = megabytes.try_acquire_many(65).unwrap_err();
/// assert_eq!(refused, AcquireManyError::TooMany { wanted: 65, limit: 64 });
/// assert_eq!(refused.to_string(), "65 permits wanted, and there are only 64");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireManyError {
    /// There are not so many: when asked, or since the limit was lowered.
    TooMany {
        /// How many were wanted.
        wanted: u32,
        /// How many there are.
        limit: u32,
    },
    /// Not so many are free, or others wait (the forms that do not wait).
    AtLimit(AtLimit),
    /// The context ended first (the forms that wait).
    Interrupted(Interrupt),
    /// None were wanted.
    Invalid(Invalid),
}

impl Permits {
    /// Takes so many permits at once, if they are free and nobody waits.
    ///
    /// ```
    /// use sluicegate_tasks::{AcquireManyError, AtLimit, Permits};
    ///
    /// let megabytes = Permits::new(64)?;
    /// let _image = megabytes.try_acquire_many(48)?;
    /// let refused = megabytes.try_acquire_many(17).unwrap_err();
    /// assert_eq!(refused, AcquireManyError::AtLimit(AtLimit { limit: 64, in_use: 48 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// At once: too many, none, or not free.
    pub fn try_acquire_many(&self, count: u32) -> Result<ManyPermits<'_>, AcquireManyError> {
        self.take_many(count)?;
        Ok(ManyPermits { permits: self, count })
    }

    /// [`Permits::try_acquire_many`] for permits that can be moved into a task.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    /// use std::sync::Arc;
    ///
    /// let megabytes = Arc::new(Permits::new(64)?);
    /// let image = megabytes.try_acquire_many_owned(48)?;
    /// drop(image);
    /// assert_eq!(megabytes.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// At once: too many, none, or not free.
    pub fn try_acquire_many_owned(
        self: &Arc<Self>,
        count: u32,
    ) -> Result<OwnedManyPermits, AcquireManyError> {
        self.take_many(count)?;
        Ok(OwnedManyPermits { permits: Arc::clone(self), count })
    }

    /// Waits for so many permits, in order of arrival, for as long as the context lets it.
    ///
    /// Nobody overtakes: at the front of the line it has permits set aside as they come back, so
    /// those who want fewer do not starve it, and wait for it. Cancel safe: dropped while waiting
    /// it leaves the line, and what was set aside goes to the next.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Permits};
    ///
    /// let megabytes = Permits::new(64)?;
    /// let small = megabytes.try_acquire()?;
    /// let cx = Context::new();
    /// let (whole, ()) = tokio::join!(megabytes.acquire_many(&cx, 64), async {
    ///     assert!(megabytes.try_acquire().is_err()); // 63 are set aside
    ///     drop(small);
    /// });
    /// assert_eq!(whole?.count(), 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// At once when there are not so many; later when the limit is lowered below them, since they
    /// would be waited for in vain; or when the context ends.
    pub async fn acquire_many(
        &self,
        cx: &Context,
        count: u32,
    ) -> Result<ManyPermits<'_>, AcquireManyError> {
        self.wait_for_many(cx, count).await?;
        Ok(ManyPermits { permits: self, count })
    }

    /// [`Permits::acquire_many`] for permits that can be moved into a task.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Permits};
    /// use std::sync::Arc;
    ///
    /// let megabytes = Arc::new(Permits::new(64)?);
    /// let image = megabytes.acquire_many_owned(&Context::new(), 48).await?;
    /// assert_eq!(image.count(), 48);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Permits::acquire_many`].
    pub async fn acquire_many_owned(
        self: &Arc<Self>,
        cx: &Context,
        count: u32,
    ) -> Result<OwnedManyPermits, AcquireManyError> {
        self.wait_for_many(cx, count).await?;
        Ok(OwnedManyPermits { permits: Arc::clone(self), count })
    }

    fn take_many(&self, wanted: u32) -> Result<(), AcquireManyError> {
        check(wanted)?;
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let (limit, in_use) = (limit(state), in_use(state));
            if wanted > limit {
                return Err(AcquireManyError::TooMany { wanted, limit });
            }
            // Invariant 3: while somebody waits none is free.
            if limit.saturating_sub(in_use) < wanted {
                return Err(AcquireManyError::AtLimit(AtLimit { limit, in_use }));
            }
            match self.swap(state, state + u64::from(wanted)) {
                Ok(_) => return Ok(()),
                Err(actual) => state = actual,
            }
        }
    }

    async fn wait_for_many(&self, cx: &Context, wanted: u32) -> Result<(), AcquireManyError> {
        check(wanted)?;
        cx.check()?;
        let waited = cx.until_interrupted(Acquire::many(self, wanted)).await?;
        waited.map_err(|limit| AcquireManyError::TooMany { wanted, limit })
    }

    /// Gives back so many permits that have no guard.
    pub(super) fn give_back_many(&self, count: u32) {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & WAITERS == 0 {
            match self.swap(state, state - u64::from(count)) {
                Ok(_) => return,
                Err(actual) => state = actual,
            }
        }
        self.hand_over(count);
    }
}

fn check(wanted: u32) -> Result<(), AcquireManyError> {
    if wanted == 0 {
        return Err(AcquireManyError::Invalid(Invalid::new("permits", Fault::Zero)));
    }
    Ok(())
}

impl ManyPermits<'_> {
    /// How many.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    ///
    /// assert_eq!(Permits::new(8)?.try_acquire_many(3)?.count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }
}

impl OwnedManyPermits {
    /// How many.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    /// use std::sync::Arc;
    ///
    /// assert_eq!(Arc::new(Permits::new(8)?).try_acquire_many_owned(3)?.count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for ManyPermits<'_> {
    fn drop(&mut self) {
        self.permits.give_back_many(self.count);
    }
}

impl Drop for OwnedManyPermits {
    fn drop(&mut self) {
        self.permits.give_back_many(self.count);
    }
}

impl fmt::Display for AcquireManyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { wanted, limit } => {
                write!(f, "{wanted} permits wanted, and there are only {limit}")
            }
            Self::AtLimit(at_limit) => at_limit.fmt(f),
            Self::Interrupted(why) => why.fmt(f),
            Self::Invalid(invalid) => invalid.fmt(f),
        }
    }
}

impl std::error::Error for AcquireManyError {}

/// So that `cx.check()?` works where permits are asked for.
impl From<Interrupt> for AcquireManyError {
    fn from(why: Interrupt) -> Self {
        Self::Interrupted(why)
    }
}
