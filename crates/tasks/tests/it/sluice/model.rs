//! Random histories of a sluice beside a plain list: nothing is lost, no change goes unnoticed.

use std::pin::Pin;

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_tasks::{Entry, ItemId, KeyHold, Pause, Refusal, Sluice, TenantLimits, Turn, Why};
use tokio::time::Instant;

use super::sluice;
use crate::probe::{ByHand, ms, settle};

type Key = Option<u8>;

const REASONS: [&str; 2] = ["memory", "disk"];

#[derive(Clone, Debug)]
enum Op {
    Admit(u8, Key),
    AdmitAll(u8, Key, u8),
    /// Somebody starts to wait for the next, looks again, or gives up.
    Wait,
    Look(Index),
    GiveUp(Index),
    TryNext,
    /// What is out ends in one of these ways.
    Finish(Index),
    Retry(Index, Option<u64>),
    Postpone(Index, u64),
    Linger(Index),
    /// The same, and whoever ends it takes the next.
    FinishAndNext(Index),
    LingerAndNext(Index),
    /// Not done.
    Drop(Index),
    LetGo(Index),
    Withdraw(Index),
    Release(Index),
    Resize(u32, u32),
    Cap(u8, u32),
    Pause,
    Resume(Index),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = any::<Index>;
    let (tenant, key) = (0..3u8, prop::option::of(0..3u8));
    let op = prop_oneof![
        8 => (tenant.clone(), key.clone()).prop_map(|(tenant, key)| Op::Admit(tenant, key)),
        2 => (tenant.clone(), key, 0..5u8).prop_map(|(tenant, key, n)| Op::AdmitAll(tenant, key, n)),
        4 => Just(Op::Wait),
        6 => at().prop_map(Op::Look),
        2 => at().prop_map(Op::GiveUp),
        4 => Just(Op::TryNext),
        5 => at().prop_map(Op::Finish),
        2 => (at(), prop::option::of(0..50u64)).prop_map(|(at, after)| Op::Retry(at, after)),
        2 => (at(), 0..50u64).prop_map(|(at, after)| Op::Postpone(at, after)),
        2 => at().prop_map(Op::Linger),
        3 => at().prop_map(Op::FinishAndNext),
        1 => at().prop_map(Op::LingerAndNext),
        2 => at().prop_map(Op::Drop),
        1 => Just(Op::Pause),
        2 => at().prop_map(Op::Resume),
        3 => at().prop_map(Op::LetGo),
        2 => at().prop_map(Op::Withdraw),
        2 => at().prop_map(Op::Release),
        1 => (1..5u32, 1..8u32).prop_map(|(concurrency, capacity)| Op::Resize(concurrency, capacity)),
        1 => (tenant, 1..3u32).prop_map(|(tenant, cap)| Op::Cap(tenant, cap)),
        2 => (0..30u64).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 0..150)
}

struct Item {
    number: u32,
    id: ItemId,
    key: Key,
    stage: Stage,
}

enum Stage {
    Waits,
    Out(Turn<u32>),
    Held(KeyHold<u32>),
}

type Waits = Pin<Box<dyn Future<Output = Option<Turn<u32>>>>>;

/// Somebody in `next`, and how often it was woken when it last looked.
struct Puller {
    next: ByHand<Waits>,
    answered: u32,
}

struct Beside {
    sluice: Sluice<u32>,
    items: Vec<Item>,
    pullers: Vec<Puller>,
    pauses: Vec<Pause<u32>>,
    dropped: u64,
    offered: u32,
    capacity: u32,
    /// No more than this many run: it falls as they end after a shrink.
    most: u32,
}

/// The nth of those at a stage.
fn among(items: &[Item], at: Index, stage: fn(&Stage) -> bool) -> Option<usize> {
    let those: Vec<usize> = (0..items.len()).filter(|at| stage(&items[*at].stage)).collect();
    (!those.is_empty()).then(|| those[at.index(those.len())])
}

const fn waits(stage: &Stage) -> bool {
    matches!(stage, Stage::Waits)
}

const fn out(stage: &Stage) -> bool {
    matches!(stage, Stage::Out(_))
}

const fn held(stage: &Stage) -> bool {
    matches!(stage, Stage::Held(_))
}

impl Beside {
    fn new() -> Self {
        let (sluice, capacity) = (sluice(2, 6), 6);
        let (items, pullers, pauses) = (Vec::new(), Vec::new(), Vec::new());
        Self { sluice, items, pullers, pauses, dropped: 0, offered: 0, capacity, most: 2 }
    }

    async fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        let many = self.pullers.len();
        match op {
            Op::Admit(tenant, key) => self.admit(tenant, key, 1)?,
            Op::AdmitAll(tenant, key, count) => self.admit(tenant, key, count)?,
            Op::Wait => {
                let sluice = self.sluice.clone();
                let next = ByHand::new(Box::pin(async move { sluice.next().await }) as Waits);
                self.pullers.push(Puller { next, answered: 0 });
                self.look(many)?;
            }
            Op::Look(at) if many > 0 => self.look(at.index(many))?,
            Op::GiveUp(at) if many > 0 => drop(self.pullers.swap_remove(at.index(many))),
            Op::TryNext => {
                if let Some(turn) = self.sluice.try_next() {
                    self.pulled(turn)?;
                }
            }
            Op::Withdraw(at) => self.withdraw(at)?,
            Op::Release(at) => self.release(at)?,
            Op::Resize(concurrency, capacity) => {
                self.sluice.resize(concurrency, capacity).unwrap();
                self.most = self.most.max(concurrency);
                self.capacity = capacity;
            }
            Op::Cap(tenant, cap) => {
                let limits = TenantLimits::new().max_running(cap);
                self.sluice.set_tenant(tenant.to_string(), limits).unwrap();
            }
            Op::Pause => self.pauses.push(self.sluice.pause(REASONS[self.pauses.len() % 2])),
            Op::Resume(at) if !self.pauses.is_empty() => {
                let at = at.index(self.pauses.len());
                drop(self.pauses.swap_remove(at));
            }
            Op::Pass(millis) => {
                tokio::time::advance(ms(millis)).await;
                settle().await;
            }
            op => self.end(op)?,
        }
        self.check()
    }

    fn admit(&mut self, tenant: u8, key: Key, count: u8) -> Result<(), TestCaseError> {
        let queued = self.sluice.stats().gauges.queued;
        let entry = Entry::of(tenant.to_string());
        let entry = key.map_or_else(|| entry.clone(), |key| entry.clone().key(key.to_string()));
        let batch: Vec<_> =
            (self.offered..).take(count.into()).map(|n| (entry.clone(), n)).collect();
        let fits = u32::from(count) <= self.capacity.saturating_sub(queued);
        let admitted = match count {
            1 => match self.sluice.admit(entry, self.offered) {
                Ok(id) => Ok(vec![id]),
                Err(refused) => Err((refused.why, vec![refused.work])),
            },
            _ => self.sluice.admit_all(batch).map_err(|refused| {
                (refused.why, refused.work.into_iter().map(|(_, value)| value).collect())
            }),
        };
        match admitted {
            Ok(ids) => {
                prop_assert!(fits);
                let numbered = (self.offered..).zip(ids);
                let stage = || Stage::Waits;
                self.items.extend(numbered.map(|(number, id)| Item {
                    number,
                    id,
                    key,
                    stage: stage(),
                }));
            }
            Err((why, values)) => {
                prop_assert!(!fits);
                prop_assert_eq!(why, Refusal::QueueFull { queued, capacity: self.capacity });
                let offered: Vec<u32> = (self.offered..).take(count.into()).collect();
                prop_assert_eq!(values, offered);
            }
        }
        self.offered += u32::from(count);
        Ok(())
    }

    fn look(&mut self, at: usize) -> Result<(), TestCaseError> {
        let puller = &mut self.pullers[at];
        match puller.next.poll() {
            Some(turn) => {
                self.pullers.swap_remove(at);
                self.pulled(turn.expect("it is open"))
            }
            None => {
                puller.answered = puller.next.wakes();
                Ok(())
            }
        }
    }

    fn pulled(&mut self, turn: Turn<u32>) -> Result<(), TestCaseError> {
        let number = *turn.value();
        let at = self.items.iter().position(|item| item.number == number).expect("it is here");
        let key = self.items[at].key;
        prop_assert!(waits(&self.items[at].stage) && self.items[at].id == turn.id());
        for other in self.items.iter().filter(|other| key.is_some() && other.key == key) {
            prop_assert!(other.number >= number, "{} goes before {number}", other.number);
            prop_assert!(waits(&other.stage), "{} is still out", other.number);
        }
        self.items[at].stage = Stage::Out(turn);
        Ok(())
    }

    fn end(&mut self, op: Op) -> Result<(), TestCaseError> {
        let (at, stage): (_, fn(&Stage) -> bool) = match op {
            Op::Finish(at) | Op::Retry(at, _) | Op::Postpone(at, _) | Op::Linger(at) => (at, out),
            Op::FinishAndNext(at) | Op::LingerAndNext(at) | Op::Drop(at) => (at, out),
            Op::LetGo(at) => (at, held),
            _ => return Ok(()),
        };
        let Some(at) = among(&self.items, at, stage) else { return Ok(()) };
        let Item { number, id, key, stage } = self.items.swap_remove(at);
        let mut next = None;
        let stage = match (op, stage) {
            (Op::Retry(_, after), Stage::Out(turn)) => {
                let until = after.map(|after| Instant::now() + ms(after));
                prop_assert_eq!(turn.retry_at(until), Ok(id));
                Stage::Waits
            }
            (Op::Postpone(_, after), Stage::Out(turn)) => {
                prop_assert_eq!(turn.postpone(Instant::now() + ms(after)), Ok(id));
                Stage::Waits
            }
            (Op::Linger(_), Stage::Out(turn)) => {
                let (value, hold) = turn.linger();
                prop_assert_eq!(value, number);
                Stage::Held(hold)
            }
            (Op::LingerAndNext(_), Stage::Out(turn)) => {
                let (value, hold, after) = turn.linger_and_next();
                prop_assert_eq!(value, number);
                next = after;
                Stage::Held(hold)
            }
            (Op::FinishAndNext(_), Stage::Out(turn)) => {
                let (value, next) = turn.finish_and_next();
                prop_assert_eq!(value, number);
                return next.map_or(Ok(()), |next| self.pulled(next));
            }
            (Op::Drop(_), Stage::Out(turn)) => {
                drop(turn);
                self.dropped += 1;
                return Ok(());
            }
            (_, Stage::Out(turn)) => {
                prop_assert_eq!(turn.finish(), number);
                return Ok(());
            }
            (_, Stage::Held(hold)) => {
                drop(hold);
                return Ok(());
            }
            (_, Stage::Waits) => unreachable!("it is out"),
        };
        self.items.push(Item { number, id, key, stage });
        next.map_or(Ok(()), |next| self.pulled(next))
    }

    /// Anything may be asked for; only what nobody has pulled is given.
    fn withdraw(&mut self, at: Index) -> Result<(), TestCaseError> {
        if self.items.is_empty() {
            return Ok(());
        }
        let at = at.index(self.items.len());
        let Item { number, id, stage, .. } = &self.items[at];
        let expected = waits(stage).then_some(*number);
        prop_assert_eq!(self.sluice.withdraw(*id), expected);
        if expected.is_some() {
            self.items.swap_remove(at);
        }
        Ok(())
    }

    fn release(&mut self, at: Index) -> Result<(), TestCaseError> {
        if let Some(at) = among(&self.items, at, waits) {
            let id = self.items[at].id;
            let why = self.sluice.why(id).map(|not| not.why);
            let itself = matches!(why, Some(Why::KeyRetrying { head, .. }) if head == id);
            prop_assert_eq!(self.sluice.release(id), itself);
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let gauges = self.sluice.stats().gauges;
        let count = |stage: fn(&Stage) -> bool| {
            self.items.iter().filter(|item| stage(&item.stage)).count() as u32
        };
        let mut may_start = false;
        for item in &self.items {
            let why = self.sluice.why(item.id).expect("it is here").why;
            match &item.stage {
                Stage::Waits => {
                    prop_assert!(why != Why::Running, "nobody pulled {}", item.number);
                    prop_assert!(why != Why::NoWorker || self.pullers.is_empty());
                    may_start |= matches!(why, Why::Ready | Why::NoWorker);
                }
                Stage::Out(_) => prop_assert_eq!(why, Why::Running),
                Stage::Held(_) => prop_assert_eq!(why, Why::Lingering),
            }
            let paused = matches!(why, Why::Paused { .. });
            prop_assert!(!paused || !self.pauses.is_empty());
        }
        prop_assert!(!may_start || self.pauses.is_empty(), "paused");
        prop_assert_eq!(gauges.queued, count(waits));
        prop_assert_eq!(gauges.running, count(out));
        prop_assert!(gauges.running <= self.most, "{} run", gauges.running);
        self.most = gauges.running.max(gauges.limit);
        // One is called, and calls the next when it looks.
        let called = self.pullers.iter().any(|one| one.next.wakes() > one.answered);
        prop_assert!(called || !may_start || self.pullers.is_empty(), "nobody was called");
        for count in [0, 1, 3, u32::MAX] {
            let fits = self.capacity.saturating_sub(gauges.queued) >= count.min(self.capacity);
            prop_assert_eq!(ByHand::new(self.sluice.room_for(count)).poll().is_some(), fits);
        }
        let nothing_is_out = count(out) + count(held) == 0;
        prop_assert_eq!(ByHand::new(self.sluice.emptied()).poll().is_some(), nothing_is_out);
        Ok(())
    }
}

async fn history(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut beside = Beside::new();
    for op in ops {
        beside.apply(op).await?;
    }
    let Beside { sluice, mut items, mut pullers, dropped, .. } = beside;
    items.sort_unstable_by_key(|item| item.number);
    let left: Vec<u32> =
        items.iter().filter(|item| waits(&item.stage)).map(|item| item.number).collect();
    prop_assert_eq!(sluice.close(), left);
    prop_assert!(pullers.iter_mut().all(|puller| matches!(puller.next.poll(), Some(None))));
    let out_at_the_end = items.iter().filter(|item| out(&item.stage)).count() as u64;
    drop(items);
    prop_assert!(ByHand::new(sluice.emptied()).poll().is_some());
    let stats = sluice.stats();
    prop_assert_eq!((stats.gauges.running, stats.gauges.queued), (0, 0));
    prop_assert_eq!(stats.dropped, dropped + out_at_the_end);
    let ended = stats.completed + stats.dropped + stats.cancelled + stats.handed_back;
    prop_assert!(stats.admitted <= ended, "{stats:?}");
    prop_assert!(sluice.tenants().is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_its_values_and_ends_at_zero(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(history(ops))?;
    }
}
