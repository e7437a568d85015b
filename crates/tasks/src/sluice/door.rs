//! The door: where callers wait to be let in while the queue is full.
//!
//! `docs/rules.md#overload-1`, `docs/rules.md#sluice-5`.
//!
//! Invariants:
//! 1. Only the first in line is let in, and it stays the first until it is in or goes. So nobody
//!    overtakes, however often whoever is polled, and whatever takes the room it was called in for.
//! 2. If there is room and somebody waits, the first has been woken and has not looked yet. Whoever
//!    is let in or goes calls the next.

use std::collections::BTreeMap;
use std::task::{Poll, Waker};

use sluicegate_schedule::{Moment, Refusal as Full};

use super::Overload;
use super::callers::Entered;
use super::line::{After, Line, State};
use crate::Entry;
use crate::panic::wake_all;

/// Callers that wait to be let in, first come, first served; one that was woken has no waker here.
#[derive(Debug, Default)]
pub(super) struct Door {
    waiting: BTreeMap<u64, Option<Waker>>,
    tickets: u64,
}

/// Somebody who wants to be let in. Dropped, it leaves the door.
pub(super) struct AtDoor<'a, V> {
    line: &'a Line<V>,
    ticket: Option<u64>,
}

impl Door {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The waker of the first, unless it was called in already.
    pub(super) fn call_in(&mut self) -> Option<Waker> {
        self.waiting.first_entry()?.get_mut().take()
    }

    /// Every waker: nobody will be let in any more.
    pub(super) fn call_all(&mut self) -> impl Iterator<Item = Waker> {
        self.waiting.values_mut().filter_map(Option::take)
    }

    /// Whether it is this one's turn to be let in.
    fn is_first(&self, ticket: Option<u64>) -> bool {
        self.waiting.first_key_value().is_none_or(|(first, _)| Some(*first) == ticket)
    }

    /// Waits from now on, at the place it has, if it has one. Returns the waker it had.
    fn wait(&mut self, ticket: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        let ticket = ticket.unwrap_or_else(|| {
            self.tickets += 1;
            self.tickets
        });
        (ticket, self.waiting.insert(ticket, Some(waker)).flatten())
    }

    fn leave(&mut self, ticket: Option<u64>) -> Option<Waker> {
        self.waiting.remove(&ticket?).flatten()
    }
}

impl<V> Line<V> {
    pub(super) const fn door(&self) -> AtDoor<'_, V> {
        AtDoor { line: self, ticket: None }
    }
}

impl<V> State<V> {
    /// Nothing more is let in past those who wait for it.
    pub(super) fn is_promised(&self, overload: Overload) -> bool {
        overload == Overload::Wait && !self.closed && !self.door.is_empty()
    }
}

impl<V> AtDoor<'_, V> {
    /// Lets a caller's item in; `Pending` while it waits for room.
    pub(super) fn knock(
        &mut self,
        now: Moment,
        entry: &mut Option<Entry>,
        overload: Overload,
        waker: &Waker,
    ) -> After<V, Poll<Result<Entered, Full>>> {
        // Cloned before and dropped after the lock is held: the executor's code runs then, and names that
        // the schedule has already are freed.
        let (ticket, mut waker, names) = (self.ticket.take(), Some(waker.clone()), entry.clone());
        let After { result: (entered, ticket, displaced), alarm, expired } =
            self.line.change(now, |state, wakers| {
                let may_enter = state.door.is_first(ticket) && state.has_room();
                if overload == Overload::Wait
                    && !state.closed
                    && !may_enter
                    && let Some(waker) = waker.take()
                {
                    let (ticket, displaced) = state.door.wait(ticket, waker);
                    return (Poll::Pending, Some(ticket), displaced);
                }
                let displaced = state.door.leave(ticket);
                let entry = entry.take().expect("let in once");
                let entered = state.enter_caller(entry, overload, wakers);
                (Poll::Ready(entered), None, displaced)
            });
        self.ticket = ticket;
        drop((displaced, waker, names));
        After { result: entered, alarm, expired }
    }
}

impl<V> Drop for AtDoor<'_, V> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let (displaced, next) = self.line.attend(|state| {
                let displaced = state.door.leave(Some(ticket));
                let mut wakers = Vec::new();
                wakers.extend(if state.has_room() { state.door.call_in() } else { None });
                state.call_watchers(&mut wakers);
                (displaced, wakers)
            });
            drop(displaced);
            wake_all(next);
        }
    }
}
