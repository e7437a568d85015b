//! A circuit breaker: whether an endpoint that keeps failing may be called.
//!
//! Pure: it is asked with `now`, and told how each call ended.
//!
//! It opens when too many calls of a span of time failed. Where a fifth of all calls fails, one in
//! thirty sets of ten calls is half failures by chance, and every span begins with ten calls. So
//! `volume` failures are put down to chance: it opens when there are as many, and at least
//! `failure_ratio` of the *other* calls failed. At the default that is 10 of 10 calls, 15 of 20, 55
//! of 100, 505 of 1,000.
//!
//! The calls of before would hide an endpoint that breaks down: after 10 s of successes it takes 5 s
//! of failures to be half of them. So the last tenth of the span is judged for itself, by the mean
//! of `failure_ratio` and 1, which leaves it to break-downs. docs/adr/0015 has the figures.
//!
//! Invariants:
//! 1. A pass is good for the state it was given in. What is said of it after that state ended
//!    changes nothing, so a slow call cannot close a breaker that opened meanwhile, or open one that
//!    closed.
//! 2. While half-open, at most [`BreakerSettings::close_after`] passes are out at once.
//! 3. Every pass is spent once: by its verdict, or by being given back.
//! 4. Only a failure opens it, and nothing but opening says until when it is open. Where time goes
//!    back, that is `open_for` from then on at most.

mod span;

#[cfg(test)]
mod tests;

use std::time::Duration;

use sluicegate_schedule::Moment;

use span::{Counts, Span};

/// When a breaker opens and closes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// Calls that ended within this span count.
    pub window: Duration,
    /// How many of them there must be before it opens. So many failures are put down to chance.
    pub volume: u32,
    /// The failed part of the others from which on it opens.
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
    /// How many calls ended within the span. While half-open: how many ended since.
    pub calls: u32,
    /// How many of them failed. An open breaker shows those that opened it.
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
    Closed(Span),
    Open { until: Moment, by: Counts },
    HalfOpen { out: u32, successes: u32 },
}

impl Breaker {
    /// A closed breaker.
    ///
    /// Settings that make no sense are taken as the nearest that do: a volume and a `close_after` of
    /// zero as one, a ratio outside of 0 to 1 as 1, a window below a millisecond as a millisecond.
    #[must_use]
    pub fn new(settings: BreakerSettings) -> Self {
        let ratio = settings.failure_ratio;
        let settings = BreakerSettings {
            window: settings.window.max(Duration::from_millis(1)),
            volume: settings.volume.max(1),
            failure_ratio: if ratio > 0.0 && ratio <= 1.0 { ratio } else { 1.0 },
            close_after: settings.close_after.max(1),
            ..settings
        };
        Self { settings, state: State::Closed(Span::new(settings.window)), generation: 0 }
    }

    /// Asks whether a call may be made.
    ///
    /// # Errors
    /// Until when not. It is `now` where that depends on the probes that are out.
    pub fn ask(&mut self, now: Moment) -> Result<Pass, Moment> {
        match &mut self.state {
            State::Closed(_) => {}
            State::Open { until, .. } if now < *until => {
                *until = (*until).min(now + self.settings.open_for);
                return Err(*until);
            }
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
        match (&mut self.state, verdict) {
            (State::Closed(span), Verdict::Success) => {
                span.count(verdict, now);
                None
            }
            (State::Closed(span), Verdict::Failure) => {
                span.count(verdict, now);
                let by = self.settings.too_many(span, now)?;
                Some(self.open(now, by))
            }
            (State::HalfOpen { out, successes }, Verdict::Success) => {
                *out = out.saturating_sub(1);
                *successes += 1;
                let closes = *successes >= self.settings.close_after;
                closes.then(|| self.close())
            }
            (State::HalfOpen { successes, .. }, Verdict::Failure) => {
                let by = Counts { calls: *successes + 1, failures: 1 };
                Some(self.open(now, by))
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
        let change = self.close();
        (!was_closed).then_some(change)
    }

    /// What it looks like.
    #[must_use]
    pub fn view(&self, now: Moment) -> BreakerView {
        let seen =
            |state, Counts { calls, failures }| BreakerView { state, until: None, calls, failures };
        match &self.state {
            State::Closed(span) => seen(BreakerState::Closed, span.all(now)),
            State::Open { until, by } if now < *until => {
                let until = (*until).min(now + self.settings.open_for);
                BreakerView { until: Some(until), ..seen(BreakerState::Open, *by) }
            }
            // The next one who asks is a probe.
            State::Open { .. } => seen(BreakerState::HalfOpen, Counts::default()),
            State::HalfOpen { successes, .. } => {
                seen(BreakerState::HalfOpen, Counts { calls: *successes, failures: 0 })
            }
        }
    }

    fn open(&mut self, now: Moment, by: Counts) -> BreakerChange {
        self.enter(State::Open { until: now + self.settings.open_for, by });
        BreakerChange::Opened
    }

    fn close(&mut self) -> BreakerChange {
        self.enter(State::Closed(Span::new(self.settings.window)));
        BreakerChange::Closed
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
    }
}

impl BreakerSettings {
    /// The calls for which it opens: all of the span, or its latest.
    fn too_many(&self, span: &Span, now: Moment) -> Option<Counts> {
        let (all, latest) = (span.all(now), span.latest(now));
        let broken_down = f64::midpoint(self.failure_ratio, 1.0);
        if self.is_reached(all, self.failure_ratio) {
            Some(all)
        } else {
            self.is_reached(latest, broken_down).then_some(latest)
        }
    }

    /// Whether that part of the calls failed, not counting the failures that may be chance.
    fn is_reached(&self, Counts { calls, failures }: Counts, ratio: f64) -> bool {
        failures >= self.volume
            && f64::from(failures - self.volume) >= ratio * f64::from(calls - self.volume)
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            volume: 10,
            failure_ratio: 0.5,
            open_for: Duration::from_secs(5),
            close_after: 3,
        }
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
