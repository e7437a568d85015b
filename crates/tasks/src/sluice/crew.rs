//! The party of a sluice: a crew that takes whatever may start next.
//!
//! Invariants:
//! 1. A value is in its item's slot while the item waits, or was started and is unclaimed; else it
//!    is in the hands of whoever pulled it.
//! 2. `started` holds exactly the items that were told to start and are unclaimed, in that order.
//! 3. Of the pullers in line, at least as many as there are unclaimed items have been woken and
//!    have not looked yet, or all have. One that goes without looking passes its call on.
//!
//! `docs/rules.md#sluice-1`, `docs/rules.md#sluice-4`.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::task::{Poll, Waker};
use std::time::Duration;

use sluicegate_schedule::{ItemId, Moment, Refused, Why};

use crate::Entry;
use crate::line::{After, Line, Party, State, in_millis};
use crate::waitlist::WaitList;

type Batch<V> = Vec<(Entry, V)>;

/// What the schedule keeps of each item.
#[derive(Debug)]
pub(super) struct Slot<V> {
    value: Option<V>,
    admitted: Moment,
    /// When it last began to wait.
    since: Moment,
}

#[derive(Debug)]
pub(super) struct Crew<V> {
    started: VecDeque<ItemId>,
    pullers: WaitList<Puller>,
    /// How many pullers were woken and have not looked yet.
    woken: usize,
    values: PhantomData<fn(V)>,
}

#[derive(Debug)]
struct Puller {
    /// Taken when it is woken.
    waker: Option<Waker>,
}

/// A value in the hands of whoever pulled it.
#[derive(Debug)]
pub(super) struct Pulled<V> {
    pub(super) id: ItemId,
    pub(super) value: V,
    pub(super) admitted: Moment,
    pub(super) waited: Duration,
}

/// A puller's place in line. Dropping it leaves, and passes on a call that was not answered.
pub(super) struct Place<'a, V> {
    line: &'a Line<Crew<V>>,
    at: Option<u32>,
}

impl<V> Slot<V> {
    fn new(value: V, now: Moment) -> Self {
        Self { value: Some(value), admitted: now, since: now }
    }

    /// The value of an item that nobody has pulled.
    fn into_value(self) -> V {
        self.value.expect("what nobody pulled has its value")
    }

    /// Puts a value back.
    pub(super) fn refill(&mut self, value: V, now: Moment) {
        (self.value, self.since) = (Some(value), now);
    }
}

impl<V> Crew<V> {
    pub(super) const fn new() -> Self {
        Self { started: VecDeque::new(), pullers: WaitList::new(), woken: 0, values: PhantomData }
    }

    fn wake_first(&mut self) -> Option<Waker> {
        let waker = self.pullers.pop_front()?.waker.take();
        self.woken += 1;
        waker
    }

    /// A puller looks, or goes. Returns its waker if it was not called.
    fn leave(&mut self, at: u32) -> Option<Waker> {
        let waker = self.pullers.free(at)?.waker;
        if waker.is_none() {
            self.woken -= 1;
        }
        waker
    }
}

impl<V> Party for Crew<V> {
    type Slot = Slot<V>;

    fn hear(&mut self, id: ItemId, _slot: &mut Slot<V>, _wakers: &mut Vec<Waker>) {
        self.started.push_back(id);
    }

    fn call(&mut self, wakers: &mut Vec<Waker>) {
        while self.woken < self.started.len()
            && let Some(waker) = self.wake_first()
        {
            wakers.push(waker);
        }
    }

    fn unclaimed(&self) -> u32 {
        self.started.len() as u32
    }
}

impl<V> Line<Crew<V>> {
    pub(super) fn admit(
        &self,
        now: Moment,
        entry: Entry,
        value: V,
    ) -> After<Result<ItemId, Refused<V>>> {
        self.change(now, |state, _| {
            let admitted = state.fair.admit(now, entry, Slot::new(value, now));
            state.ledger.admitted += u64::from(admitted.is_ok());
            admitted
                .map_err(|Refused { why, value: slot }| Refused { why, value: slot.into_value() })
        })
    }

    pub(super) fn admit_all(
        &self,
        now: Moment,
        batch: Batch<V>,
    ) -> After<Result<Vec<ItemId>, Refused<Batch<V>>>> {
        let batch = batch.into_iter().map(|(entry, value)| (entry, Slot::new(value, now)));
        let batch: Vec<_> = batch.collect();
        let After { result, alarm } = self.change(now, |state, _| {
            let admitted = state.fair.admit_all(now, batch);
            state.ledger.admitted += admitted.as_ref().map_or(0, |ids| ids.len() as u64);
            admitted
        });
        let result = result.map_err(|Refused { why, value: batch }| {
            let batch = batch.into_iter().map(|(entry, slot)| (entry, slot.into_value()));
            Refused { why, value: batch.collect() }
        });
        After { result, alarm }
    }

    /// The next value, if one may start now.
    pub(super) fn try_pull(&self, now: Moment) -> After<Option<Pulled<V>>> {
        self.change_then(now, |_, _| (), |state, ()| state.pull(now))
    }

    pub(super) const fn place(&self) -> Place<'_, V> {
        Place { line: self, at: None }
    }

    /// Takes out an item that nobody pulled.
    pub(super) fn withdraw(&self, now: Moment, id: ItemId) -> After<Option<V>> {
        self.change(now, |state, _| {
            let slot = state.fair.cancel(id).or_else(|| {
                let at = state.party.started.iter().position(|started| *started == id)?;
                state.party.started.remove(at);
                state.fair.revoke(id)
            });
            slot.map(Slot::into_value)
        })
    }

    /// Ends the wait of an item that was put back.
    pub(super) fn release(&self, now: Moment, id: ItemId) -> After<bool> {
        self.change(now, |state, _| match state.fair.why(now, id) {
            Some(Why::KeyRetrying { head, .. }) if head == id => state.fair.release(id),
            _ => false,
        })
    }

    /// An item has run, and whoever ran it takes the next.
    pub(super) fn finish_and_pull(
        &self,
        now: Moment,
        id: ItemId,
        cost: Duration,
    ) -> After<Option<Pulled<V>>> {
        let finish = |state: &mut State<Crew<V>>| {
            state.fair.complete(id, Some(in_millis(cost)));
            state.ledger.run_time.record(cost);
        };
        self.change_then(now, |state, _| finish(state), |state, ()| state.pull(now))
    }

    /// An item has run, and keeps its key.
    pub(super) fn linger(&self, now: Moment, id: ItemId, cost: Duration) -> After<()> {
        self.change(now, |state, _| state.linger(id, cost))
    }

    /// An item has run and keeps its key, and whoever ran it takes the next.
    pub(super) fn linger_and_pull(
        &self,
        now: Moment,
        id: ItemId,
        cost: Duration,
    ) -> After<Option<Pulled<V>>> {
        self.change_then(now, |state, _| state.linger(id, cost), |state, ()| state.pull(now))
    }

    /// It gives its key up.
    pub(super) fn depart(&self, now: Moment, id: ItemId) -> After<()> {
        self.change(now, |state, _| {
            state.fair.depart(id);
        })
    }

    /// Lets nothing more in and hands back all that nobody pulled, in the order of admission.
    pub(super) fn close(&self, now: Moment) -> Vec<V> {
        let After { result: mut waited, .. } = self.change(now, |state, wakers| {
            state.close();
            let State { fair, party, .. } = state;
            let revoked = party.started.drain(..).filter_map(|id| Some((id, fair.revoke(id)?)));
            let mut waited: Vec<_> = revoked.collect();
            let ids: Vec<ItemId> = fair.waiting().map(|item| item.id).collect();
            waited.extend(ids.into_iter().zip(fair.take_waiting()));
            wakers.extend(std::iter::from_fn(|| party.wake_first()));
            waited
        });
        waited.sort_unstable_by_key(|(id, _)| id.number());
        waited.into_iter().map(|(_, slot)| slot.into_value()).collect()
    }
}

impl<V> State<Crew<V>> {
    fn linger(&mut self, id: ItemId, cost: Duration) {
        self.fair.linger(id, Some(in_millis(cost)));
        self.ledger.run_time.record(cost);
    }

    fn pull(&mut self, now: Moment) -> Option<Pulled<V>> {
        let id = self.party.started.pop_front()?;
        let slot = self.fair.get_mut(id).expect("what was told to start is here");
        let value = slot.value.take().expect("what nobody pulled has its value");
        Some(Pulled { id, value, admitted: slot.admitted, waited: now - slot.since })
    }
}

impl<V> Place<'_, V> {
    /// Takes the next value, or waits for it; `None` once there is none to wait for.
    pub(super) fn look(&mut self, now: Moment, waker: &Waker) -> After<Poll<Option<Pulled<V>>>> {
        // Cloned before and dropped after the lock is held: both run the executor's code.
        let (at, mut waker) = (self.at.take(), Some(waker.clone()));
        let leave = |state: &mut State<Crew<V>>| at.and_then(|at| state.party.leave(at));
        let After { result: (seen, place, displaced), alarm } = self.line.change_then(
            now,
            |state, _| leave(state),
            |state, displaced| {
                let seen = match state.pull(now) {
                    None if !state.closed => Poll::Pending,
                    pulled => Poll::Ready(pulled),
                };
                let place = seen
                    .is_pending()
                    .then(|| state.party.pullers.push_back(Puller { waker: waker.take() }));
                (seen, place, displaced)
            },
        );
        self.at = place;
        drop((displaced, waker));
        After { result: seen, alarm }
    }
}

impl<V> Drop for Place<'_, V> {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            let displaced = self.line.attend(|state, wakers| {
                let displaced = state.party.leave(at);
                state.party.call(wakers);
                displaced
            });
            drop(displaced);
        }
    }
}
