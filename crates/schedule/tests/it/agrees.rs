//! Random histories, step by step: the schedule decides, refuses and explains as the model does.
//!
//! `docs/rules.md#schedule-6`.

use proptest::prelude::*;
use proptest::test_runner::Config;
use sluicegate_schedule::{ItemId, Moment, Next, Refusal};
use std::time::Duration;

use crate::history::{History, Newcomer, Op, REASONS, Tested, history};
use crate::model::{Counts, Model};

proptest! {
    #![proptest_config(Config { cases: 320, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() })]

    #[test]
    fn the_schedule_agrees_with_the_model(history in history(300)) {
        check(&history)?;
    }
}

struct Pair {
    schedule: Tested,
    model: Model,
    now: Moment,
    admitted: u64,
    /// Every id there ever was: also those that are gone are asked for.
    ids: Vec<ItemId>,
}

fn check(history: &History) -> Result<(), TestCaseError> {
    let mut pair = Pair {
        schedule: history.setup.schedule(),
        model: Model::new(history.setup),
        now: Moment::ZERO,
        admitted: 0,
        ids: Vec::new(),
    };
    for op in &history.ops {
        pair.step(*op)?;
        pair.compare()?;
    }
    Ok(())
}

/// The nth of them, counted round and round.
fn nth(ids: &[ItemId], nth: usize) -> Option<ItemId> {
    ids.get(nth % ids.len().max(1)).copied()
}

impl Pair {
    fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        let Self { schedule, model, now, .. } = self;
        let now = *now;
        match op {
            Op::Admit(newcomer) => return self.admit(newcomer),
            Op::AdmitAll { first, count, tenants, keys } => {
                return self.admit_all(&first.batch(count, tenants, keys));
            }
            Op::Next => return self.next(),
            Op::Peek => {
                let said = schedule.peek(now);
                prop_assert_eq!(model.objection(now, said), None);
            }
            Op::Complete { nth, .. }
            | Op::Revoke { nth }
            | Op::Retry { nth, .. }
            | Op::Postpone { nth, .. }
            | Op::Linger { nth, .. } => return self.end(op, nth, self.model.running_ids()),
            Op::Depart { nth } => return self.end(op, nth, self.model.lingering_ids()),
            Op::Cancel { nth: at } => {
                if let Some(id) = nth(&self.ids, at) {
                    prop_assert_eq!(schedule.cancel(id), model.cancel(id));
                }
            }
            Op::Release { nth: at } => {
                if let Some(id) = nth(&self.ids, at) {
                    prop_assert_eq!(schedule.release(id), model.release(id));
                }
            }
            Op::Advance { ms, told } => {
                self.now += Duration::from_millis(ms);
                if told {
                    schedule.advance(self.now);
                    model.advance(self.now);
                }
            }
            Op::StopAdmission => {
                schedule.stop_admission();
                model.stop_admission();
            }
            Op::TakeWaiting => prop_assert_eq!(schedule.take_waiting(), model.take_waiting()),
            _ => return self.set(op),
        }
        Ok(())
    }

    /// Half of the times it is asked before what it will say: that is what it says.
    fn next(&mut self) -> Result<(), TestCaseError> {
        let Self { schedule, model, now, ids, .. } = self;
        let peeked = ids.len().is_multiple_of(2).then(|| schedule.peek(*now));
        let said = schedule.next(*now);
        prop_assert_eq!(peeked.unwrap_or(said), said);
        prop_assert_eq!(model.objection(*now, said), None);
        if let Next::Start(id) = said {
            model.start(*now, id);
        }
        Ok(())
    }

    fn admit(&mut self, newcomer: Newcomer) -> Result<(), TestCaseError> {
        let may = self.may_admit(&[newcomer]);
        prop_assert_eq!(self.schedule.may_admit(self.now, &newcomer.entry()), may);
        let value = self.ids.len() as u64;
        match self.schedule.admit(self.now, newcomer.entry(), value) {
            Ok(id) => {
                prop_assert_eq!(may, Ok(()));
                self.admitted(newcomer, id, value)?;
            }
            Err(refused) => {
                prop_assert_eq!(Err(refused.why), may);
                prop_assert_eq!(refused.value, value);
            }
        }
        Ok(())
    }

    fn admit_all(&mut self, batch: &[Newcomer]) -> Result<(), TestCaseError> {
        let may = self.may_admit(batch);
        let values = self.ids.len() as u64..;
        let offered: Vec<_> =
            batch.iter().map(|newcomer| newcomer.entry()).zip(values.clone()).collect();
        match self.schedule.admit_all(self.now, offered.clone()) {
            Ok(ids) => {
                prop_assert_eq!((may, ids.len()), (Ok(()), batch.len()));
                for ((newcomer, id), value) in batch.iter().zip(ids).zip(values) {
                    self.admitted(*newcomer, id, value)?;
                }
            }
            Err(refused) => {
                prop_assert_eq!(Err(refused.why), may);
                prop_assert_eq!(refused.value, offered);
            }
        }
        Ok(())
    }

    /// What the model says, once holds that are over have ended: the schedule is told the time first.
    fn may_admit(&mut self, batch: &[Newcomer]) -> Result<(), Refusal> {
        self.model.advance(self.now);
        self.model.may_admit(self.now, batch)
    }

    fn admitted(
        &mut self,
        newcomer: Newcomer,
        id: ItemId,
        value: u64,
    ) -> Result<(), TestCaseError> {
        self.admitted += 1;
        prop_assert_eq!(id.number(), self.admitted);
        self.model.admit(self.now, id, newcomer, value);
        self.ids.push(id);
        Ok(())
    }

    /// The end of a run. Now and then of an item that is not `among` those that can end so: nothing
    /// must come of it.
    fn end(&mut self, op: Op, at: usize, among: Vec<ItemId>) -> Result<(), TestCaseError> {
        let among = if at.is_multiple_of(8) { &self.ids } else { &among };
        let Some(id) = nth(among, at) else { return Ok(()) };
        let Self { schedule, model, now, .. } = self;
        match op {
            Op::Complete { cost, .. } => {
                prop_assert_eq!(schedule.complete(id, cost), model.complete(id));
            }
            Op::Retry { delay, cost, .. } => {
                let until = delay.after(*now);
                let real = schedule.retry(*now, id, until, cost);
                prop_assert_eq!(real, model.retry(*now, id, until));
            }
            Op::Postpone { delay, .. } => {
                let until = delay.after(*now);
                let real = schedule.postpone(*now, id, until);
                prop_assert_eq!(real, model.postpone(*now, id, until));
            }
            Op::Linger { cost, .. } => {
                prop_assert_eq!(schedule.linger(id, cost), model.linger(id));
            }
            Op::Depart { .. } => prop_assert_eq!(schedule.depart(id), model.depart(id)),
            _ => prop_assert_eq!(schedule.revoke(id), model.revoke(id)),
        }
        Ok(())
    }

    fn set(&mut self, op: Op) -> Result<(), TestCaseError> {
        let Self { schedule, model, now, .. } = self;
        match op {
            Op::SetConcurrency(concurrency) => {
                schedule.set_concurrency(concurrency).expect("sound");
                model.set_concurrency(concurrency);
            }
            Op::SetCapacity(capacity) => {
                schedule.set_capacity(capacity).expect("sound");
                model.set_capacity(capacity);
            }
            Op::SetRate(rate) => {
                schedule.set_rate(*now, rate.map(|flow| flow.rate()));
                model.set_rate(*now, rate);
            }
            Op::SetTenant(tenant, bounds) => {
                schedule.set_tenant(*now, tenant, bounds.limits()).expect("sound");
                model.set_tenant(*now, tenant, Some(bounds));
            }
            Op::UnsetTenant(tenant) => {
                let had = schedule.unset_tenant(*now, &tenant);
                prop_assert_eq!(had, model.set_tenant(*now, tenant, None));
            }
            Op::SetEachTenant(bounds) => {
                schedule.set_each_tenant(*now, bounds.limits()).expect("sound");
                model.set_each_tenant(*now, bounds);
            }
            Op::Pause(at) => {
                schedule.pause(REASONS[at]);
                model.pause(REASONS[at]);
            }
            Op::Resume(at) => {
                prop_assert_eq!(schedule.resume(REASONS[at]), model.resume(REASONS[at]));
            }
            _ => unreachable!("not a limit: {op:?}"),
        }
        Ok(())
    }

    /// Everything that can be seen is the same.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        let Self { schedule, model, now, ids, .. } = self;
        let real = schedule.snapshot(*now);
        let real = Counts {
            queued: real.queued,
            queued_by_class: real.queued_by_class,
            running: real.running,
            lingering: real.lingering,
            concurrency: real.concurrency,
            capacity: real.capacity,
            keys: real.keys,
            oldest_wait: real.oldest_wait,
        };
        prop_assert_eq!(real, model.counts(*now));
        let mut tenants: Vec<_> = schedule
            .tenants()
            .map(|of| (of.tenant, of.weight, of.queued_by_class, of.running, of.served))
            .collect();
        tenants.sort_unstable();
        let known: Vec<u8> = tenants.iter().map(|tenant| tenant.0).collect();
        prop_assert_eq!(tenants, model.tenants(&known));
        let waiting = model.waiting();
        let same = schedule
            .waiting()
            .map(|at| (at.id, at.class, at.since, at.again, *at.value))
            .eq(waiting.iter().map(|(i, since)| (i.id, i.class, *since, i.again, i.value)));
        prop_assert!(same, "other items wait");
        for id in ids.iter().rev().take(24) {
            prop_assert_eq!(schedule.why(*now, *id), model.why(*now, *id));
        }
        Ok(())
    }
}
