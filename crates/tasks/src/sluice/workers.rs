//! Workers: whoever is free pulls the next value that may start.
//!
//! `docs/rules.md#sluice-1`, `docs/rules.md#sluice-4`.

use std::task::{Poll, Waker};
use std::time::Duration;

use sluicegate_schedule::{ItemId, Moment, Next, Refusal as Full, Refused, Snapshot, Why};

use super::callers::not_at_once;
use super::done::DoneTurn;
use super::line::{After, Line, Pulled, Runner, Slot, State};
use super::{Batch, Overload};
use crate::Entry;
use crate::panic::wake_all;

/// A worker that waits for a value. Dropped, it passes its call on.
pub(super) struct Puller<'a, V> {
    line: &'a Line<V>,
    place: Option<u32>,
}

/// For how long an item ran, and at what cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) time: Duration,
    pub(super) cost: u32,
}

/// How an item that was out goes back to the front of its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Back {
    /// It ran, and runs again no sooner than this.
    Retry { until: Moment, ran: Ran },
    /// It did not run at all.
    Postpone { until: Moment },
}

impl<V> Line<V> {
    /// Lets an item in for whichever worker pulls it.
    pub(super) fn admit(
        &self,
        now: Moment,
        entry: Entry,
        value: V,
        overload: Overload,
    ) -> After<V, Result<ItemId, Refused<V>>> {
        self.change(now, |state, wakers| {
            if state.is_promised(overload) {
                return Err(Refused { why: state.full(), value });
            }
            let slot = Slot::new(Runner::Worker(Some(value)), state.now);
            if overload == Overload::FailFast {
                return state.hand_over((entry, slot), wakers).map_err(unfilled);
            }
            let id = state.fair.admit(state.now, entry, slot).map_err(unfilled)?;
            state.admitted(id, false);
            Ok(id)
        })
    }

    /// Lets a batch in, whole or not at all.
    pub(super) fn admit_all(
        &self,
        now: Moment,
        batch: Batch<V>,
        overload: Overload,
    ) -> After<V, Result<Vec<ItemId>, Refused<Batch<V>>>> {
        let slot = |value| Slot::new(Runner::Worker(Some(value)), now);
        let batch: Vec<_> = batch.into_iter().map(|(entry, value)| (entry, slot(value))).collect();
        let After { result, alarm, expired } = self.change(now, |state, wakers| {
            if state.is_promised(overload) {
                return Err(Refused { why: state.full(), value: batch });
            }
            if overload == Overload::FailFast {
                return state.hand_over_all(batch, wakers);
            }
            let ids = state.fair.admit_all(state.now, batch)?;
            ids.iter().for_each(|id| state.admitted(*id, false));
            Ok(ids)
        });
        let result = result.map_err(|Refused { why, value: batch }: Refused<Vec<_>>| {
            let values = batch.into_iter().map(|(entry, slot)| (entry, value_of(slot)));
            Refused { why, value: values.collect() }
        });
        After { result, alarm, expired }
    }

    pub(super) fn try_pull(&self, now: Moment) -> After<V, Option<Pulled<V>>> {
        self.change(now, |state, wakers| state.pull(wakers))
    }

    pub(super) const fn puller(&self) -> Puller<'_, V> {
        Puller { line: self, place: None }
    }

    /// Takes a waiting item out, if a worker would run it.
    pub(super) fn withdraw(&self, now: Moment, id: ItemId) -> After<V, Option<V>> {
        self.change(now, |state, _| {
            matches!(state.fair.get(id)?.runner, Runner::Worker(_))
                .then(|| state.cancel(id).map(value_of))?
        })
    }

    /// Ends the hold of a key for an item that was put back.
    pub(super) fn release(&self, now: Moment, id: ItemId) -> After<V, bool> {
        self.change(now, |state, _| match state.fair.why(state.now, id) {
            Some(Why::KeyRetrying { head, .. }) if head == id => state.fair.release(id),
            _ => false,
        })
    }

    /// An item is done; pulls the next in the same step.
    pub(super) fn finish_and_pull(
        &self,
        now: Moment,
        id: ItemId,
        ran: Ran,
    ) -> After<V, Option<Pulled<V>>> {
        self.change(now, |state, wakers| {
            state.finish(DoneTurn { at: now, id, ran });
            state.pull(wakers)
        })
    }

    /// An item was given up: it ran, but is not done.
    pub(super) fn abandon(&self, now: Moment, id: ItemId, ran: Ran) -> After<V, ()> {
        self.change(now, |state, _| {
            state.fair.complete(id, Some(ran.cost));
        })
    }

    /// An item is done and keeps its key; pulls the next in the same step, if asked to.
    pub(super) fn linger(
        &self,
        now: Moment,
        id: ItemId,
        ran: Ran,
        pull: bool,
    ) -> After<V, Option<Pulled<V>>> {
        self.change(now, |state, wakers| {
            state.fair.linger(id, Some(ran.cost));
            state.ledger.ran(now, ran.time);
            if pull { state.pull(wakers) } else { None }
        })
    }

    /// A kept key is free.
    pub(super) fn depart(&self, now: Moment, id: ItemId) -> After<V, ()> {
        self.change(now, |state, _| {
            state.fair.depart(id);
        })
    }

    /// Puts an item that is out back to the front of its key, to be run by `runner`. If it is too late
    /// for that it is over, and the runner comes back.
    pub(super) fn put_back(
        &self,
        now: Moment,
        id: ItemId,
        back: Back,
        runner: Runner<V>,
    ) -> After<V, Result<(), Runner<V>>> {
        self.change(now, |state, _| {
            if state.closed {
                // Handed back, so not counted as done.
                match back {
                    Back::Retry { ran, .. } => drop(state.fair.complete(id, Some(ran.cost))),
                    Back::Postpone { .. } => drop(state.fair.revoke(id)),
                }
                return Err(runner);
            }
            let now = state.now;
            if let Back::Retry { ran, .. } = back {
                state.ledger.ran(now, ran.time);
            }
            state.waits_again(&runner);
            if let Some(slot) = state.fair.get_mut(id) {
                (slot.runner, slot.since, slot.at_once) = (runner, now, false);
            }
            match back {
                Back::Retry { until, ran } => {
                    state.fair.retry(now, id, until, Some(ran.cost));
                }
                Back::Postpone { until } => {
                    state.fair.postpone(now, id, until);
                }
            }
            Ok(())
        })
    }
}

impl<V> State<V> {
    /// The next value, if something may start that a worker runs.
    pub(super) fn pull(&mut self, wakers: &mut Vec<Waker>) -> Option<Pulled<V>> {
        let now = self.now;
        let id = match self.handed.pop_front() {
            Some(handed) => handed,
            None => {
                // Those that are before it are told first.
                self.tell_callers(wakers);
                let Next::Start(id) = self.fair.next(now) else { return None };
                id
            }
        };
        self.idle_workers.taken();
        let Self { fair, ledger, .. } = self;
        let slot = fair.get_mut(id).expect("what starts is here");
        slot.is_new = false;
        ledger.started(now, now - slot.since);
        let Runner::Worker(value) = &mut slot.runner else {
            unreachable!("callers were told before");
        };
        let value = value.take().expect("a value that nobody pulled is in its slot");
        Some(Pulled { id, value, admitted: slot.admitted })
    }

    /// There is no room for what comes now.
    fn full(&self) -> Full {
        let Snapshot { queued, capacity, .. } = self.fair.snapshot(Moment::ZERO);
        Full::QueueFull { queued, capacity }
    }

    /// Lets an item in that starts at once, for a worker that waits.
    fn hand_over(
        &mut self,
        (entry, slot): (Entry, Slot<V>),
        wakers: &mut Vec<Waker>,
    ) -> Result<ItemId, Refused<Slot<V>>> {
        let id = self.fair.admit(self.now, entry, slot)?;
        self.admitted(id, false);
        // What waits and may start too goes first, as long as there are workers for both.
        while (self.handed.len() as u32) < self.idle_workers.count() {
            self.tell_callers(wakers);
            let Next::Start(started) = self.fair.next(self.now) else { break };
            self.handed.push_back(started);
            if started == id {
                return Ok(id);
            }
        }
        let why = match self.fair.why(self.now, id) {
            None | Some(Why::Ready) => Full::NoWorker,
            Some(why) => not_at_once(why),
        };
        let slot = self.undo(id).expect("it was let in just now");
        Err(Refused { why, value: slot })
    }

    /// The same for a batch, whole or not at all.
    fn hand_over_all(
        &mut self,
        batch: Batch<Slot<V>>,
        wakers: &mut Vec<Waker>,
    ) -> Result<Vec<ItemId>, Refused<Batch<Slot<V>>>> {
        let entries: Vec<Entry> = batch.iter().map(|(entry, _)| entry.clone()).collect();
        let (mut ids, mut rest) = (Vec::with_capacity(batch.len()), batch.into_iter());
        while let Some(item) = rest.next() {
            match self.hand_over(item, wakers) {
                Ok(id) => ids.push(id),
                Err(Refused { why, value: refused }) => {
                    let first = ids.first().and_then(|id| self.handed.iter().position(|h| h == id));
                    self.take_back_handed(first.unwrap_or(self.handed.len()));
                    let undone = ids.into_iter().filter_map(|id| self.undo(id));
                    let slots: Vec<_> = undone.chain([refused]).collect();
                    let slots = slots.into_iter().chain(rest.map(|(_, slot)| slot));
                    return Err(Refused { why, value: entries.into_iter().zip(slots).collect() });
                }
            }
        }
        Ok(ids)
    }

    /// What started for workers that are not there any more waits, as if it had not.
    pub(super) fn take_back_handed(&mut self, keep: usize) {
        for id in self.handed.drain(keep..).rev() {
            self.fair.postpone(self.now, id, self.now);
        }
    }

    /// What was just let in was not.
    fn undo(&mut self, id: ItemId) -> Option<Slot<V>> {
        let slot = self.refuse(id)?;
        self.ledger.admitted -= 1;
        Some(slot)
    }
}

impl<V> Puller<'_, V> {
    /// Takes the next value if one may start. Else it waits from now on, behind those who do already,
    /// unless the line is closed.
    pub(super) fn look(&mut self, now: Moment, waker: &Waker) -> After<V, Poll<Option<Pulled<V>>>> {
        // Cloned before and dropped after the lock is held: both run the executor's code.
        let (place, mut waker) = (self.place.take(), Some(waker.clone()));
        let After { result: (seen, place, displaced), alarm, expired } =
            self.line.change(now, |state, wakers| {
                let pulled = state.pull(wakers);
                if pulled.is_some() || state.closed {
                    return (Poll::Ready(pulled), None, state.idle_workers.leave(place));
                }
                // One that was polled for nothing keeps its place.
                if let Some(at) = place
                    && let Some(known) = state.idle_workers.sleeper(at)
                {
                    return (Poll::Pending, place, std::mem::replace(known, waker.take()));
                }
                let displaced = state.idle_workers.leave(place);
                (Poll::Pending, Some(state.idle_workers.wait(waker.take())), displaced)
            });
        self.place = place;
        drop((displaced, waker));
        After { result: seen, alarm, expired }
    }
}

impl<V> Drop for Puller<'_, V> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            // What it was woken for is for another; where none waits it is there for the next who asks.
            let (displaced, next) = self.line.attend(|state| {
                let displaced = state.idle_workers.leave(Some(place));
                let idle = state.idle_workers.count() as usize;
                state.take_back_handed(idle.min(state.handed.len()));
                let next = if displaced.is_none() { state.idle_workers.pass_on() } else { None };
                (displaced, next)
            });
            drop(displaced);
            wake_all(next);
        }
    }
}

fn value_of<V>(slot: Slot<V>) -> V {
    match slot.runner {
        Runner::Worker(Some(value)) => value,
        _ => unreachable!("a value that nobody pulled is in its slot"),
    }
}

fn unfilled<V>(Refused { why, value: slot }: Refused<Slot<V>>) -> Refused<V> {
    Refused { why, value: value_of(slot) }
}
