//! Waiting for the sluice as a whole: until there is room, or until nothing is out.
//!
//! Watchers are few (whoever feeds the sluice, whoever drains it), so each change looks at all of
//! them, and at none when there are none.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use sluicegate_schedule::{Moment, Snapshot};

use super::line::{Line, State};

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// So many more would fit, or nothing ever will.
    Room(u32),
    /// Nothing runs, and no key is kept.
    Empty,
}

#[derive(Debug, Default)]
pub(super) struct Watchers {
    waiting: Vec<Watcher>,
    tickets: u64,
}

#[derive(Debug)]
struct Watcher {
    ticket: u64,
    until: Until,
    waker: Waker,
}

/// Resolves once it is so. Dropping it leaves nothing behind.
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct Watch<'a, V> {
    line: &'a Line<V>,
    until: Until,
    ticket: Option<u64>,
}

impl<V> Line<V> {
    pub(crate) const fn watch(&self, until: Until) -> Watch<'_, V> {
        Watch { line: self, until, ticket: None }
    }
}

impl<V> State<V> {
    /// Gathers who is to be woken for what is now so.
    pub(super) fn call_watchers(&mut self, wakers: &mut Vec<Waker>) {
        if self.watchers.is_empty() {
            return;
        }
        let mut at = 0;
        while let Some(watcher) = self.watchers.waiting.get(at) {
            if self.is(watcher.until) {
                wakers.push(self.watchers.waiting.swap_remove(at).waker);
            } else {
                at += 1;
            }
        }
    }

    fn is(&self, until: Until) -> bool {
        let Snapshot { queued, running, lingering, capacity, .. } =
            self.fair.snapshot(Moment::ZERO);
        match until {
            // Once closed nothing waits, so there is all the room there can be.
            Until::Room(count) => {
                (self.closed || self.door.is_empty())
                    && capacity.saturating_sub(queued) >= count.min(capacity)
            }
            Until::Empty => running + lingering == 0,
        }
    }
}

impl Watchers {
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|watcher| watcher.ticket == ticket)?;
        Some(self.waiting.swap_remove(at).waker)
    }
}

impl<V> Future for Watch<'_, V> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (until, ticket) = (self.until, self.ticket.take());
        // Cloned before and dropped after the lock is held: both run the executor's code.
        let waker = cx.waker().clone();
        let (ticket, displaced) = self.line.attend(|state| {
            let displaced = ticket.and_then(|ticket| state.watchers.leave(ticket));
            if state.is(until) {
                return (None, (displaced, Some(waker)));
            }
            state.watchers.tickets += 1;
            let ticket = state.watchers.tickets;
            state.watchers.waiting.push(Watcher { ticket, until, waker });
            (Some(ticket), (displaced, None))
        });
        drop(displaced);
        self.ticket = ticket;
        if ticket.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<V> Drop for Watch<'_, V> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let left = self.line.attend(|state| state.watchers.leave(ticket));
            drop(left);
        }
    }
}
