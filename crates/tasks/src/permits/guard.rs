//! Permits in hand, and the word that none is free.

use std::fmt;
use std::sync::Arc;

use super::Permits;

/// The right to run, borrowed from [`Permits`]. Dropping it gives it back.
///
/// There is no `release` and no `forget`; `std::mem::forget` on it is what the lint's `leaky-permit`
/// is for.
#[derive(Debug)]
#[must_use = "dropping a permit gives it back at once"]
pub struct Permit<'a> {
    pub(super) permits: &'a Permits,
}

/// A [`Permit`] that owns its [`Permits`], to be moved into a task.
#[derive(Debug)]
#[must_use = "dropping a permit gives it back at once"]
pub struct OwnedPermit {
    pub(super) permits: Arc<Permits>,
}

/// Every permit is in use.
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
