//! The line before a turnstile: the pure schedule behind a lock, and those who wait for its word.
//!
//! Nothing in here knows of tasks or timers, so the interleaving models can run all of it.
//!
//! Invariants:
//! 1. Whoever changes the schedule asks it, under the same lock, what may start now: no change is
//!    ever left for a later one to notice.
//! 2. An item that was told to start and is withdrawn before anybody heard is revoked: it gives its
//!    place, its token and its charge to the next.
//! 3. Once closed, nothing waits: what is put back or let in later is gone at once.
//! 4. Wakers are called with the lock released.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sluicegate_schedule::{
    Entry as ScheduleEntry, ItemId, Limits, Moment, Next, Refusal as Full, Schedule, Snapshot, Why,
};

use crate::stats::Ledger;
use crate::sync::Mutex;

pub(crate) type Entry = ScheduleEntry<Arc<str>, Arc<str>>;
pub(crate) type Fair = Schedule<Slot, Arc<str>, Arc<str>>;

/// What the schedule keeps of each item.
#[derive(Debug)]
pub(crate) struct Slot {
    tenant: Arc<str>,
    key: Option<Arc<str>>,
    started: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
pub(crate) struct Line {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fair: Fair,
    closed: bool,
    ledger: Ledger,
}

/// `tenant` or `tenant/key`.
impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tenant)?;
        self.key.iter().try_for_each(|key| write!(f, "/{key}"))
    }
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waiting,
    Started,
    /// Handed back by a close.
    Gone,
}

/// What a change calls for once the lock is released.
#[must_use]
#[derive(Debug)]
pub(crate) struct After<R> {
    pub(crate) result: R,
    /// When to ask again.
    pub(crate) alarm: Option<Moment>,
}

impl Line {
    pub(crate) fn new(limits: Limits<Arc<str>>, now: Moment) -> Self {
        let fair = Schedule::new(limits, now);
        Self { state: Mutex::new(State { fair, closed: false, ledger: Ledger::default() }) }
    }

    /// Lets an item in. With `at_once` it is refused unless it starts right now.
    pub(crate) fn admit(
        &self,
        now: Moment,
        entry: Entry,
        at_once: bool,
    ) -> After<Result<ItemId, Full>> {
        self.change(now, |state, wakers| {
            let (tenant, key) = (Arc::clone(entry.tenant()), entry.named_key().cloned());
            let slot = Slot { tenant, key, started: false, waker: None };
            let id = state.fair.admit(now, entry, slot)?;
            if at_once {
                state.start(now, wakers);
                if state.standing(id) != Standing::Started {
                    let why = state.fair.why(now, id);
                    state.fair.cancel(id);
                    return Err(why.map_or(Full::Draining, refusal));
                }
            }
            state.ledger.admitted += 1;
            Ok(id)
        })
    }

    /// Looks whether an item may start, and leaves a waker if not.
    pub(crate) fn look(&self, id: ItemId, waker: &Waker) -> Standing {
        let mut state = self.state.lock();
        let standing = state.standing(id);
        if standing == Standing::Waiting
            && let Some(slot) = state.fair.get_mut(id)
        {
            slot.waker = Some(waker.clone());
        }
        standing
    }

    /// Whoever waited for it does not any more, and will not run it. `false` if it was gone already.
    pub(crate) fn withdraw(&self, now: Moment, id: ItemId) -> After<bool> {
        self.change(now, |state, _| {
            state.fair.cancel(id).is_some() || state.fair.revoke(id).is_some()
        })
    }

    /// A turn is over. It cost what it took, and counts as run to its end unless it `panicked`.
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

    /// Puts a running item back to the front of its key, not to run before `until`. `false` if it is
    /// too late for that: it is handed back.
    pub(crate) fn retry(
        &self,
        now: Moment,
        id: ItemId,
        until: Moment,
        cost: Duration,
    ) -> After<bool> {
        self.change(now, |state, _| {
            state.ledger.run_time.record(cost);
            if state.closed {
                state.fair.complete(id, Some(in_millis(cost)));
            } else if let Some(slot) = state.fair.get_mut(id) {
                slot.started = false;
                state.fair.retry(now, id, until, Some(in_millis(cost)));
            }
            !state.closed
        })
    }

    /// Changes the schedule's limits.
    pub(crate) fn adjust<R>(&self, now: Moment, adjust: impl FnOnce(&mut Fair) -> R) -> After<R> {
        self.change(now, |state, _| adjust(&mut state.fair))
    }

    /// Asks again: time has passed.
    pub(crate) fn tick(&self, now: Moment) -> After<()> {
        self.change(now, |_, _| ())
    }

    /// Lets nothing more in and hands back all that wait. Returns how many.
    pub(crate) fn close(&self, now: Moment) -> u64 {
        let after = self.change(now, |state, wakers| {
            state.closed = true;
            state.fair.stop_admission();
            let waited = state.fair.take_waiting();
            let count = waited.len() as u64;
            wakers.extend(waited.into_iter().filter_map(|slot| slot.waker));
            count
        });
        after.result
    }

    /// Looks into the schedule without changing it.
    pub(crate) fn view<R>(&self, view: impl FnOnce(&Fair) -> R) -> R {
        view(&self.state.lock().fair)
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.state.lock().ledger.clone()
    }

    pub(crate) fn snapshot(&self, now: Moment) -> Snapshot {
        self.view(|fair| fair.snapshot(now))
    }

    /// Makes a change, then lets start what may: invariant 1.
    fn change<R>(
        &self,
        now: Moment,
        change: impl FnOnce(&mut State, &mut Vec<Waker>) -> R,
    ) -> After<R> {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        let result = change(&mut state, &mut wakers);
        let alarm = state.start(now, &mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        After { result, alarm }
    }
}

impl State {
    fn standing(&self, id: ItemId) -> Standing {
        match self.fair.get(id) {
            None => Standing::Gone,
            Some(slot) if slot.started => Standing::Started,
            Some(_) => Standing::Waiting,
        }
    }

    /// Starts all that may start now; says when to ask again.
    fn start(&mut self, now: Moment, wakers: &mut Vec<Waker>) -> Option<Moment> {
        loop {
            match self.fair.next(now) {
                Next::Start(id) => {
                    if let Some(slot) = self.fair.get_mut(id) {
                        slot.started = true;
                        wakers.extend(slot.waker.take());
                    }
                }
                Next::At(at) => return Some(at),
                Next::Idle => return None,
            }
        }
    }
}

/// Why an item that should have started at once did not.
const fn refusal(why: Why) -> Full {
    match why {
        Why::KeyBusy { .. } | Why::KeyRetrying { .. } => Full::KeyBusy,
        Why::TenantAtLimit { running, max } => Full::TenantAtLimit { in_use: running, limit: max },
        Why::RateLimited { until } => Full::RateLimited { until },
        Why::AtLimit { running, limit } => Full::AtLimit { in_use: running, limit },
        // Others that were put back go first.
        _ => Full::KeyBusy,
    }
}

/// Cost is counted in milliseconds of running, each begun one in full.
fn in_millis(cost: Duration) -> u32 {
    u32::try_from(cost.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
