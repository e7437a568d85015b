//! A line: the pure schedule behind a lock, and those who wait for its word.
//!
//! A turnstile and a sluice are shells round the same line. They differ in who hears that an item
//! may start, the [`Party`]: the caller that waits for this very item, or whoever of a crew is
//! free.
//!
//! Nothing in here knows of tasks or timers (but for [`alarm`] and [`entrance`], which are made of
//! them), so the interleaving models can run all of it.
//!
//! Invariants:
//! 1. Whoever changes the schedule asks it, under the same lock, what may start now: no change is
//!    ever left for a later one to notice.
//! 2. An item that was told to start and is withdrawn before anybody heard is revoked: it gives its
//!    place, its token and its charge to the next.
//! 3. Once closed, nothing waits: what is put back or let in later is gone at once.
//! 4. Wakers are called, and values dropped, with the lock released.

pub(crate) mod alarm;
pub(crate) mod entrance;
pub(crate) mod watch;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sluicegate_schedule::{
    Entry as ScheduleEntry, ItemId, Limits, Moment, Next, Schedule, Snapshot,
};

use crate::stats::Ledger;
use crate::sync::Mutex;
use watch::Watchers;

/// What the line needs to know of an item: whose it is, what it must stay in order with, how
/// urgent.
///
/// ```
/// use sluicegate_tasks::{Class, Entry};
///
/// let entry = Entry::of("telegram:42").key("session-7").class(Class::Admin);
/// assert_eq!(&**entry.tenant(), "telegram:42");
/// ```
pub type Entry = ScheduleEntry<Arc<str>, Arc<str>>;
pub(crate) type Fair<P> = Schedule<<P as Party>::Slot, Arc<str>, Arc<str>>;

/// Those who hear what the line says.
pub(crate) trait Party {
    /// What the schedule keeps of each item.
    type Slot;

    /// An item may start.
    fn hear(&mut self, id: ItemId, slot: &mut Self::Slot, wakers: &mut Vec<Waker>);

    /// Everything that may start has been told: gathers who else is to be woken for it.
    fn call(&mut self, _wakers: &mut Vec<Waker>) {}

    /// How many were told to start and are in nobody's hands yet.
    fn unclaimed(&self) -> u32 {
        0
    }
}

pub(crate) struct Line<P: Party> {
    state: Mutex<State<P>>,
}

pub(crate) struct State<P: Party> {
    pub(crate) fair: Fair<P>,
    pub(crate) party: P,
    pub(crate) closed: bool,
    pub(crate) ledger: Ledger,
    watchers: Watchers,
}

/// How an item that was started goes back to the front of its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Back {
    /// It ran for so long, and runs again no sooner than this.
    Retry { until: Moment, cost: Duration },
    /// It did not run at all.
    Postpone { until: Moment },
}

/// What a change calls for once the lock is released.
#[must_use]
#[derive(Debug)]
pub(crate) struct After<R> {
    pub(crate) result: R,
    /// When to ask again.
    pub(crate) alarm: Option<Moment>,
}

impl<P: Party> Line<P> {
    pub(crate) fn new(limits: Limits<Arc<str>>, party: P, now: Moment) -> Self {
        let (fair, ledger) = (Schedule::new(limits, now), Ledger::default());
        let watchers = Watchers::default();
        Self { state: Mutex::new(State { fair, party, closed: false, ledger, watchers }) }
    }

    /// An item has run. It cost what it took, and counts as run to its end unless it `panicked`.
    pub(crate) fn finish(
        &self,
        now: Moment,
        id: ItemId,
        cost: Duration,
        panicked: bool,
    ) -> After<()> {
        self.change(now, |state, _| {
            state.fair.complete(id, Some(in_millis(cost)));
            if !panicked {
                state.ledger.run_time.record(cost);
            }
        })
    }

    /// Puts a running item back to the front of its key, with its `load` in its slot. If it is too
    /// late for that it is handed back, and so is the load.
    pub(crate) fn put_back<L>(
        &self,
        now: Moment,
        id: ItemId,
        back: Back,
        load: L,
        fill: impl FnOnce(&mut P::Slot, L),
    ) -> After<Result<(), L>> {
        self.change(now, |state, _| {
            if let Back::Retry { cost, .. } = back {
                state.ledger.run_time.record(cost);
            }
            let slot = if state.closed { None } else { state.fair.get_mut(id) };
            let result = match slot {
                Some(slot) => {
                    fill(slot, load);
                    Ok(())
                }
                None => Err(load),
            };
            match (back, &result) {
                (Back::Retry { until, cost }, Ok(())) => {
                    state.fair.retry(now, id, until, Some(in_millis(cost)));
                }
                (Back::Retry { cost, .. }, Err(_)) => {
                    state.fair.complete(id, Some(in_millis(cost)));
                }
                (Back::Postpone { until }, Ok(())) => {
                    state.fair.postpone(now, id, until);
                }
                (Back::Postpone { .. }, Err(_)) => {
                    state.fair.revoke(id);
                }
            }
            result
        })
    }

    /// Changes the schedule's limits.
    pub(crate) fn adjust<R>(
        &self,
        now: Moment,
        adjust: impl FnOnce(&mut Fair<P>) -> R,
    ) -> After<R> {
        self.change(now, |state, _| adjust(&mut state.fair))
    }

    /// Asks again: time has passed.
    pub(crate) fn tick(&self, now: Moment) -> After<()> {
        self.change(now, |_, _| ())
    }

    /// Looks into the schedule without changing it.
    pub(crate) fn view<R>(&self, view: impl FnOnce(&Fair<P>) -> R) -> R {
        view(&self.state.lock().fair)
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.state.lock().ledger.clone()
    }

    pub(crate) fn snapshot(&self, now: Moment) -> Snapshot {
        self.view(|fair| fair.snapshot(now))
    }

    /// Makes a change, then lets start what may: invariant 1.
    pub(crate) fn change<R>(
        &self,
        now: Moment,
        change: impl FnOnce(&mut State<P>, &mut Vec<Waker>) -> R,
    ) -> After<R> {
        self.change_then(now, change, |_, result| result)
    }

    /// Makes a change, lets start what may, and takes of that before anybody is called.
    pub(crate) fn change_then<C, R>(
        &self,
        now: Moment,
        change: impl FnOnce(&mut State<P>, &mut Vec<Waker>) -> C,
        then: impl FnOnce(&mut State<P>, C) -> R,
    ) -> After<R> {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        let changed = change(&mut state, &mut wakers);
        let alarm = state.start(now, &mut wakers);
        let result = then(&mut state, changed);
        state.call(&mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        After { result, alarm }
    }

    /// Looks, and changes only who waits: the schedule need not be asked.
    pub(crate) fn attend<R>(&self, attend: impl FnOnce(&mut State<P>, &mut Vec<Waker>) -> R) -> R {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        let result = attend(&mut state, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

/// Without what is behind the lock.
impl<P: Party> fmt::Debug for Line<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl<P: Party> State<P> {
    /// Starts all that may start now; says when to ask again.
    pub(crate) fn start(&mut self, now: Moment, wakers: &mut Vec<Waker>) -> Option<Moment> {
        loop {
            match self.fair.next(now) {
                Next::Start(id) => {
                    if let Some(slot) = self.fair.get_mut(id) {
                        self.party.hear(id, slot, wakers);
                    }
                }
                Next::At(at) => return Some(at),
                Next::Idle => return None,
            }
        }
    }

    /// Lets nothing more in.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.fair.stop_admission();
    }
}

/// Cost is counted in milliseconds of running, each begun one in full.
pub(crate) fn in_millis(cost: Duration) -> u32 {
    u32::try_from(cost.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
