//! How often something may start: by a bucket of tokens, or never more than so many in any span.
//!
//! `docs/rules.md#rate-1`, `docs/rules.md#rate-2`, `docs/rules.md#rate-3`.

mod bucket;
mod sliding;

use std::time::Duration;

use crate::{Fault, Invalid, Moment};
use bucket::Bucket;
use sliding::Starts;

/// So many starts in so much time, and how many of them at once.
///
/// | made by | at once |
/// |---|---|
/// | [`Rate::per_second`] | one |
/// | [`Rate::per_minute`] | one second's worth, at least one |
/// | [`Rate::new`] | as many as you say |
/// | [`Rate::sliding`] | all of a period's, and then none until the first of them is a period ago |
///
/// ```
/// use sluicegate_schedule::Rate;
/// use std::time::Duration;
///
/// // 600 a minute, refilled continuously, in a bucket of 600 / 60 = 10 tokens.
/// assert_eq!(Rate::per_minute(600)?.burst(), 10);
/// assert_eq!(Rate::new(3, Duration::from_secs(1), 1)?.count(), 3);
/// assert_eq!(Rate::per_minute(0).unwrap_err().field, "rate");
/// # Ok::<(), sluicegate_schedule::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    period: u64,
    burst: u32,
    sliding: bool,
}

impl Rate {
    /// `count` starts in each `period`, at most `burst` of them at once.
    ///
    /// ```
    /// use sluicegate_schedule::Rate;
    /// use std::time::Duration;
    ///
    /// let rate = Rate::new(100, Duration::from_secs(1), 5)?; // 100 a second, 5 of them at once
    /// assert_eq!((rate.count(), rate.burst()), (100, 5));
    /// assert_eq!(Rate::new(100, Duration::ZERO, 5).unwrap_err().field, "period");
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// Names `rate`, `period` or `burst` when it is zero.
    pub fn new(count: u32, period: Duration, burst: u32) -> Result<Self, Invalid> {
        Invalid::check_count("rate", count, u32::MAX)?;
        Invalid::check_count("burst", burst, u32::MAX)?;
        let period = u64::try_from(period.as_nanos())
            .map_err(|_| Invalid::new("period", Fault::TooLarge { max: u64::MAX }))?;
        if period == 0 {
            return Err(Invalid::new("period", Fault::Zero));
        }
        Ok(Self { count, period, burst, sliding: false })
    }

    /// Never more than `count` starts in any span of `period`, wherever the span begins. A bucket of
    /// the same rate lets up to twice as many through around the moment it runs empty.
    ///
    /// The one for admission rates ([`TenantLimits::admission_rate`](crate::TenantLimits::admission_rate)):
    /// who may come five times a second may come five times at once.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, NotUntil, Rate, RateLimit};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// let mut limit = RateLimit::new(Rate::sliding(2, second)?, Moment::ZERO);
    /// let half = Moment::ZERO + second / 2;
    /// assert!(limit.try_take(Moment::ZERO).is_ok() && limit.try_take(half).is_ok());
    /// assert_eq!(limit.try_take(half), Err(NotUntil(Moment::ZERO + second)));
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// Names `rate` or `period` when it is zero, or `rate` when it is above
    /// [`Rate::MAX_SLIDING`]: each start of the last period is remembered.
    pub fn sliding(count: u32, period: Duration) -> Result<Self, Invalid> {
        Invalid::check_count("rate", count, Self::MAX_SLIDING)?;
        Ok(Self { sliding: true, ..Self::new(count, period, count)? })
    }

    /// The most starts of a period that a sliding rate can have.
    pub const MAX_SLIDING: u32 = 100_000;

    /// `count` a second in a bucket of one token: evenly spread, never two at once. The same rate
    /// [a minute](Rate::per_minute) has a deeper bucket.
    ///
    /// ```
    /// use sluicegate_schedule::Rate;
    /// use std::time::Duration;
    ///
    /// assert_eq!(Rate::per_second(50)?, Rate::new(50, Duration::from_secs(1), 1)?);
    /// assert_eq!((Rate::per_second(5)?.burst(), Rate::per_minute(300)?.burst()), (1, 5));
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// Names `rate` when it is zero.
    pub fn per_second(count: u32) -> Result<Self, Invalid> {
        Self::new(count, Duration::from_secs(1), 1)
    }

    /// `count` a minute in a bucket of one second's worth, at least one token deep.
    ///
    /// ```
    /// use sluicegate_schedule::Rate;
    ///
    /// assert_eq!(Rate::per_minute(600)?.burst(), 10);
    /// assert_eq!(Rate::per_minute(6)?.burst(), 1);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// Names `rate` when it is zero.
    pub fn per_minute(count: u32) -> Result<Self, Invalid> {
        Self::new(count, Duration::from_mins(1), (count / 60).max(1))
    }

    /// Starts in each period.
    ///
    /// ```
    /// use sluicegate_schedule::Rate;
    ///
    /// assert_eq!(Rate::per_minute(600)?.count(), 600);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The period.
    ///
    /// ```
    /// use sluicegate_schedule::Rate;
    /// use std::time::Duration;
    ///
    /// assert_eq!(Rate::per_minute(600)?.period(), Duration::from_mins(1));
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn period(self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// The depth of the bucket.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    ///
    /// let rate = Rate::per_minute(180)?;
    /// let full = RateLimit::new(rate, Moment::ZERO);
    /// assert_eq!(rate.burst(), 3);
    /// assert_eq!(full.available(Moment::FAR), 3); // however long nothing was taken
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn burst(self) -> u32 {
        self.burst
    }

    /// Whether it bounds every span of a period, rather than filling a bucket.
    ///
    /// ```
    /// use sluicegate_schedule::Rate;
    /// use std::time::Duration;
    ///
    /// assert!(Rate::sliding(15, Duration::from_secs(1))?.is_sliding());
    /// assert!(!Rate::per_minute(15)?.is_sliding());
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn is_sliding(self) -> bool {
        self.sliding
    }
}

/// No token now: the next one is there at the moment inside.
///
/// ```
/// use sluicegate_schedule::{Moment, NotUntil, Rate, RateLimit};
///
/// let mut limit = RateLimit::new(Rate::per_minute(60)?, Moment::ZERO);
/// assert!(limit.try_take(Moment::ZERO).is_ok());
/// let Err(NotUntil(then)) = limit.try_take(Moment::ZERO) else { unreachable!() };
/// assert!(limit.try_take(then).is_ok()); // to the nanosecond
/// # Ok::<(), sluicegate_schedule::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUntil(pub Moment);

/// A bucket of tokens that fills by itself as time passes.
///
/// ```
/// use sluicegate_schedule::{Moment, NotUntil, Rate, RateLimit};
/// use std::time::Duration;
///
/// let t0 = Moment::ZERO;
/// let mut limit = RateLimit::new(Rate::new(10, Duration::from_secs(1), 1)?, t0);
/// assert_eq!(limit.try_take(t0), Ok(()));
/// let next = t0 + Duration::from_millis(100);
/// assert_eq!(limit.try_take(t0), Err(NotUntil(next)));
/// assert_eq!(limit.try_take(next), Ok(()));
/// # Ok::<(), sluicegate_schedule::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct RateLimit {
    rate: Rate,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Bucket(Bucket),
    Sliding(Starts),
}

impl RateLimit {
    /// A full bucket; or, of a sliding rate, no start yet.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    ///
    /// let limit = RateLimit::new(Rate::per_minute(180)?, Moment::ZERO);
    /// assert_eq!(limit.available(Moment::ZERO), 3);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn new(rate: Rate, now: Moment) -> Self {
        let state = if rate.sliding {
            State::Sliding(Starts::none())
        } else {
            State::Bucket(Bucket::full(rate, now))
        };
        Self { rate, state }
    }

    /// The rate in force.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    ///
    /// let mut limit = RateLimit::new(Rate::per_minute(60)?, Moment::ZERO);
    /// limit.set_rate(Rate::per_minute(600)?, Moment::ZERO);
    /// assert_eq!(limit.rate(), Rate::per_minute(600)?);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes one token.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, NotUntil, Rate, RateLimit};
    /// use std::time::Duration;
    ///
    /// let t0 = Moment::ZERO;
    /// let mut limit = RateLimit::new(Rate::per_minute(60)?, t0);
    /// assert_eq!(limit.try_take(t0), Ok(()));
    /// assert_eq!(limit.try_take(t0), Err(NotUntil(t0 + Duration::from_secs(1))));
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`NotUntil`] says when there will be one, if nobody else takes it first.
    pub fn try_take(&mut self, now: Moment) -> Result<(), NotUntil> {
        let taken = match &mut self.state {
            State::Bucket(bucket) => bucket.take(self.rate, now),
            State::Sliding(starts) => starts.take(self.rate, now),
        };
        if taken { Ok(()) } else { Err(NotUntil(self.ready_at(now))) }
    }

    /// When a token will be there; `now` if one is.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    /// use std::time::Duration;
    ///
    /// let t0 = Moment::ZERO;
    /// let mut limit = RateLimit::new(Rate::per_minute(60)?, t0);
    /// assert_eq!(limit.ready_at(t0), t0);
    /// assert!(limit.try_take(t0).is_ok());
    /// assert_eq!(limit.ready_at(t0), t0 + Duration::from_secs(1)); // looking takes nothing
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub fn ready_at(&self, now: Moment) -> Moment {
        self.ready_for(1, now)
    }

    /// When so many tokens will be there at once; [`Moment::FAR`] if they never can.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    /// use std::time::Duration;
    ///
    /// let limit = RateLimit::new(Rate::per_minute(120)?, Moment::ZERO);
    /// assert_eq!(limit.ready_for(2, Moment::ZERO), Moment::ZERO);
    /// assert_eq!(limit.ready_for(3, Moment::ZERO), Moment::FAR); // the bucket is two deep
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub fn ready_for(&self, tokens: u32, now: Moment) -> Moment {
        if tokens > self.rate.burst {
            return Moment::FAR;
        }
        match &self.state {
            State::Bucket(bucket) => bucket.ready_for(self.rate, tokens, now),
            State::Sliding(starts) => starts.ready_for(self.rate, tokens, now),
        }
    }

    /// Whole tokens that are there.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    /// use std::time::Duration;
    ///
    /// let t0 = Moment::ZERO;
    /// let mut limit = RateLimit::new(Rate::per_minute(60)?, t0);
    /// assert!(limit.try_take(t0).is_ok());
    /// assert_eq!(limit.available(t0 + Duration::from_millis(999)), 0);
    /// assert_eq!(limit.available(t0 + Duration::from_millis(1000)), 1);
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    #[must_use]
    pub fn available(&self, now: Moment) -> u32 {
        match &self.state {
            State::Bucket(bucket) => bucket.available(self.rate, now),
            State::Sliding(starts) => starts.available(self.rate, now),
        }
    }

    /// Puts back a token that was taken at a moment: what it was taken for did not start after all.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    ///
    /// let mut limit = RateLimit::new(Rate::per_minute(60)?, Moment::ZERO);
    /// assert!(limit.try_take(Moment::ZERO).is_ok());
    /// limit.refund(Moment::ZERO);
    /// assert!(limit.try_take(Moment::ZERO).is_ok()); // the next need not wait for it
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    pub fn refund(&mut self, taken_at: Moment) {
        match &mut self.state {
            State::Bucket(bucket) => bucket.refund(self.rate),
            State::Sliding(starts) => starts.refund(taken_at),
        }
    }

    /// Another rate from now on. What is there stays, up to the new depth, so a wait under way is
    /// neither lost nor begun anew.
    ///
    /// ```
    /// use sluicegate_schedule::{Moment, Rate, RateLimit};
    /// use std::time::Duration;
    ///
    /// let t0 = Moment::ZERO;
    /// let mut limit = RateLimit::new(Rate::per_minute(60)?, t0);
    /// assert!(limit.try_take(t0).is_ok());
    /// // After half a second half a token is there; at ten a second the rest takes 50 ms.
    /// let later = t0 + Duration::from_millis(500);
    /// limit.set_rate(Rate::per_minute(600)?, later);
    /// assert_eq!(limit.ready_at(later), later + Duration::from_millis(50));
    /// # Ok::<(), sluicegate_schedule::Invalid>(())
    /// ```
    pub fn set_rate(&mut self, rate: Rate, now: Moment) {
        let was = std::mem::replace(&mut self.rate, rate);
        match (&mut self.state, rate.sliding) {
            (State::Bucket(bucket), false) => bucket.change(was, rate, now),
            (State::Sliding(starts), true) => starts.forget_gone(was, now),
            (State::Bucket(bucket), true) => {
                let free = bucket.available(was, now);
                self.state = State::Sliding(Starts::all_but(free, rate, now));
            }
            (State::Sliding(starts), false) => {
                let free = starts.available(was, now);
                self.state = State::Bucket(Bucket::with(free, rate, now));
            }
        }
    }

    /// From when on it is as if nothing had ever been taken.
    pub(crate) fn untouched_at(&self, now: Moment) -> Moment {
        match &self.state {
            State::Bucket(bucket) => bucket.ready_for(self.rate, self.rate.burst, now),
            State::Sliding(starts) => starts.untouched_at(self.rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(n)
    }

    fn limit(count: u32, burst: u32) -> RateLimit {
        RateLimit::new(Rate::new(count, Duration::from_secs(1), burst).unwrap(), ms(0))
    }

    #[test]
    fn starts_full_and_never_holds_more_than_its_depth() {
        let mut bucket = limit(10, 3);
        assert_eq!(bucket.available(ms(60_000)), 3);
        for _ in 0..3 {
            bucket.try_take(ms(60_000)).unwrap();
        }
        assert_eq!(bucket.try_take(ms(60_000)), Err(NotUntil(ms(60_100))));
    }

    #[test]
    fn counts_exactly_over_a_long_time() {
        // 7 per second does not divide a nanosecond evenly: still exactly 7 per second.
        let mut bucket = limit(7, 1);
        let mut now = ms(0);
        let mut taken = 0;
        while now < ms(3_600_000) {
            match bucket.try_take(now) {
                Ok(()) => taken += 1,
                Err(NotUntil(at)) => now = at,
            }
        }
        assert_eq!(taken, 7 * 3600);
    }

    #[test]
    fn refund_gives_the_token_to_the_next() {
        let mut bucket = limit(1, 1);
        bucket.try_take(ms(0)).unwrap();
        bucket.refund(ms(0));
        assert_eq!(bucket.try_take(ms(0)), Ok(()));
    }

    #[test]
    fn a_new_rate_applies_at_once_to_a_wait_under_way() {
        let mut bucket = limit(1, 1);
        bucket.try_take(ms(0)).unwrap();
        assert_eq!(bucket.try_take(ms(0)), Err(NotUntil(ms(1000))));
        // Half a token is there at 500 ms; at ten a second the other half takes 50 ms.
        bucket.set_rate(Rate::new(10, Duration::from_secs(1), 1).unwrap(), ms(500));
        assert_eq!(bucket.ready_at(ms(500)), ms(550));
    }

    #[test]
    fn time_that_goes_back_gives_nothing() {
        let mut bucket = limit(1, 1);
        bucket.try_take(ms(5000)).unwrap();
        assert!(bucket.try_take(ms(0)).is_err());
        assert_eq!(bucket.try_take(ms(6000)), Ok(()));
        let mut deep = limit(1, 3);
        (0..3).for_each(|_| deep.try_take(ms(5000)).unwrap());
        assert!(deep.try_take(ms(0)).is_err());
        assert_eq!(deep.available(ms(6000)), 1);
    }

    #[test]
    fn bad_rates_name_the_field() {
        let second = Duration::from_secs(1);
        for (rate, field) in [
            (Rate::new(0, second, 1), "rate"),
            (Rate::new(1, Duration::ZERO, 1), "period"),
            (Rate::new(1, second, 0), "burst"),
        ] {
            assert_eq!(rate.unwrap_err().field, field);
        }
    }
}
