//! The starts of the last period, each remembered: never more than so many in any span of it.
//!
//! Invariants:
//! 1. `at` is in order, and no longer than the rate's count but for starts that were made while it was
//!    higher.
//! 2. What is given back is that start or, where it was made under a bucket, one that stands for it:
//!    never another's. One that is a whole period back has nothing left to give.

use std::collections::VecDeque;

use super::Rate;
use crate::Moment;

#[derive(Clone, Debug)]
pub(super) struct Starts {
    at: VecDeque<Moment>,
    /// When this began, if a bucket was there before it.
    since: Moment,
    /// How many of those at that moment stand for starts under the bucket.
    assumed: u32,
}

impl Starts {
    pub(super) const fn none() -> Self {
        Self { at: VecDeque::new(), since: Moment::ZERO, assumed: 0 }
    }

    /// As many as leave `free`, all of them now: when they really were is not known.
    pub(super) fn all_but(free: u32, rate: Rate, now: Moment) -> Self {
        let assumed = rate.count.saturating_sub(free);
        Self { at: (0..assumed).map(|_| now).collect(), since: now, assumed }
    }

    pub(super) fn take(&mut self, rate: Rate, now: Moment) -> bool {
        self.forget_gone(rate, now);
        let free = self.at.len() < rate.count as usize;
        if free {
            // Time that goes back must not break the order.
            self.at.push_back(self.at.back().map_or(now, |last| now.max(*last)));
        }
        free
    }

    pub(super) fn ready_for(&self, rate: Rate, tokens: u32, now: Moment) -> Moment {
        let too_many = (self.at.len() + tokens as usize).saturating_sub(rate.count as usize);
        match too_many.checked_sub(1).and_then(|last| self.at.get(last)) {
            Some(start) => now.max(*start + rate.period()),
            None => now,
        }
    }

    pub(super) fn available(&self, rate: Rate, now: Moment) -> u32 {
        let live = self.at.len() - self.gone(rate, now);
        rate.count.saturating_sub(u32::try_from(live).unwrap_or(u32::MAX))
    }

    pub(super) fn refund(&mut self, taken_at: Moment) {
        let mut stands_at = taken_at;
        if taken_at < self.since {
            let Some(assumed) = self.assumed.checked_sub(1) else { return };
            self.assumed = assumed;
            stands_at = self.since;
        }
        if let Some(place) = self.at.iter().rposition(|start| *start == stands_at) {
            self.at.remove(place);
        }
    }

    /// Before the rate changes: what it allowed again by now does not count under another either.
    pub(super) fn forget_gone(&mut self, rate: Rate, now: Moment) {
        let gone = self.gone(rate, now);
        self.at.drain(..gone);
    }

    pub(super) fn untouched_at(&self, rate: Rate) -> Moment {
        self.at.back().map_or(Moment::ZERO, |last| *last + rate.period())
    }

    /// How many lie a whole period back.
    fn gone(&self, rate: Rate, now: Moment) -> usize {
        self.at.iter().take_while(|start| **start + rate.period() <= now).count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use crate::{Moment, NotUntil, Rate, RateLimit};

    proptest! {
        /// Whatever is asked for and given back, no span of a period has more starts than may be;
        /// and a start is refused only where it would make one too many.
        #[test]
        fn no_span_has_more_starts_than_may_be(
            count in 1u32..6,
            steps in prop::collection::vec((0u64..400, any::<bool>()), 1..200),
        ) {
            let period = Duration::from_millis(1000);
            let mut limit = RateLimit::new(Rate::sliding(count, period).unwrap(), Moment::ZERO);
            let (mut now, mut starts) = (Moment::ZERO, Vec::<Moment>::new());
            for (ms, give_back) in steps {
                now += Duration::from_millis(ms);
                let within = starts.iter().filter(|start| **start + period > now).count();
                match limit.try_take(now) {
                    Ok(()) => {
                        prop_assert!(within < count as usize);
                        starts.push(now);
                    }
                    Err(NotUntil(at)) => {
                        prop_assert_eq!(within, count as usize);
                        prop_assert_eq!(at, starts[starts.len() - count as usize] + period);
                    }
                }
                if give_back && let Some(last) = starts.pop() {
                    limit.refund(last);
                }
            }
        }
    }

    /// What is given back late gives nothing: its place is another's by now.
    #[test]
    fn a_start_that_is_a_period_back_gives_nothing() {
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        let mut limit =
            RateLimit::new(Rate::sliding(1, Duration::from_secs(1)).unwrap(), Moment::ZERO);
        limit.try_take(at(0)).unwrap();
        limit.try_take(at(1500)).unwrap();
        limit.refund(at(0));
        assert_eq!(limit.try_take(at(1600)), Err(NotUntil(at(2500))));
        limit.refund(at(1500));
        assert_eq!(limit.try_take(at(1600)), Ok(()));
    }

    #[test]
    fn a_start_under_a_bucket_is_given_back_once_it_slides() {
        let second = Duration::from_secs(1);
        let later = Moment::ZERO + second / 10;
        let mut limit = RateLimit::new(Rate::new(1, second, 1).unwrap(), Moment::ZERO);
        limit.try_take(Moment::ZERO).unwrap();
        limit.set_rate(Rate::sliding(1, second).unwrap(), later);
        assert_eq!(limit.try_take(later), Err(NotUntil(later + second)));
        limit.refund(Moment::ZERO);
        assert_eq!(limit.try_take(later), Ok(()));
        // There is no other start under the bucket: this one is nobody's.
        limit.refund(Moment::ZERO + Duration::from_nanos(1));
        assert_eq!(limit.available(later), 0);
    }

    /// A longer period counts what the shorter one still did, whether or not somebody asked since.
    #[test]
    fn a_longer_period_brings_back_no_start() {
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        let sliding = |ms| Rate::sliding(2, Duration::from_millis(ms)).unwrap();
        let mut limit = RateLimit::new(sliding(100), Moment::ZERO);
        limit.try_take(at(0)).unwrap();
        limit.try_take(at(50)).unwrap();
        limit.set_rate(sliding(1000), at(120));
        assert_eq!(limit.available(at(120)), 1);
    }

    #[test]
    fn time_that_goes_back_lets_nothing_be_forgotten() {
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        let mut limit =
            RateLimit::new(Rate::sliding(2, Duration::from_secs(1)).unwrap(), Moment::ZERO);
        limit.try_take(at(5000)).unwrap();
        limit.try_take(at(0)).unwrap();
        assert_eq!(limit.untouched_at(at(5500)), at(6000));
        assert_eq!(limit.try_take(at(5500)), Err(NotUntil(at(6000))));
    }

    #[test]
    fn a_change_of_kind_forgets_no_start() {
        let second = Duration::from_secs(1);
        let mut limit = RateLimit::new(Rate::sliding(3, second).unwrap(), Moment::ZERO);
        (0..2).for_each(|_| limit.try_take(Moment::ZERO).unwrap());
        limit.set_rate(Rate::new(3, second, 3).unwrap(), Moment::ZERO);
        assert_eq!(limit.available(Moment::ZERO), 1);
        limit.set_rate(Rate::sliding(3, second).unwrap(), Moment::ZERO);
        assert_eq!(limit.available(Moment::ZERO), 1);
    }
}
