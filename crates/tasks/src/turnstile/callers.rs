//! The party of a turnstile: for each item the caller that waits for its turn.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use sluicegate_schedule::{ItemId, Moment, Refusal as Full, Why};

use crate::Entry;
use crate::line::{After, Back, Line, Party, State};

/// What the schedule keeps of each item.
#[derive(Debug)]
pub(super) struct Slot {
    tenant: Arc<str>,
    key: Option<Arc<str>>,
    started: bool,
    waker: Option<Waker>,
}

/// Each caller's waker is in its item's slot.
#[derive(Debug)]
pub(super) struct Callers;

/// `tenant` or `tenant/key`.
impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tenant)?;
        self.key.iter().try_for_each(|key| write!(f, "/{key}"))
    }
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Waiting,
    Started,
    /// Handed back by a close.
    Gone,
}

impl Party for Callers {
    type Slot = Slot;

    fn hear(&mut self, _id: ItemId, slot: &mut Slot, wakers: &mut Vec<Waker>) {
        slot.started = true;
        wakers.extend(slot.waker.take());
    }
}

impl Line<Callers> {
    /// Lets an item in. With `at_once` it is refused unless it starts right now.
    pub(super) fn admit(
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
    pub(super) fn look(&self, id: ItemId, waker: &Waker) -> Standing {
        // Cloned before and dropped after the lock is held: both run the executor's code.
        let waker = waker.clone();
        let (standing, displaced) = self.attend(|state, _| {
            let standing = state.standing(id);
            match state.fair.get_mut(id) {
                Some(slot) if standing == Standing::Waiting => {
                    (standing, slot.waker.replace(waker))
                }
                _ => (standing, Some(waker)),
            }
        });
        drop(displaced);
        standing
    }

    /// Whoever waited for it does not any more, and will not run it. `false` if it was gone
    /// already.
    pub(super) fn withdraw(&self, now: Moment, id: ItemId) -> After<bool> {
        let After { result, alarm } =
            self.change(now, |state, _| state.fair.cancel(id).or_else(|| state.fair.revoke(id)));
        After { result: result.is_some(), alarm }
    }

    /// Puts a running item back to the front of its key. `false` if it is too late for that: it is
    /// handed back.
    pub(super) fn retry(&self, now: Moment, id: ItemId, back: Back) -> After<bool> {
        let After { result, alarm } =
            self.put_back(now, id, back, (), |slot, ()| slot.started = false);
        After { result: result.is_ok(), alarm }
    }

    /// Lets nothing more in and hands back all that wait. Returns how many.
    pub(super) fn close(&self, now: Moment) -> u64 {
        let after = self.change(now, |state, wakers| {
            state.close();
            let waited = state.fair.take_waiting();
            let count = waited.len() as u64;
            wakers.extend(waited.into_iter().filter_map(|slot| slot.waker));
            count
        });
        after.result
    }
}

impl State<Callers> {
    fn standing(&self, id: ItemId) -> Standing {
        match self.fair.get(id) {
            None => Standing::Gone,
            Some(slot) if slot.started => Standing::Started,
            Some(_) => Standing::Waiting,
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
