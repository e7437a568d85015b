//! A bucket of tokens that fills by itself as time passes.
//!
//! Invariants:
//! 1. `credit <= burst * period`: a bucket never holds more than its depth.
//! 2. Credit is counted in exact integers (one token is `period` nanoseconds of it, and `count` of
//!    it flow in per nanosecond), so no rounding ever adds or loses a token over time.

use std::time::Duration;

use super::Rate;
use crate::Moment;

#[derive(Clone, Debug)]
pub(super) struct Bucket {
    credit: u128,
    at: Moment,
}

const fn token(rate: Rate) -> u128 {
    rate.period as u128
}

const fn depth(rate: Rate) -> u128 {
    rate.burst as u128 * rate.period as u128
}

impl Bucket {
    pub(super) const fn full(rate: Rate, now: Moment) -> Self {
        Self { credit: depth(rate), at: now }
    }

    pub(super) fn with(tokens: u32, rate: Rate, now: Moment) -> Self {
        Self { credit: (u128::from(tokens) * token(rate)).min(depth(rate)), at: now }
    }

    pub(super) fn take(&mut self, rate: Rate, now: Moment) -> bool {
        self.refill(rate, now);
        let rest = self.credit.checked_sub(token(rate));
        self.credit = rest.unwrap_or(self.credit);
        rest.is_some()
    }

    pub(super) fn ready_for(&self, rate: Rate, tokens: u32, now: Moment) -> Moment {
        let wanted = token(rate) * u128::from(tokens);
        let wait = wanted.saturating_sub(self.credit_at(rate, now)).div_ceil(rate.count.into());
        now + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    pub(super) fn available(&self, rate: Rate, now: Moment) -> u32 {
        u32::try_from(self.credit_at(rate, now) / token(rate)).unwrap_or(u32::MAX)
    }

    pub(super) fn refund(&mut self, rate: Rate) {
        self.credit = (self.credit + token(rate)).min(depth(rate));
    }

    pub(super) fn change(&mut self, was: Rate, rate: Rate, now: Moment) {
        self.refill(was, now);
        // A fraction of a token keeps its size: only the unit of credit changes. Whole tokens and
        // the rest are converted apart, since each product then stays below 2^128.
        let whole = self.credit / token(was);
        let part = self.credit % token(was) * token(rate) / token(was);
        self.credit = (whole * token(rate) + part).min(depth(rate));
    }

    fn refill(&mut self, rate: Rate, now: Moment) {
        self.credit = self.credit_at(rate, now);
        self.at = self.at.max(now);
    }

    fn credit_at(&self, rate: Rate, now: Moment) -> u128 {
        let flowed = (now - self.at).as_nanos() * u128::from(rate.count);
        (self.credit + flowed).min(depth(rate))
    }
}
