//! Waiting for permits.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use super::Permits;
use super::line::{Joined, Outcome};

/// A wait for so many permits. Resolves once they are the caller's to wrap in a guard, or with the
/// limit that was lowered below them.
///
/// Dropped while it waits, it leaves the line, and what was set aside for it goes to the next.
#[derive(Debug)]
pub(crate) struct Acquire<P: Deref<Target = Permits> + Unpin> {
    permits: P,
    wanted: u32,
    /// Its place in line, once it has one.
    waiter: Option<u32>,
}

impl<P: Deref<Target = Permits> + Unpin> Acquire<P> {
    /// A wait for one.
    pub(crate) async fn one(permits: P) {
        let acquired = Self::many(permits, 1).await;
        debug_assert!(acquired.is_ok(), "a limit is never below one");
    }

    pub(crate) const fn many(permits: P, wanted: u32) -> Self {
        Self { permits, wanted, waiter: None }
    }
}

impl<P: Deref<Target = Permits> + Unpin> Future for Acquire<P> {
    type Output = Result<(), u32>;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        let waker = poller.waker().clone();
        let Some(waiter) = self.waiter else {
            return match self.permits.take_or_join(self.wanted, waker) {
                Joined::Taken => Poll::Ready(Ok(())),
                Joined::TooMany { limit } => Poll::Ready(Err(limit)),
                Joined::Waits(waiter) => {
                    self.waiter = Some(waiter);
                    Poll::Pending
                }
            };
        };
        let mut line = self.permits.line.lock();
        let (outcome, earlier) = line.look(waiter, waker);
        drop(line);
        drop(earlier);
        match outcome {
            Outcome::Waits => return Poll::Pending,
            Outcome::Granted => self.waiter = None,
            Outcome::TooMany { limit } => {
                self.waiter = None;
                return Poll::Ready(Err(limit));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<P: Deref<Target = Permits> + Unpin> Drop for Acquire<P> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.permits.leave(waiter);
        }
    }
}
