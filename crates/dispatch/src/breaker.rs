//! A circuit breaker: whether an endpoint that keeps failing may be called.
//!
//! Pure: it is asked with `now`, and told how each call ended. Invariants:
//! 1. A pass is good for the state it was given in. What is said of it after that state ended
//!    changes nothing, so a slow call cannot close a breaker that opened meanwhile, or open one that
//!    closed.
//! 2. While half-open, at most [`BreakerSettings::close_after`] passes are out at once.
//! 3. Every pass is spent once: by its verdict, or by being given back.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use sluicegate_schedule::Moment;

/// When a breaker opens and closes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// How many of the last calls count, and how many there must have been before it opens.
    pub volume: u32,
    /// The part of them that failed, from which on it opens.
    pub failure_ratio: f64,
    /// How long it stays open before calls are tried again.
    pub open_for: Duration,
    /// How many calls in a row must succeed then, and how many may be tried at once.
    pub close_after: u32,
}

/// A breaker.
///
/// ```
/// use sluicegate_dispatch::{Breaker, BreakerChange, BreakerSettings, Verdict};
/// use sluicegate_schedule::Moment;
///
/// let mut breaker = Breaker::new(BreakerSettings { volume: 1, ..BreakerSettings::default() });
/// let pass = breaker.ask(Moment::ZERO).unwrap();
/// assert_eq!(breaker.spend(pass, Verdict::Failure, Moment::ZERO), Some(BreakerChange::Opened));
/// let until = breaker.ask(Moment::ZERO).unwrap_err();
/// assert!(breaker.ask(until).is_ok()); // a probe
/// ```
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    state: State,
    /// Which state it is, counted: what passes are compared by.
    generation: u64,
}

/// The right to make one call. It is spent by [`Breaker::spend`] or [`Breaker::give_back`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pass that is not spent keeps a half-open breaker from being probed"]
pub struct Pass {
    generation: u64,
}

/// How a call ended, for the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The endpoint answered, whatever it said.
    Success,
    /// It did not answer, or said that it is broken.
    Failure,
}

/// A change that others hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    /// It lets nothing through any more.
    Opened,
    /// It lets everything through again.
    Closed,
}

/// What a breaker looks like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// Its state.
    pub state: BreakerState,
    /// Until when it lets nothing through; only while it is open.
    pub until: Option<Moment>,
    /// How many of the last calls it remembers. While half-open: how many ended since.
    pub calls: u32,
    /// How many of them failed. An open breaker remembers those that opened it.
    pub failures: u32,
}

/// A breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Calls are made.
    Closed,
    /// Calls are not made.
    Open,
    /// A few calls are made, to see.
    HalfOpen,
}

#[derive(Clone, Debug)]
enum State {
    Closed(Window),
    Open { until: Moment, calls: u32, failures: u32 },
    HalfOpen { out: u32, successes: u32 },
}

/// The last calls, oldest first, by whether they failed.
#[derive(Clone, Debug, Default)]
struct Window {
    failed: VecDeque<bool>,
    failures: u32,
}

impl Breaker {
    /// A closed breaker.
    ///
    /// Settings that make no sense are taken as the nearest that do: a volume and a `close_after` of
    /// zero as one, a ratio outside of 0 to 1 as 1.
    #[must_use]
    pub fn new(settings: BreakerSettings) -> Self {
        let ratio = settings.failure_ratio;
        let settings = BreakerSettings {
            volume: settings.volume.max(1),
            failure_ratio: if ratio > 0.0 && ratio <= 1.0 { ratio } else { 1.0 },
            close_after: settings.close_after.max(1),
            ..settings
        };
        Self { settings, state: State::Closed(Window::default()), generation: 0 }
    }

    /// Asks whether a call may be made.
    ///
    /// # Errors
    /// Until when not. It is `now` where that depends on the probes that are out.
    pub fn ask(&mut self, now: Moment) -> Result<Pass, Moment> {
        match &mut self.state {
            State::Closed(_) => {}
            State::Open { until, .. } if now < *until => return Err(*until),
            State::Open { .. } => self.enter(State::HalfOpen { out: 1, successes: 0 }),
            State::HalfOpen { out, .. } if *out < self.settings.close_after => *out += 1,
            State::HalfOpen { .. } => return Err(now),
        }
        Ok(Pass { generation: self.generation })
    }

    /// Says how the call of a pass ended.
    #[must_use = "somebody wants to hear of it"]
    pub fn spend(&mut self, pass: Pass, verdict: Verdict, now: Moment) -> Option<BreakerChange> {
        if pass.generation != self.generation {
            return None;
        }
        let BreakerSettings { volume, failure_ratio, close_after, .. } = self.settings;
        match (&mut self.state, verdict) {
            (State::Closed(window), verdict) => {
                window.remember(verdict, volume);
                let (calls, failures) = (window.calls(), window.failures);
                let opens = calls >= volume
                    && failures > 0
                    && f64::from(failures) >= failure_ratio * f64::from(calls);
                opens.then(|| self.open(now, calls, failures))
            }
            (State::HalfOpen { out, successes }, Verdict::Success) => {
                *out = out.saturating_sub(1);
                *successes += 1;
                let closes = *successes >= close_after;
                closes.then(|| {
                    self.enter(State::Closed(Window::default()));
                    BreakerChange::Closed
                })
            }
            (State::HalfOpen { successes, .. }, Verdict::Failure) => {
                let calls = *successes + 1;
                Some(self.open(now, calls, 1))
            }
            // No pass is given while it is open.
            (State::Open { .. }, _) => None,
        }
    }

    /// Takes a pass back whose call was not made, or whose end nobody knows.
    pub fn give_back(&mut self, pass: Pass) {
        if pass.generation == self.generation
            && let State::HalfOpen { out, .. } = &mut self.state
        {
            *out = out.saturating_sub(1);
        }
    }

    /// Closes it and forgets its calls.
    #[must_use = "somebody wants to hear of it"]
    pub fn reset(&mut self) -> Option<BreakerChange> {
        let was_closed = matches!(self.state, State::Closed(_));
        self.enter(State::Closed(Window::default()));
        (!was_closed).then_some(BreakerChange::Closed)
    }

    /// What it looks like.
    #[must_use]
    pub fn view(&self, now: Moment) -> BreakerView {
        let seen = |state, calls, failures| BreakerView { state, until: None, calls, failures };
        match &self.state {
            State::Closed(window) => seen(BreakerState::Closed, window.calls(), window.failures),
            State::Open { until, calls, failures } if now < *until => {
                let view = seen(BreakerState::Open, *calls, *failures);
                BreakerView { until: Some(*until), ..view }
            }
            // The next one who asks is a probe.
            State::Open { .. } => seen(BreakerState::HalfOpen, 0, 0),
            State::HalfOpen { successes, .. } => seen(BreakerState::HalfOpen, *successes, 0),
        }
    }

    fn open(&mut self, now: Moment, calls: u32, failures: u32) -> BreakerChange {
        self.enter(State::Open { until: now + self.settings.open_for, calls, failures });
        BreakerChange::Opened
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }
}

impl Window {
    fn remember(&mut self, verdict: Verdict, volume: u32) {
        if self.calls() >= volume && self.failed.pop_front() == Some(true) {
            self.failures -= 1;
        }
        let failed = verdict == Verdict::Failure;
        self.failures += u32::from(failed);
        self.failed.push_back(failed);
    }

    fn calls(&self) -> u32 {
        u32::try_from(self.failed.len()).unwrap_or(u32::MAX)
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { volume: 10, failure_ratio: 0.5, open_for: Duration::from_secs(5), close_after: 3 }
    }
}

impl BreakerState {
    /// Its name where it is shown.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        }
    }
}
