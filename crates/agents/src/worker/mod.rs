//! Workers: which there are, what state each is in, and which of them serves a turn.
//!
//! Pure: it is told what happened and when, and says what to do.
//!
//! Invariants:
//! 1. A worker is started only while there are fewer than `max`, whatever the state of the others.
//! 2. A session has at most one worker, until that one is gone.
//! 3. A worker that has a turn is given no other.
//!
//! `docs/rules.md#agents-1`, `docs/rules.md#agents-4`, `docs/rules.md#agents-5`.

mod record;

pub use record::{WorkerState, WorkerView};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::settings::{CheckedSettings, Mode};
use record::{Binding, Worker};

/// A worker's number; never used again.
pub(crate) type WorkerNumber = u64;

/// All workers.
#[derive(Debug)]
pub(crate) struct Workers {
    bounds: Bounds,
    ending: bool,
    all: BTreeMap<WorkerNumber, Worker>,
    last: WorkerNumber,
    /// Turns that wait until a worker is gone.
    waiting: usize,
    /// So many workers in a row could not be started or ended before their first turn, the last of them then.
    failed_starts: u32,
    failed_at: Option<Instant>,
}

/// What bounds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    max: usize,
    min: usize,
    stay: bool,
    idle_timeout: Duration,
    max_requests: u32,
    max_errors: u32,
    /// Changes when the command line does.
    command: u64,
}

/// Who is to be served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) request: Arc<str>,
    pub(crate) tenant: Arc<str>,
    pub(crate) session: Arc<str>,
    /// Whether the session had a turn before.
    pub(crate) begun: bool,
}

/// Which worker serves a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// One that is there.
    Reuse(WorkerNumber),
    /// One that is to be started.
    Start(WorkerNumber),
    /// None before one is gone; end this one for it.
    Wait(Option<(WorkerNumber, Recycled)>),
}

/// Why a worker is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recycled {
    /// It served as many requests as it may.
    MaxRequests,
    /// It was idle for too long.
    IdleTimeout,
    /// It failed too often in a row.
    ErrorThreshold,
    /// Another session needs its place.
    Evicted,
    /// The command line is another one now.
    CommandChanged,
    /// The workers together use too much memory.
    Memory,
    /// It answered before it was told all, or unasked: what it says next may be no answer to what it is asked next.
    OutOfStep,
    /// There are to be fewer, or none.
    Stopped,
}

/// What becomes of a worker after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterTurn {
    /// It waits for the next, until then.
    Idle,
    /// It is replaced.
    Recycle(Recycled),
}

impl Bounds {
    /// For a pool that ends: no worker outlives its turn, and none is started ahead. Turns that run may still need
    /// one.
    fn ending(self) -> Self {
        Self { min: 0, stay: false, ..self }
    }

    pub(crate) fn of(settings: &CheckedSettings, command: u64) -> Self {
        let stay = settings.mode == Mode::Persistent;
        let max = settings.concurrency() as usize;
        Self {
            max,
            min: if stay { (settings.min_workers as usize).min(max) } else { 0 },
            stay,
            idle_timeout: settings.worker_idle_timeout,
            max_requests: settings.max_requests_per_worker,
            max_errors: settings.max_worker_errors,
            command,
        }
    }
}

impl Workers {
    pub(crate) const fn new(bounds: Bounds) -> Self {
        let all = BTreeMap::new();
        Self { bounds, ending: false, all, last: 0, waiting: 0, failed_starts: 0, failed_at: None }
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        if bounds.command != self.bounds.command {
            self.forget_failed_starts();
        }
        self.bounds = if self.ending { bounds.ending() } else { bounds };
    }

    const fn forget_failed_starts(&mut self) {
        self.failed_starts = 0;
        self.failed_at = None;
    }

    /// From now on no worker outlives its turn, whatever bounds are set.
    pub(crate) fn end(&mut self) {
        self.ending = true;
        self.bounds = self.bounds.clone().ending();
    }

    /// Finds a worker for a turn. `first` says that it was not asked for this turn before.
    pub(crate) fn assign(&mut self, now: Instant, served: &Served, first: bool) -> Assigned {
        let of_session = self.all.values().find(|worker| worker.serves(&served.session));
        if let Some(worker) = of_session {
            let number = worker.number;
            return match worker.state {
                WorkerState::Idle if self.fits(worker) => {
                    self.give(now, number, served);
                    Assigned::Reuse(number)
                }
                WorkerState::Idle => Assigned::Wait(Some((number, Recycled::CommandChanged))),
                // It is started ahead, or about to be gone.
                _ => Assigned::Wait(None),
            };
        }
        let any = self.all.values().find(|worker| {
            !served.begun
                && worker.state == WorkerState::Idle
                && worker.binding == Binding::Any
                && self.fits(worker)
        });
        if let Some(number) = any.map(|worker| worker.number) {
            self.give(now, number, served);
            return Assigned::Reuse(number);
        }
        if self.all.len() < self.bounds.max {
            let number = self.add(now, Binding::Session(Arc::clone(&served.session)));
            self.give(now, number, served);
            self.set(number, WorkerState::Starting);
            return Assigned::Start(number);
        }
        let leaving = self.all.values().any(|worker| worker.state.is_leaving());
        let victim = if first || !leaving { self.idlest() } else { None };
        Assigned::Wait(victim.map(|number| (number, Recycled::Evicted)))
    }

    /// A turn waits until a worker is gone; or it does not any more.
    pub(crate) fn set_waiting(&mut self, waits: bool) {
        self.waiting = if waits { self.waiting + 1 } else { self.waiting.saturating_sub(1) };
    }

    /// A worker to be started ahead, if there are too few; and when to ask again, if it is too soon. Places that turns
    /// wait for are theirs.
    pub(crate) fn start_ahead(&mut self, now: Instant) -> Result<Option<WorkerNumber>, Instant> {
        let there = self.all.len();
        if there >= self.bounds.min || there + self.waiting >= self.bounds.max {
            return Ok(None);
        }
        if let Some(at) = self.failed_at {
            let pause = Duration::from_secs(1 << self.failed_starts.min(5));
            if now < at + pause {
                return Err(at + pause);
            }
        }
        Ok(Some(self.add(now, Binding::Any)))
    }

    /// A worker that is started ahead is started for a session, which nobody has yet.
    pub(crate) fn reserve(&mut self, number: WorkerNumber, session: Arc<str>) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.binding = Binding::Spare(session);
        }
    }

    /// A session that a worker was started for ahead, and that nobody has: it is the caller's now.
    pub(crate) fn take_spare(&mut self) -> Option<Arc<str>> {
        let (bounds, mut all) = (&self.bounds, self.all.values_mut());
        let spare = all.find(|worker| {
            let free = !worker.state.is_leaving() && worker.command == bounds.command;
            free && matches!(worker.binding, Binding::Spare(_))
        })?;
        let Binding::Spare(session) = &spare.binding else { return None };
        let session = Arc::clone(session);
        spare.binding = Binding::Session(Arc::clone(&session));
        Some(session)
    }

    /// Whoever took a spare session was not let in: it is nobody's again.
    pub(crate) fn give_back_spare(&mut self, session: &str) {
        if let Some(worker) = self.all.values_mut().find(|worker| worker.serves(session))
            && worker.requests == 0
            && worker.request.is_none()
        {
            let Binding::Session(session) = &worker.binding else { return };
            worker.binding = Binding::Spare(Arc::clone(session));
        }
    }

    /// Its process is there.
    pub(crate) fn started(&mut self, now: Instant, number: WorkerNumber, pid: u32) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.pid = Some(pid);
            worker.last_active = now;
            match worker.request {
                Some(_) => worker.state = WorkerState::Busy,
                None => worker.rest(),
            }
        }
    }

    /// Its process could not be started, or ended by itself before it had a turn.
    pub(crate) fn not_started(&mut self, now: Instant) {
        self.failed_starts = self.failed_starts.saturating_add(1);
        self.failed_at = Some(now);
    }

    /// It said something.
    pub(crate) fn active(&mut self, now: Instant, number: WorkerNumber) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.last_active = now;
        }
    }

    /// A turn is over, and its process could go on; unless it is not `in_step`, since what it says next may be no
    /// answer to what it is asked next.
    pub(crate) fn turn_ended(
        &mut self,
        now: Instant,
        number: WorkerNumber,
        ok: bool,
        in_step: bool,
    ) -> AfterTurn {
        self.forget_failed_starts();
        let bounds = self.bounds.clone();
        let over = self.staying() > bounds.max;
        let Some(worker) = self.all.get_mut(&number) else {
            return AfterTurn::Recycle(Recycled::Stopped);
        };
        worker.served(now, ok);
        let why = if !bounds.stay || worker.is_killed {
            Some(Recycled::Stopped)
        } else if worker.requests >= bounds.max_requests {
            Some(Recycled::MaxRequests)
        } else if worker.errors_in_a_row >= bounds.max_errors {
            Some(Recycled::ErrorThreshold)
        } else if worker.command != bounds.command {
            Some(Recycled::CommandChanged)
        } else if over {
            Some(Recycled::Stopped)
        } else if !in_step {
            Some(Recycled::OutOfStep)
        } else {
            None
        };
        match why {
            Some(why) => {
                worker.state = WorkerState::Draining;
                AfterTurn::Recycle(why)
            }
            None => {
                worker.rest();
                AfterTurn::Idle
            }
        }
    }

    /// Its turn was given up before it was asked.
    pub(crate) fn not_asked(&mut self, number: WorkerNumber) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.rest();
        }
    }

    /// A turn is over, and its process with it.
    pub(crate) fn turn_failed(&mut self, now: Instant, number: WorkerNumber, ok: bool) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.served(now, ok);
        }
    }

    /// It ended by itself: one that never had a turn counts as one that could not be started.
    pub(crate) fn ended(&mut self, now: Instant, number: WorkerNumber) {
        if self.all.get(&number).is_some_and(|worker| worker.requests == 0) {
            self.not_started(now);
        }
    }

    /// An idle worker is to end. `false` if it is not idle: then somebody has it.
    pub(crate) fn retire(&mut self, number: WorkerNumber) -> bool {
        let idle = self.all.get(&number).is_some_and(|worker| worker.state == WorkerState::Idle);
        if idle {
            self.set(number, WorkerState::Draining);
        }
        idle
    }

    /// Somebody kills it.
    pub(crate) fn killed(&mut self, number: WorkerNumber) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.is_killed = true;
        }
        self.retire(number);
    }

    /// It ends by itself while it has no turn. `false` if one is on its way to it.
    pub(crate) fn leaves(&mut self, number: WorkerNumber) -> bool {
        self.retire(number);
        self.all.get(&number).is_none_or(|worker| worker.state.is_leaving())
    }

    /// It is asked to end.
    pub(crate) fn draining(&mut self, number: WorkerNumber) {
        self.set(number, WorkerState::Draining);
    }

    /// It was asked to end and did not.
    pub(crate) fn stuck(&mut self, number: WorkerNumber) {
        self.set(number, WorkerState::Stuck);
    }

    /// Nothing of it is left.
    pub(crate) fn gone(&mut self, number: WorkerNumber) -> Option<WorkerView> {
        let mut worker = self.all.remove(&number)?;
        worker.state = WorkerState::Terminated;
        Some(worker.view())
    }

    /// Idle workers that are to end now, each with the reason; and when to ask again.
    pub(crate) fn due(&self, now: Instant) -> (Vec<(WorkerNumber, Recycled)>, Option<Instant>) {
        let Bounds { max, min, idle_timeout, .. } = self.bounds;
        let mut idle: Vec<&Worker> =
            self.all.values().filter(|worker| worker.state == WorkerState::Idle).collect();
        idle.sort_by_key(|worker| worker.last_active);
        let mut staying = self.staying();
        let (mut due, mut next) = (Vec::new(), None::<Instant>);
        for worker in idle {
            let until = worker.last_active + idle_timeout;
            let why = if !self.bounds.stay || staying > max {
                Some(Recycled::Stopped)
            } else if !self.fits(worker) {
                Some(Recycled::CommandChanged)
            } else if staying > min && now >= until {
                Some(Recycled::IdleTimeout)
            } else {
                None
            };
            match why {
                Some(why) => {
                    due.push((worker.number, why));
                    staying -= 1;
                }
                None if staying > min => next = Some(next.map_or(until, |next| next.min(until))),
                None => {}
            }
        }
        (due, next)
    }

    /// How many there are that do not end.
    fn staying(&self) -> usize {
        self.all.values().filter(|worker| !worker.state.is_leaving()).count()
    }

    /// The worker that has been idle for longest.
    pub(crate) fn idlest(&self) -> Option<WorkerNumber> {
        let idle = self.all.values().filter(|worker| worker.state == WorkerState::Idle);
        idle.min_by_key(|worker| worker.last_active).map(|worker| worker.number)
    }

    /// All of them.
    pub(crate) fn views(&self) -> Vec<WorkerView> {
        self.all.values().map(Worker::view).collect()
    }

    pub(crate) fn number_of(&self, id: &str) -> Option<WorkerNumber> {
        self.all.values().find(|worker| &*worker.id == id).map(|worker| worker.number)
    }

    pub(crate) fn id(&self, number: WorkerNumber) -> Arc<str> {
        self.all.get(&number).map_or_else(|| "".into(), |worker| Arc::clone(&worker.id))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether it may go on with the command line of now, and in the mode of now.
    fn fits(&self, worker: &Worker) -> bool {
        worker.command == self.bounds.command && self.bounds.stay
    }

    fn add(&mut self, now: Instant, binding: Binding) -> WorkerNumber {
        self.last += 1;
        let worker = Worker::new(self.last, now, binding, self.bounds.command);
        self.all.insert(self.last, worker);
        self.last
    }

    fn give(&mut self, now: Instant, number: WorkerNumber, served: &Served) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.binding = Binding::Session(Arc::clone(&served.session));
            worker.request = Some((Arc::clone(&served.request), Arc::clone(&served.tenant)));
            worker.last_active = now;
            worker.state = WorkerState::Busy;
        }
    }

    fn set(&mut self, number: WorkerNumber, state: WorkerState) {
        if let Some(worker) = self.all.get_mut(&number) {
            worker.state = state;
        }
    }
}

impl Recycled {
    /// Its name in events; the first three are the paper's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxRequests => "max_requests",
            Self::IdleTimeout => "idle_timeout",
            Self::ErrorThreshold => "error_threshold",
            Self::Evicted => "evicted",
            Self::CommandChanged => "command_changed",
            Self::Memory => "memory",
            Self::OutOfStep => "out_of_step",
            Self::Stopped => "stopped",
        }
    }
}

#[cfg(test)]
mod tests;
