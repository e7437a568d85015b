//! Starting as it comes in is the same as coming in and being started: two schedules with one history,
//! one of which does it in two steps, say the same ever after.
//!
//! `docs/rules.md#schedule-2`, `docs/rules.md#rate-1`.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use sluicegate_schedule::{ItemId, Moment, Next};

use crate::history::{Newcomer, Op, Tested, history};

proptest! {
    #![proptest_config(Config { cases: 256, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() })]

    #[test]
    fn starting_at_once_is_the_same_as_starting_next(history in history(250)) {
        let mut pair = Pair {
            at_once: history.setup.schedule(),
            in_steps: history.setup.schedule(),
            now: Moment::ZERO,
            ids: Vec::new(),
        };
        for op in history.ops {
            pair.step(op)?;
            pair.compare()?;
        }
    }
}

struct Pair {
    at_once: Tested,
    in_steps: Tested,
    now: Moment,
    ids: Vec<ItemId>,
}

impl Pair {
    fn admit(&mut self, newcomer: Newcomer) -> Result<(), TestCaseError> {
        let (now, value) = (self.now, self.ids.len() as u64);
        let at_once = self.at_once.admit_at_once(now, newcomer.entry(), value);
        let alone = self.in_steps.queued() == 0;
        let in_steps = self.in_steps.admit(now, newcomer.entry(), value).map(|id| {
            let starts = alone && self.in_steps.peek(now) == Next::Start(id);
            if starts {
                self.in_steps.next(now);
            }
            (id, starts)
        });
        prop_assert_eq!(&at_once, &in_steps);
        self.ids.extend(at_once.ok().map(|(id, _)| id));
        Ok(())
    }

    fn both<R: PartialEq + std::fmt::Debug>(
        &mut self,
        change: impl Fn(&mut Tested) -> R,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(change(&mut self.at_once), change(&mut self.in_steps));
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        let now = self.now;
        let id = |nth: usize| self.ids.get(nth % self.ids.len().max(1)).copied();
        match op {
            Op::Admit(newcomer) => self.admit(newcomer),
            Op::Next => self.both(|schedule| schedule.next(now)),
            Op::Advance { ms, .. } => {
                self.now += Duration::from_millis(ms);
                Ok(())
            }
            Op::SetConcurrency(limit) => self.both(|schedule| schedule.set_concurrency(limit)),
            Op::SetRate(rate) => {
                self.both(|schedule| schedule.set_rate(now, rate.map(|r| r.rate())))
            }
            Op::SetTenant(tenant, bounds) => {
                self.both(|schedule| schedule.set_tenant(now, tenant, bounds.limits()))
            }
            Op::Complete { nth, cost } => match id(nth) {
                Some(id) => self.both(|schedule| schedule.complete(id, cost)),
                None => Ok(()),
            },
            Op::Revoke { nth } => match id(nth) {
                Some(id) => self.both(|schedule| schedule.revoke(id)),
                None => Ok(()),
            },
            Op::Retry { nth, delay, cost } => match id(nth) {
                Some(id) => self.both(|s| s.retry(now, id, delay.after(now), cost)),
                None => Ok(()),
            },
            Op::Postpone { nth, delay } => match id(nth) {
                Some(id) => self.both(|s| s.postpone(now, id, delay.after(now))),
                None => Ok(()),
            },
            Op::Linger { nth, cost } => match id(nth) {
                Some(id) => self.both(|schedule| schedule.linger(id, cost)),
                None => Ok(()),
            },
            Op::Cancel { nth } => match id(nth) {
                Some(id) => self.both(|schedule| schedule.cancel(id)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.at_once.snapshot(self.now), self.in_steps.snapshot(self.now));
        for id in &self.ids {
            let why = |schedule: &Tested| schedule.why(self.now, *id);
            prop_assert_eq!(why(&self.at_once), why(&self.in_steps));
        }
        Ok(())
    }
}
