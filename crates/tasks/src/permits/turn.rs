//! Waiting for a permit.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use super::Permits;

/// A wait for one permit. Resolves once the permit is the caller's to wrap in a guard.
#[derive(Debug)]
pub(crate) struct Turn<P: Deref<Target = Permits> + Unpin> {
    permits: P,
    place: Option<u32>,
    /// A permit that is held but not yet wrapped.
    held: bool,
}

impl<P: Deref<Target = Permits> + Unpin> Turn<P> {
    pub(crate) const fn new(permits: P) -> Self {
        Self { permits, place: None, held: false }
    }

    /// Takes a free permit or a place in line right away, unless `max_waiting` wait already.
    pub(crate) fn queued(permits: P, max_waiting: u32) -> Result<Self, u32> {
        let place = permits.take_or_queue(None, max_waiting)?;
        Ok(Self { permits, place, held: place.is_none() })
    }
}

impl<P: Deref<Target = Permits> + Unpin> Future for Turn<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<()> {
        if std::mem::take(&mut self.held) {
            return Poll::Ready(());
        }
        let Some(place) = self.place else {
            // No bound: whoever polls is a caller who waits, and callers bound themselves.
            match self.permits.take_or_queue(Some(poller.waker()), u32::MAX) {
                Ok(None) => return Poll::Ready(()),
                Ok(place) => self.place = place,
                Err(_) => unreachable!("more waiters than a list can hold"),
            }
            return Poll::Pending;
        };
        let mut queue = self.permits.queue.lock();
        match queue.get_mut(place) {
            Some(waiter) if !waiter.granted => {
                waiter.waker = Some(poller.waker().clone());
                Poll::Pending
            }
            _ => {
                queue.free(place);
                drop(queue);
                self.place = None;
                Poll::Ready(())
            }
        }
    }
}

impl<P: Deref<Target = Permits> + Unpin> Drop for Turn<P> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.permits.leave(place);
        }
        if self.held {
            self.permits.give_back();
        }
    }
}
