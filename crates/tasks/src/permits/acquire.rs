//! Waiting for permits.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use super::Permits;
use super::line::Outcome;

/// A wait for so many permits. Resolves once they are the caller's to wrap in a guard, or with the
/// limit that was lowered below them.
///
/// Dropped while it waits, it leaves the line, and what was set aside for it goes to the next.
#[derive(Debug)]
pub(crate) struct Acquire<P: Deref<Target = Permits> + Unpin> {
    permits: P,
    wanted: u32,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Not in line: it never asked, or it is over.
    Out,
    /// In line, at that place.
    Waits(u32),
    /// Given its permits, and about to say so.
    Granted,
}

impl<P: Deref<Target = Permits> + Unpin> Acquire<P> {
    /// A wait for one.
    pub(crate) async fn one(permits: P) {
        let acquired = Self::many(permits, 1).await;
        debug_assert!(acquired.is_ok(), "a limit is never below one");
    }

    pub(crate) const fn many(permits: P, wanted: u32) -> Self {
        Self { permits, wanted, stage: Stage::Out }
    }
}

impl<P: Deref<Target = Permits> + Unpin> Future for Acquire<P> {
    type Output = Result<(), u32>;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut waker = Some(poller.waker().clone());
        let outcome = match this.stage {
            Stage::Waits(at) => this.permits.line.lock().look(at, &mut waker),
            Stage::Out | Stage::Granted => this.permits.take_or_join(this.wanted, &mut waker),
        };
        this.stage = match outcome {
            Outcome::Granted => Stage::Granted,
            Outcome::Waits(at) => Stage::Waits(at),
            Outcome::TooMany { .. } => Stage::Out,
        };
        // Last, since that may panic: whatever was given is then given back.
        drop(waker);
        match outcome {
            Outcome::Granted => {
                this.stage = Stage::Out;
                Poll::Ready(Ok(()))
            }
            Outcome::Waits(_) => Poll::Pending,
            Outcome::TooMany { limit } => Poll::Ready(Err(limit)),
        }
    }
}

impl<P: Deref<Target = Permits> + Unpin> Drop for Acquire<P> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Out => {}
            Stage::Waits(at) => self.permits.leave(at),
            Stage::Granted => self.permits.give_back_many(self.wanted),
        }
    }
}
