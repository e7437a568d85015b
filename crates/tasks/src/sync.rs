//! The locks and atomics of this crate, behind one door, so that the interleaving models can put
//! loom's in their place.

#[cfg(not(sluicegate_loom))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(sluicegate_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(sluicegate_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(sluicegate_loom)]
pub(crate) use model::{Mutex, Mutex as BriefMutex};

/// A lock that nobody holds for longer than a microsecond or so. Whoever finds it taken looks again for
/// about as long before going to sleep: falling asleep and being woken costs several times that.
#[cfg(not(sluicegate_loom))]
#[derive(Debug)]
pub(crate) struct BriefMutex<T>(Mutex<T>);

#[cfg(not(sluicegate_loom))]
impl<T> BriefMutex<T> {
    /// Looks before sleeping, a pause of some ten nanoseconds after each.
    const LOOKS: u32 = 100;

    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_soon(),
        }
    }

    #[cold]
    fn lock_soon(&self) -> parking_lot::MutexGuard<'_, T> {
        for _ in 0..Self::LOOKS {
            std::hint::spin_loop();
            if !self.0.is_locked()
                && let Some(guard) = self.0.try_lock()
            {
                return guard;
            }
        }
        self.0.lock()
    }
}

#[cfg(sluicegate_loom)]
mod model {
    /// loom's mutex with parking_lot's face: there is no poison.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}
