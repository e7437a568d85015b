//! Permits: how many may at once.
//!
//! One word holds the permits in use, the limit and whether anybody waits, so taking a free permit
//! and giving it back cost one compare-and-swap each, and the counts in a refusal belong together.
//! Those who wait stand in a list behind a lock.
//!
//! Invariants:
//! 1. `WAITERS` is set exactly while the list is not empty; both change under the lock.
//! 2. While it is set nobody gets a permit but by hand-over to the first in line: no overtaking.
//! 3. A returned permit is handed over without being counted out and in, and a growing limit and the
//!    permits that it grants change in one step. Who wants many and is first has those that are free
//!    set aside, and they count as in use. So while somebody waits `in_use >= limit` holds at every
//!    instant, and a look at the counts alone keeps everybody from overtaking.
//! 4. While `WAITERS` is set the word changes under the lock only.
//! 5. Lock order: the list's lock is the innermost; no waker is cloned, called or dropped under it.
//!
//! `docs/rules.md#permit-1`, `docs/rules.md#permit-2`, `docs/rules.md#permit-3`, `docs/rules.md#permit-4`.

mod acquire;
mod guard;
mod line;
mod many;

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

pub(crate) use acquire::Acquire;
pub use guard::{AtLimit, OwnedPermit, Permit};
pub use many::{AcquireManyError, ManyPermits, OwnedManyPermits};

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::{Context, Interrupt};
use line::{Line, Outcome, Wakers};
use sluicegate_schedule::Invalid;

/// A bound on concurrency that can change while it is in use.
///
/// ```
/// use sluicegate_tasks::{AtLimit, Permits};
///
/// let permits = Permits::new(1)?;
/// let permit = permits.try_acquire()?;
/// assert_eq!(permits.try_acquire().unwrap_err(), AtLimit { limit: 1, in_use: 1 });
/// drop(permit); // the only way to give it back, and it happens on every path
/// assert!(permits.try_acquire().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Permits {
    state: AtomicU64,
    line: Mutex<Line>,
}

const COUNT_BITS: u32 = 31;
const ONE: u64 = 1;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const WAITERS: u64 = 1 << 62;

const fn in_use(state: u64) -> u32 {
    (state & COUNT_MASK) as u32
}

const fn limit(state: u64) -> u32 {
    (state >> COUNT_BITS & COUNT_MASK) as u32
}

const fn with_limit(state: u64, limit: u32) -> u64 {
    state & !(COUNT_MASK << COUNT_BITS) | (limit as u64) << COUNT_BITS
}

impl Permits {
    /// The greatest limit.
    pub const MAX: u32 = COUNT_MASK as u32;

    /// So many permits.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    ///
    /// assert_eq!(Permits::new(4)?.limit(), 4);
    /// assert_eq!(Permits::new(0).unwrap_err().to_string(), "limit: must be at least 1");
    /// # Ok::<(), sluicegate_tasks::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// Names `limit` when it is zero or above [`Permits::MAX`].
    pub fn new(limit: u32) -> Result<Self, Invalid> {
        Invalid::check_count("limit", limit, Self::MAX)?;
        Ok(Self { state: AtomicU64::new(with_limit(0, limit)), line: Mutex::new(Line::new()) })
    }

    /// Takes a permit if one is free and nobody waits for it.
    ///
    /// ```
    /// use sluicegate_tasks::{AtLimit, Permits};
    ///
    /// let permits = Permits::new(1)?;
    /// let _permit = permits.try_acquire()?;
    /// assert_eq!(permits.try_acquire().unwrap_err(), AtLimit { limit: 1, in_use: 1 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AtLimit`] at once otherwise, with the true counts.
    #[inline]
    pub fn try_acquire(&self) -> Result<Permit<'_>, AtLimit> {
        self.take()?;
        Ok(Permit { permits: self })
    }

    /// [`Permits::try_acquire`] for a permit that can be moved into a task.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    /// use std::sync::Arc;
    ///
    /// let permits = Arc::new(Permits::new(1)?);
    /// let permit = permits.try_acquire_owned()?;
    /// assert!(permits.try_acquire_owned().is_err());
    /// drop(permit);
    /// assert!(permits.try_acquire_owned().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AtLimit`] at once, with the true counts.
    pub fn try_acquire_owned(self: &Arc<Self>) -> Result<OwnedPermit, AtLimit> {
        self.take()?;
        Ok(OwnedPermit { permits: Arc::clone(self) })
    }

    /// Waits for a permit, in order of arrival, for as long as the context lets it.
    ///
    /// Cancel safe: dropped while waiting it leaves the line, and a permit that was just handed to
    /// it goes to the next.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Interrupt, Permits};
    /// use std::time::Duration;
    ///
    /// let permits = Permits::new(1)?;
    /// let request = Context::new().with_timeout(Duration::from_millis(5));
    /// let permit = permits.acquire(&request).await?;
    /// assert_eq!(permits.acquire(&request).await.unwrap_err(), Interrupt::TimedOut);
    /// drop(permit);
    /// assert!(permits.acquire(&Context::new()).await.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Interrupt`] when the context ends first.
    pub async fn acquire(&self, cx: &Context) -> Result<Permit<'_>, Interrupt> {
        cx.check()?;
        if let Ok(permit) = self.try_acquire() {
            return Ok(permit);
        }
        cx.until_interrupted(Acquire::one(self)).await?;
        Ok(Permit { permits: self })
    }

    /// [`Permits::acquire`] for a permit that can be moved into a task.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Permits};
    /// use std::sync::Arc;
    ///
    /// let permits = Arc::new(Permits::new(1)?);
    /// let first = permits.acquire_owned(&Context::new()).await?;
    /// let cx = Context::new();
    /// let (second, ()) = tokio::join!(permits.acquire_owned(&cx), async { drop(first) });
    /// assert!(second.is_ok()); // it waited until the first came back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Interrupt`] when the context ends first.
    pub async fn acquire_owned(self: &Arc<Self>, cx: &Context) -> Result<OwnedPermit, Interrupt> {
        cx.check()?;
        if let Ok(permit) = self.try_acquire_owned() {
            return Ok(permit);
        }
        cx.until_interrupted(Acquire::one(Arc::clone(self))).await?;
        Ok(OwnedPermit { permits: Arc::clone(self) })
    }

    /// Changes the limit. A higher one lets those who wait in at once; a lower one takes nothing
    /// from anybody: nobody enters until enough permits have come back. Who waits for more than
    /// there are now is told so. Never blocks.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    ///
    /// let permits = Permits::new(2)?;
    /// let (one, other) = (permits.try_acquire()?, permits.try_acquire()?);
    /// permits.resize(1)?; // both go on
    /// assert_eq!((permits.in_use(), permits.limit()), (2, 1));
    /// drop(one);
    /// assert!(permits.try_acquire().is_err()); // the new limit is met, and in use
    /// drop(other);
    /// assert!(permits.try_acquire().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Names `limit` when it is zero or above [`Permits::MAX`]; then nothing changes.
    pub fn resize(&self, new: u32) -> Result<(), Invalid> {
        Invalid::check_count("limit", new, Self::MAX)?;
        let mut wakers = Wakers::default();
        let mut line = self.line.lock();
        let returned = u64::from(line.turn_away(new, &mut wakers));
        let mut state = self.state.load(Ordering::Relaxed);
        let grants = loop {
            let left = state - returned;
            let grants = u64::from(new.saturating_sub(in_use(left))).min(line.owed());
            let mut next = with_limit(left, new) + grants;
            if grants == line.owed() {
                next &= !WAITERS;
            }
            match self.swap(state, next) {
                Ok(_) => break grants as u32,
                Err(actual) => state = actual,
            }
        };
        line.grant(grants, &mut wakers);
        drop(line);
        wakers.wake();
        Ok(())
    }

    /// How many permits there are.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    ///
    /// let permits = Permits::new(2)?;
    /// permits.resize(5)?;
    /// assert_eq!(permits.limit(), 5);
    /// # Ok::<(), sluicegate_tasks::Invalid>(())
    /// ```
    #[must_use]
    pub fn limit(&self) -> u32 {
        limit(self.state.load(Ordering::Relaxed))
    }

    /// How many are in use, or set aside for the first in line that wants many.
    ///
    /// ```
    /// use sluicegate_tasks::Permits;
    ///
    /// let permits = Permits::new(2)?;
    /// let _permit = permits.try_acquire()?;
    /// assert_eq!(permits.in_use(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_use(&self) -> u32 {
        in_use(self.state.load(Ordering::Relaxed))
    }

    /// How many wait for one.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Permits};
    ///
    /// let permits = Permits::new(1)?;
    /// let permit = permits.try_acquire()?;
    /// let cx = Context::new();
    /// let (waited, ()) = tokio::join!(permits.acquire(&cx), async {
    ///     assert_eq!(permits.waiting(), 1);
    ///     drop(permit);
    /// });
    /// assert_eq!((waited.is_ok(), permits.waiting()), (true, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.line.lock().len()
    }

    /// How long the first in line has waited.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Permits};
    /// use std::time::Duration;
    ///
    /// let permits = Permits::new(1)?;
    /// let permit = permits.try_acquire()?;
    /// let cx = Context::new();
    /// let (waited, ()) = tokio::join!(permits.acquire(&cx), async {
    ///     tokio::time::sleep(Duration::from_millis(2)).await;
    ///     assert!(permits.oldest_wait() >= Duration::from_millis(2));
    ///     drop(permit);
    /// });
    /// assert_eq!((waited.is_ok(), permits.oldest_wait()), (true, Duration::ZERO));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn oldest_wait(&self) -> Duration {
        self.line.lock().oldest_wait()
    }

    /// Takes a permit without a guard: the caller is the guard.
    #[inline]
    pub(crate) fn take(&self) -> Result<(), AtLimit> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            // Invariant 3: this also keeps everybody from overtaking the line.
            if in_use(state) >= limit(state) {
                return Err(AtLimit { limit: limit(state), in_use: in_use(state) });
            }
            match self.state.compare_exchange_weak(
                state,
                state + ONE,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(actual) => state = actual,
            }
        }
    }

    /// Gives back a permit that has no guard.
    #[inline]
    pub(crate) fn give_back(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & WAITERS == 0 {
            match self.state.compare_exchange_weak(
                state,
                state - ONE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(actual) => state = actual,
            }
        }
        self.hand_over(1);
    }

    /// Passes returned permits to the first in line, or counts them out.
    #[cold]
    fn hand_over(&self, returned: u32) {
        let mut wakers = Wakers::default();
        let mut line = self.line.lock();
        let mut state = self.state.load(Ordering::Relaxed);
        let passed = loop {
            // After a shrink there are some too many: they are not passed on.
            let surplus = in_use(state).saturating_sub(limit(state)).min(returned);
            let passed = u64::from(returned - surplus).min(line.owed());
            let mut next = state - (u64::from(returned) - passed);
            if passed == line.owed() {
                next &= !WAITERS;
            }
            match self.swap(state, next) {
                Ok(_) => break passed as u32,
                Err(actual) => state = actual,
            }
        };
        line.grant(passed, &mut wakers);
        drop(line);
        wakers.wake();
    }

    /// Takes free permits, or a place in line with what is free set aside; only there is the waker left.
    fn take_or_join(&self, wanted: u32, waker: &mut Option<Waker>) -> Outcome {
        let mut line = self.line.lock();
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if wanted > limit(state) {
                return Outcome::TooMany { limit: limit(state) };
            }
            let free = limit(state).saturating_sub(in_use(state));
            let got = if line.is_empty() { free.min(wanted) } else { 0 };
            let next = state + u64::from(got);
            match self.swap(state, if got == wanted { next } else { next | WAITERS }) {
                Ok(_) if got == wanted => return Outcome::Granted,
                Ok(_) => return Outcome::Waits(line.join(wanted, got, waker.take())),
                Err(actual) => state = actual,
            }
        }
    }

    /// Leaves the line. What was set aside or already handed over goes on to the next.
    fn leave(&self, waiter: u32) {
        let mut line = self.line.lock();
        let (got, waker) = line.leave(waiter);
        if line.is_empty() {
            self.state.fetch_and(!WAITERS, Ordering::Relaxed);
        }
        drop(line);
        if got > 0 {
            self.give_back_many(got);
        }
        // Last, since that may panic.
        drop(waker);
    }

    fn swap(&self, state: u64, next: u64) -> Result<u64, u64> {
        self.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed)
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Ordering::Relaxed);
        f.debug_struct("Permits")
            .field("limit", &limit(state))
            .field("in_use", &in_use(state))
            .finish_non_exhaustive()
    }
}
