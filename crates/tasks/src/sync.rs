//! The locks and atomics of this crate, behind one door, so that the interleaving models can put
//! loom's in their place.

#[cfg(not(sluicegate_loom))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(sluicegate_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(sluicegate_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(sluicegate_loom)]
pub(crate) use model::Mutex;

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
