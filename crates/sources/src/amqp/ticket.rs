//! The answer to one call of `settle`, for which others do the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use tokio::sync::Notify;

/// Counts what of one call is still to be told to the broker.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    left: AtomicUsize,
    is_lost: AtomicBool,
    error: Mutex<Option<SourceError>>,
    done: Notify,
}

/// What became of a part of a call.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The broker was told.
    Done,
    /// The channel ended first: the broker takes the message back by itself.
    Lost,
    /// Nothing changed: it can be tried again.
    Failed(SourceError),
}

impl Ticket {
    /// One more is to be told.
    pub(crate) fn add(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn conclude(&self, count: usize, told: Told) {
        match told {
            Told::Done => {}
            Told::Lost => self.is_lost.store(true, Ordering::Relaxed),
            Told::Failed(error) => *self.error.lock() = Some(error),
        }
        if self.left.fetch_sub(count, Ordering::AcqRel) == count {
            self.done.notify_waiters();
        }
    }

    /// Waits until all is told; `false` where some of it was lost.
    pub(crate) async fn wait(&self) -> Result<bool, SourceError> {
        loop {
            let mut done = std::pin::pin!(self.done.notified());
            done.as_mut().enable();
            if self.left.load(Ordering::Acquire) == 0 {
                break;
            }
            done.await;
        }
        match self.error.lock().take() {
            Some(error) => Err(error),
            None => Ok(!self.is_lost.load(Ordering::Relaxed)),
        }
    }
}

/// Tickets with how many of each, neighbours together: a call settles many at once.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Vec<(Arc<Ticket>, usize)>);

impl Tickets {
    pub(crate) fn push(&mut self, ticket: Option<Arc<Ticket>>) {
        let Some(ticket) = ticket else { return };
        match self.0.last_mut() {
            Some((last, count)) if Arc::ptr_eq(last, &ticket) => *count += 1,
            _ => self.0.push((ticket, 1)),
        }
    }

    pub(crate) fn conclude(self, told: &Told) {
        for (ticket, count) in self.0 {
            ticket.conclude(count, told.clone());
        }
    }
}
