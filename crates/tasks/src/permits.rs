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
//!    permits that it grants change in one step, so while somebody waits `in_use >= limit` holds at
//!    every instant.
//! 4. Lock order: the list's lock is the innermost; no waker is called under it.
//!
//! `docs/rules.md#permit-1`, `docs/rules.md#permit-2`, `docs/rules.md#permit-3`, `docs/rules.md#permit-4`.

mod guard;
mod turn;

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

pub use guard::{AtLimit, OwnedPermit, Permit};
pub(crate) use turn::Turn;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sluicegate_schedule::Invalid;
use tokio::time::Instant;

use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::waitlist::WaitList;
use crate::{Context, Interrupt};

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
    queue: Mutex<WaitList<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    waker: Option<Waker>,
    since: Instant,
    granted: bool,
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
        Ok(Self { state: AtomicU64::new(with_limit(0, limit)), queue: Mutex::new(WaitList::new()) })
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
        cx.until_interrupted(Turn::new(self)).await?;
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
        cx.until_interrupted(Turn::new(Arc::clone(self))).await?;
        Ok(OwnedPermit { permits: Arc::clone(self) })
    }

    /// Changes the limit. A higher one lets those who wait in at once; a lower one takes nothing
    /// from anybody: nobody enters until enough permits have come back. Never blocks.
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
        let mut queue = self.queue.lock();
        let mut state = self.state.load(Ordering::Relaxed);
        let grants = loop {
            let grants = new.saturating_sub(in_use(state)).min(queue.len());
            let mut next = with_limit(state, new) + u64::from(grants);
            if grants == queue.len() {
                next &= !WAITERS;
            }
            match self.swap(state, next) {
                Ok(_) => break grants,
                Err(actual) => state = actual,
            }
        };
        let mut wakers: Vec<Waker> = Vec::with_capacity(grants as usize);
        wakers.extend((0..grants).filter_map(|_| grant_first(&mut queue)));
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
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

    /// How many are in use.
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
        self.queue.lock().len()
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
        self.queue.lock().front().map_or(Duration::ZERO, |first| first.since.elapsed())
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
        self.hand_over();
    }

    /// Passes a returned permit to the first in line, or counts it out.
    #[cold]
    fn hand_over(&self) {
        let mut queue = self.queue.lock();
        let mut state = self.state.load(Ordering::Relaxed);
        let passes = loop {
            // After a shrink the permit is one too many: it is not passed on.
            let passes = !queue.is_empty() && in_use(state) <= limit(state);
            let next = if !passes {
                state - ONE
            } else if queue.len() == 1 {
                state & !WAITERS
            } else {
                state
            };
            match self.swap(state, next) {
                Ok(_) => break passes,
                Err(actual) => state = actual,
            }
        };
        let waker = if passes { grant_first(&mut queue) } else { None };
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes a free permit, or a place in line. `None` is a permit.
    fn take_or_queue(&self, waker: Option<&Waker>, max_waiting: u32) -> Result<Option<u32>, u32> {
        let mut queue = self.queue.lock();
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let free = queue.is_empty() && in_use(state) < limit(state);
            if !free && queue.len() >= max_waiting {
                return Err(queue.len());
            }
            match self.swap(state, if free { state + ONE } else { state | WAITERS }) {
                Ok(_) if free => return Ok(None),
                Ok(_) => break,
                Err(actual) => state = actual,
            }
        }
        let waker = waker.cloned();
        Ok(Some(queue.push_back(Waiter { waker, since: Instant::now(), granted: false })))
    }

    /// Leaves the line. A permit that was already handed over goes on to the next.
    fn leave(&self, place: u32) {
        let mut queue = self.queue.lock();
        let granted = queue.free(place).is_some_and(|waiter| waiter.granted);
        if !granted && queue.is_empty() {
            self.state.fetch_and(!WAITERS, Ordering::Relaxed);
        }
        drop(queue);
        if granted {
            self.give_back();
        }
    }

    fn swap(&self, state: u64, next: u64) -> Result<u64, u64> {
        self.state.compare_exchange(state, next, Ordering::AcqRel, Ordering::Relaxed)
    }
}

fn grant_first(queue: &mut WaitList<Waiter>) -> Option<Waker> {
    let first = queue.pop_front()?;
    first.granted = true;
    first.waker.take()
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
