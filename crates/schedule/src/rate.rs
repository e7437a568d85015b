//! Token buckets: how often something may start.
//!
//! Invariants:
//! 1. `credit <= burst * period`: a bucket never holds more than its depth.
//! 2. Credit is counted in exact integers (one token is `period` nanoseconds of it, and `count` of
//!    it flow in per nanosecond), so no rounding ever adds or loses a token over time.
//!
//! `docs/rules.md#rate-1`, `docs/rules.md#rate-2`.

use std::time::Duration;

use crate::{Fault, Invalid, Moment};

/// So many starts in so much time, and how many of them at once.
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
}

impl Rate {
    /// `count` starts in each `period`, at most `burst` of them at once.
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
        Ok(Self { count, period, burst })
    }

    /// `count` a minute in a bucket of one second's worth, at least one token deep.
    ///
    /// # Errors
    /// Names `rate` when it is zero.
    pub fn per_minute(count: u32) -> Result<Self, Invalid> {
        Self::new(count, Duration::from_mins(1), (count / 60).max(1))
    }

    /// Starts in each period.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The period.
    #[must_use]
    pub const fn period(self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// The depth of the bucket.
    #[must_use]
    pub const fn burst(self) -> u32 {
        self.burst
    }

    const fn token(self) -> u128 {
        self.period as u128
    }

    const fn depth(self) -> u128 {
        self.burst as u128 * self.period as u128
    }
}

/// No token now: the next one is there at the moment inside.
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
    credit: u128,
    at: Moment,
}

impl RateLimit {
    /// A full bucket.
    #[must_use]
    pub const fn new(rate: Rate, now: Moment) -> Self {
        Self { rate, credit: rate.depth(), at: now }
    }

    /// The rate in force.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes one token.
    ///
    /// # Errors
    /// [`NotUntil`] says when there will be one, if nobody else takes it first.
    pub fn try_take(&mut self, now: Moment) -> Result<(), NotUntil> {
        self.refill(now);
        match self.credit.checked_sub(self.rate.token()) {
            Some(rest) => {
                self.credit = rest;
                Ok(())
            }
            None => Err(NotUntil(self.ready_at(now))),
        }
    }

    /// When a token will be there; `now` if one is.
    #[must_use]
    pub fn ready_at(&self, now: Moment) -> Moment {
        let missing = self.rate.token().saturating_sub(self.credit_at(now));
        let wait = missing.div_ceil(u128::from(self.rate.count));
        now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// Whole tokens in the bucket.
    #[must_use]
    pub fn available(&self, now: Moment) -> u32 {
        u32::try_from(self.credit_at(now) / self.rate.token()).unwrap_or(u32::MAX)
    }

    /// Puts a token back: what it was taken for did not start after all.
    pub fn refund(&mut self) {
        self.credit = (self.credit + self.rate.token()).min(self.rate.depth());
    }

    /// Another rate from now on. What is in the bucket stays, up to the new depth, so a wait under
    /// way is neither lost nor begun anew.
    pub fn set_rate(&mut self, rate: Rate, now: Moment) {
        self.refill(now);
        // A fraction of a token keeps its size: only the unit of credit changes. Whole tokens and
        // the rest are converted apart, since each product then stays below 2^128.
        let whole = self.credit / self.rate.token();
        let part = self.credit % self.rate.token() * rate.token() / self.rate.token();
        self.credit = (whole * rate.token() + part).min(rate.depth());
        self.rate = rate;
    }

    fn refill(&mut self, now: Moment) {
        self.credit = self.credit_at(now);
        self.at = self.at.max(now);
    }

    fn credit_at(&self, now: Moment) -> u128 {
        let flowed = (now - self.at).as_nanos() * u128::from(self.rate.count);
        (self.credit + flowed).min(self.rate.depth())
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
        bucket.refund();
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
