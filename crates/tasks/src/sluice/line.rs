//! The inside of a sluice: the pure schedule behind a lock, and those who wait for its word.
//!
//! `docs/rules.md#sluice-7`, `docs/rules.md#sluice-8`.
//!
//! Nothing in here knows of tasks or timers, so the interleaving models can run all of it.
//!
//! Invariants:
//! 1. An item is started when there is somebody to run it: the caller that waits for it, or a worker
//!    that asks. Whoever changes the schedule starts, under the same lock, what callers wait for.
//! 2. If something may start that workers run, and workers wait, at least one of them has been woken
//!    for it and has not looked yet. Whoever looks, or changes anything, wakes the next if there is more;
//!    one that goes without looking does the same. What somebody else took nobody was called for.
//! 3. A value is in its item's slot while the item waits, else with whoever pulled it.
//! 4. A caller that was told and is withdrawn before it heard is revoked: its place, token and charge
//!    go to the next.
//! 5. Once closed, nothing waits: what is put back or let in later is gone at once.
//! 6. Wakers are called, and values dropped, with the lock released.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::ops::DerefMut;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use sluicegate_schedule::{ItemId, Limits, Moment, Next, Schedule, Snapshot, Why};

use super::done::{Done, DoneTurn};
use super::door::Door;
use super::idle_workers::IdleWorkers;
use super::ledger::Ledger;
use super::watch::Watchers;
use super::workers::Ran;
use crate::panic::wake_all;
use crate::sync::BriefMutex;

pub(crate) type Fair<V> = Schedule<Slot<V>, Arc<str>, Arc<str>>;

pub(crate) struct Line<V> {
    done: Done,
    state: BriefMutex<State<V>>,
}

pub(crate) struct State<V> {
    pub(crate) fair: Fair<V>,
    /// The latest moment that anybody came with. The clock is read before the lock is taken, so one may
    /// come with an earlier moment than the one before it: time does not go back in here.
    pub(super) now: Moment,
    /// Whether those who end a turn know that somebody waits.
    said_to_wait: bool,
    /// For what is counted off; empty in between.
    done: Vec<DoneTurn>,
    /// Those that wait in `next`.
    pub(super) idle_workers: IdleWorkers,
    /// What started for a worker that waits and has not looked yet: where nothing may wait.
    pub(super) handed: VecDeque<ItemId>,
    /// Callers that wait to be let in, first come, first served.
    pub(super) door: Door,
    /// Items that wait for their callers' turns.
    callers: u32,
    queue_timeout: Option<Duration>,
    /// When the first wait of an item is too long, in order. Those that are over leave late.
    timeouts: VecDeque<(Moment, ItemId)>,
    /// Callers' items that waited for too long, until their callers hear of it.
    pub(super) timed_out: HashSet<ItemId>,
    pub(crate) closed: bool,
    pub(crate) ledger: Ledger,
    pub(super) watchers: Watchers,
}

/// What the schedule keeps of each item.
#[derive(Debug)]
pub(crate) struct Slot<V> {
    pub(super) admitted: Moment,
    pub(super) since: Moment,
    pub(super) runner: Runner<V>,
    /// It has not started yet, so its wait may be too long.
    pub(super) is_new: bool,
    /// It was its turn as soon as it came in.
    pub(super) at_once: bool,
}

/// Who runs an item.
#[derive(Debug)]
pub(crate) enum Runner<V> {
    /// Whichever worker pulls it; without its value it is out.
    Worker(Option<V>),
    /// The caller that waits for it, and keeps the value.
    Caller { told: bool, waker: Option<Waker> },
}

/// An item that a worker pulled.
#[derive(Debug)]
pub(crate) struct Pulled<V> {
    pub(super) id: ItemId,
    pub(super) value: V,
    pub(super) admitted: Moment,
}

/// What a change calls for once the lock is released.
#[must_use]
#[derive(Debug)]
pub(crate) struct After<V, R> {
    pub(crate) result: R,
    /// When to ask again.
    pub(crate) alarm: Option<Moment>,
    /// Values that waited for too long.
    pub(crate) expired: Vec<V>,
}

impl<V> Slot<V> {
    pub(super) const fn new(runner: Runner<V>, now: Moment) -> Self {
        Self { admitted: now, since: now, runner, is_new: true, at_once: false }
    }
}

impl<V> Line<V> {
    pub(crate) fn new(
        limits: Limits<Arc<str>>,
        queue_timeout: Option<Duration>,
        ledger: Ledger,
        now: Moment,
    ) -> Self {
        Self {
            done: Done::new(),
            state: BriefMutex::new(State {
                fair: Schedule::new(limits, now),
                now,
                said_to_wait: false,
                done: Vec::new(),
                idle_workers: IdleWorkers::new(),
                handed: VecDeque::new(),
                door: Door::default(),
                callers: 0,
                queue_timeout,
                timeouts: VecDeque::new(),
                timed_out: HashSet::new(),
                closed: false,
                ledger,
                watchers: Watchers::default(),
            }),
        }
    }

    /// Makes a change, then tells whoever may run something: invariants 1 and 2. What the change pulls
    /// nobody else is told of.
    pub(crate) fn change<R>(
        &self,
        now: Moment,
        change: impl FnOnce(&mut State<V>, &mut Vec<Waker>) -> R,
    ) -> After<V, R> {
        let (mut wakers, mut expired) = (Vec::new(), Vec::new());
        let mut state = self.lock();
        state.advance(now);
        // First, since what waited for too long must not start, however late the timer is.
        state.expire(&mut wakers, &mut expired);
        let result = change(&mut state, &mut wakers);
        let mut alarm = state.tell(&mut wakers);
        if self.say_who_waits(&mut state) {
            alarm = state.tell(&mut wakers);
        }
        drop(state);
        wake_all(wakers);
        After { result, alarm, expired }
    }

    /// Asks again: time has passed.
    pub(crate) fn tick(&self, now: Moment) -> After<V, ()> {
        self.change(now, |_, _| ())
    }

    /// Looks, and changes only who waits: the schedule need not be asked.
    pub(crate) fn attend<R>(&self, attend: impl FnOnce(&mut State<V>) -> R) -> R {
        let (mut wakers, mut state) = (Vec::new(), self.lock());
        let result = attend(&mut state);
        if self.say_who_waits(&mut state) {
            state.call_watchers(&mut wakers);
        }
        drop(state);
        wake_all(wakers);
        result
    }

    /// Looks into the schedule without changing it.
    pub(crate) fn view<R>(&self, view: impl FnOnce(&Fair<V>) -> R) -> R {
        view(&self.lock().fair)
    }

    /// With the turns counted off that are done.
    fn lock(&self) -> impl DerefMut<Target = State<V>> {
        let mut state = self.state.lock();
        self.done.take(&mut state.done);
        state.count_off();
        state
    }

    /// Whether turns were done before those who end one knew that somebody waits now.
    fn say_who_waits(&self, state: &mut State<V>) -> bool {
        let waits = state.somebody_waits();
        if waits == state.said_to_wait {
            return false;
        }
        state.said_to_wait = waits;
        self.done.take_and_say(&mut state.done, waits);
        state.count_off()
    }

    /// An item is done. Whoever waits hears of it at once.
    pub(super) fn finish(&self, now: Moment, id: ItemId, ran: Ran) -> After<V, ()> {
        let turn = DoneTurn { at: now, id, ran };
        if self.done.note(turn) {
            return After { result: (), alarm: None, expired: Vec::new() };
        }
        self.change(now, |state, _| state.finish(turn))
    }

    pub(crate) fn snapshot(&self, now: Moment) -> Snapshot {
        self.view(|fair| fair.snapshot(now))
    }

    /// Lets nothing more in and takes out all that waits. Callers are told; the workers' values are
    /// returned in the order of admission, with how many waited in all.
    pub(crate) fn close(&self, now: Moment) -> After<V, (Vec<V>, u64)> {
        self.change(now, |state, wakers| {
            state.closed = true;
            state.fair.stop_admission();
            state.take_back_handed(0);
            let ids: Vec<ItemId> = state.fair.waiting().map(|item| item.id).collect();
            let mut waited: Vec<_> = ids.into_iter().zip(state.fair.take_waiting()).collect();
            waited.sort_unstable_by_key(|(id, _)| id.number());
            (state.callers, state.timeouts) = (0, VecDeque::new());
            wakers.extend(std::iter::from_fn(|| state.idle_workers.call()));
            wakers.extend(state.door.call_all());
            let (count, mut values) = (waited.len() as u64, Vec::new());
            for (_, slot) in waited {
                match slot.runner {
                    Runner::Worker(value) => values.extend(value),
                    Runner::Caller { waker, .. } => wakers.extend(waker),
                }
            }
            (values, count)
        })
    }
}

impl<V> State<V> {
    /// Time has passed, and the clock alone may have let something go.
    pub(super) fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        self.fair.advance(self.now);
    }

    /// Whether anything waits that the end of a turn may concern.
    fn somebody_waits(&self) -> bool {
        self.fair.queued() > 0 || !self.door.is_empty() || !self.watchers.is_empty()
    }

    /// Counts off the turns that were done while nobody waited, if there are any.
    fn count_off(&mut self) -> bool {
        let mut done = std::mem::take(&mut self.done);
        let any = !done.is_empty();
        done.drain(..).for_each(|turn| self.finish(turn));
        self.done = done;
        any
    }

    pub(super) fn finish(&mut self, DoneTurn { at, id, ran }: DoneTurn) {
        self.fair.complete(id, Some(ran.cost));
        self.ledger.ran(at, ran.time);
    }

    /// An item that was let in waits from now on.
    pub(super) fn admitted(&mut self, id: ItemId, by_caller: bool) {
        self.ledger.admitted += 1;
        self.callers += u32::from(by_caller);
        if let Some(limit) = self.queue_timeout {
            self.timeouts.push_back((self.now + limit, id));
            // Those that are over make room, so the list does not outgrow the queue.
            if self.timeouts.len() > 64 + 2 * self.fair.queued() as usize {
                let Self { timeouts, fair, .. } = self;
                timeouts.retain(|(_, id)| fair.get(*id).is_some_and(|slot| slot.is_new));
            }
        }
    }

    /// Tells callers whose turn it is, and wakes a worker if there is something for one. Says when to
    /// ask again.
    fn tell(&mut self, wakers: &mut Vec<Waker>) -> Option<Moment> {
        let timeout = self.timeouts.front().map(|(at, _)| *at);
        let mut alarm = self.tell_callers(wakers);
        let (handed, most) = (self.handed.len() as u32, self.most_for_workers());
        self.idle_workers.call_at_most(handed + most);
        if !self.idle_workers.has_sleeper() {
            // Whoever asks next looks.
        } else if self.idle_workers.called() < handed {
            wakers.extend(self.idle_workers.call());
        } else if most > 0 {
            match self.fair.peek(self.now) {
                // One more each time: one that was called may be slow to look.
                Next::Start(id)
                    if !self.is_callers(id) && self.idle_workers.called() < handed + most =>
                {
                    wakers.extend(self.idle_workers.call());
                }
                Next::At(at) => alarm = Some(at),
                _ => {}
            }
        }
        if !self.door.is_empty() && self.has_room() {
            wakers.extend(self.door.call_in());
        }
        self.call_watchers(wakers);
        [alarm, timeout].into_iter().flatten().min()
    }

    /// Starts what callers wait for, as long as that is what is next.
    pub(super) fn tell_callers(&mut self, wakers: &mut Vec<Waker>) -> Option<Moment> {
        let now = self.now;
        while self.callers > 0 {
            // Where only callers wait there is nobody to look out for.
            if self.callers < self.fair.queued()
                && let Next::Start(id) = self.fair.peek(now)
                && !self.is_callers(id)
            {
                return self.fair.next_release();
            }
            match self.fair.next(now) {
                Next::Start(id) => {
                    self.callers -= 1;
                    let slot = self.fair.get_mut(id).expect("what starts is here");
                    slot.is_new = false;
                    if let Runner::Caller { told, waker } = &mut slot.runner {
                        *told = true;
                        wakers.extend(waker.take());
                    }
                }
                Next::At(at) => return Some(at),
                Next::Idle => return None,
            }
        }
        None
    }

    /// Takes out what has waited for too long.
    fn expire(&mut self, wakers: &mut Vec<Waker>, expired: &mut Vec<V>) {
        let now = self.now;
        while let Some((_, id)) = self.timeouts.pop_front_if(|(at, _)| *at <= now) {
            if !self.waits_anew(id) {
                continue;
            }
            self.ledger.queue_timeouts += 1;
            match self.cancel(id).map(|slot| slot.runner) {
                Some(Runner::Worker(value)) => expired.extend(value),
                Some(Runner::Caller { waker, .. }) => {
                    self.timed_out.insert(id);
                    wakers.extend(waker);
                }
                None => {}
            }
        }
    }

    /// Takes a waiting item out.
    pub(super) fn cancel(&mut self, id: ItemId) -> Option<Slot<V>> {
        let slot = self.fair.cancel(id)?;
        self.callers -= u32::from(matches!(slot.runner, Runner::Caller { .. }));
        Some(slot)
    }

    /// Takes an item out that was let in just now, as if it had not been.
    pub(super) fn refuse(&mut self, id: ItemId) -> Option<Slot<V>> {
        let slot = self.fair.refuse(id)?;
        self.callers -= u32::from(matches!(slot.runner, Runner::Caller { .. }));
        Some(slot)
    }

    /// An item that was out waits again, for a caller or for a worker.
    pub(super) fn waits_again(&mut self, runner: &Runner<V>) {
        self.callers += u32::from(matches!(runner, Runner::Caller { .. }));
    }

    /// How many items workers could start now, at the most.
    fn most_for_workers(&self) -> u32 {
        let Snapshot { queued, running, concurrency, .. } = self.fair.snapshot(Moment::ZERO);
        (queued - self.callers).min(concurrency.saturating_sub(running))
    }

    fn is_callers(&self, id: ItemId) -> bool {
        self.fair.get(id).is_some_and(|slot| matches!(slot.runner, Runner::Caller { .. }))
    }

    /// Whether an item waits and never started.
    fn waits_anew(&self, id: ItemId) -> bool {
        self.fair.get(id).is_some_and(|slot| slot.is_new)
    }

    pub(super) fn has_room(&self) -> bool {
        self.fair.queued() < self.fair.snapshot(Moment::ZERO).capacity
    }

    /// Why an item waits; where nothing but a worker is missing, for it or for what is before it, that.
    pub(super) fn why(&mut self, id: ItemId) -> Option<Why> {
        let why = self.fair.why(self.now, id)?;
        if why != Why::Ready || self.idle_workers.count() > 0 {
            return Some(why);
        }
        match self.fair.peek(self.now) {
            Next::Start(next) if !self.is_callers(next) => Some(Why::NoWorker),
            _ => Some(why),
        }
    }
}

/// Without what is behind the lock.
impl<V> fmt::Debug for Line<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

/// Cost is counted in milliseconds of running, each begun one in full.
pub(crate) fn in_millis(cost: Duration) -> u32 {
    u32::try_from(cost.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
