//! Random histories of a sluice beside plain counts: no place is lost, no change goes unnoticed.

use std::collections::VecDeque;
use std::pin::Pin;

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_tasks::{
    Admitted, Context, Entry, ItemId, KeyHold, Pause, Refusal, Refused, Sluice, TenantLimits, Turn,
    Why,
};
use tokio::time::Instant;

use crate::probe::{ByHand, ms, settle};
use crate::sluice::enter;

const KEYS: usize = 3;
const CAPACITY: u32 = 6;

#[derive(Clone, Debug)]
enum Op {
    Admit {
        tenant: u8,
        key: Option<usize>,
    },
    /// Its turn is awaited, polled, or over, by what stage it is at.
    MoveOn(Index),
    Drop(Index),
    Retry(Index, u64),
    /// Over at a cost of its own, or with its key kept for a while.
    FinishAt(Index, u32),
    Linger(Index),
    LetGo,
    Pause,
    Resume,
    Resize(u32),
    Cap(u8, u32),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let admit = (0..3u8, prop::option::of(0..KEYS));
    let op = prop_oneof![
        6 => admit.prop_map(|(tenant, key)| Op::Admit { tenant, key }),
        9 => any::<Index>().prop_map(Op::MoveOn),
        2 => any::<Index>().prop_map(Op::Drop),
        3 => (any::<Index>(), 0..50u64).prop_map(|(at, after)| Op::Retry(at, after)),
        2 => (any::<Index>(), 0..90u32).prop_map(|(at, cost)| Op::FinishAt(at, cost)),
        2 => any::<Index>().prop_map(Op::Linger),
        2 => Just(Op::LetGo),
        1 => Just(Op::Pause),
        2 => Just(Op::Resume),
        1 => (1..5u32).prop_map(Op::Resize),
        1 => (0..3u8, 1..3u32).prop_map(|(tenant, cap)| Op::Cap(tenant, cap)),
        2 => (0..30u64).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 0..150)
}

struct Item {
    number: u32,
    id: ItemId,
    key: Option<usize>,
    stage: Stage,
}

enum Stage {
    Admitted(Admitted<u32>),
    Waits(Waits),
    Runs(Turn<u32>),
}

type Waits = ByHand<Pin<Box<dyn Future<Output = Result<Turn<u32>, Refused<u32>>>>>>;

struct Beside {
    sluice: Sluice<u32>,
    items: Vec<Item>,
    /// Keys that are kept, by the number of the item that keeps each, and its key.
    holds: Vec<(KeyHold<u32>, u32, Option<usize>)>,
    pauses: Vec<Pause<u32>>,
    /// The numbers of each key's items, in the order in which they must come.
    keys: [VecDeque<u32>; KEYS],
    offered: u32,
    limit: u32,
    /// No more than this many run: it falls as they end after a shrink.
    most: u32,
}

impl Beside {
    fn new() -> Self {
        let sluice = Sluice::builder("sluice", 2, CAPACITY).build().unwrap();
        let (items, holds, pauses) = (Vec::new(), Vec::new(), Vec::new());
        let keys = Default::default();
        Self { sluice, items, holds, pauses, keys, offered: 0, limit: 2, most: 2 }
    }

    async fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        let many = self.items.len();
        match op {
            Op::Admit { tenant, key } => self.admit(tenant, key)?,
            Op::MoveOn(at) if many > 0 => self.move_on(at.index(many))?,
            Op::Drop(at) if many > 0 => self.gone(at.index(many)),
            Op::Retry(at, after) if many > 0 => self.retry(at.index(many), after),
            Op::FinishAt(at, cost) if many > 0 => self.end(at.index(many), Some(cost))?,
            Op::Linger(at) if many > 0 => self.end(at.index(many), None)?,
            Op::LetGo => {
                if let Some((hold, number, key)) = self.holds.pop() {
                    self.forget(number, key);
                    drop(hold);
                }
            }
            Op::Pause => self.pauses.push(self.sluice.pause("memory")),
            Op::Resume => drop(self.pauses.pop()),
            Op::Resize(limit) => {
                self.sluice.resize(limit, CAPACITY).unwrap();
                self.limit = limit;
            }
            Op::Cap(tenant, cap) => {
                let limits = TenantLimits::new().max_running(cap);
                self.sluice.set_tenant(tenant.to_string(), limits).unwrap();
            }
            Op::Pass(millis) => {
                tokio::time::advance(ms(millis)).await;
                settle().await;
            }
            _ => {}
        }
        self.check()
    }

    fn admit(&mut self, tenant: u8, key: Option<usize>) -> Result<(), TestCaseError> {
        let queued = self.sluice.stats().gauges.queued;
        let (number, entry) = (self.offered, Entry::of(tenant.to_string()));
        self.offered += 1;
        let entry = match key {
            Some(key) => entry.key(key.to_string()),
            None => entry,
        };
        match enter(&self.sluice, &Context::new(), entry, number) {
            Ok(admitted) => {
                prop_assert!(queued < CAPACITY);
                if let Some(key) = key {
                    self.keys[key].push_back(number);
                }
                let id = admitted.id().unwrap();
                self.items.push(Item { number, id, key, stage: Stage::Admitted(admitted) });
            }
            Err(refused) => {
                prop_assert!(queued >= CAPACITY);
                let full = Refusal::QueueFull { queued, capacity: CAPACITY };
                prop_assert_eq!((refused.why, refused.work), (full, number));
            }
        }
        Ok(())
    }

    fn move_on(&mut self, at: usize) -> Result<(), TestCaseError> {
        let Item { number, id, key, stage } = self.items.swap_remove(at);
        let mut waits: Waits = match stage {
            Stage::Runs(turn) => {
                prop_assert_eq!(turn.finish(), number);
                self.forget(number, key);
                return Ok(());
            }
            Stage::Admitted(admitted) => ByHand::new(Box::pin(admitted.turn())),
            Stage::Waits(waits) => waits,
        };
        let stage = match waits.poll() {
            None => Stage::Waits(waits),
            Some(turn) => {
                if let Some(key) = key {
                    prop_assert_eq!(self.keys[key].front(), Some(&number), "out of order");
                }
                Stage::Runs(turn.unwrap())
            }
        };
        self.items.push(Item { number, id, key, stage });
        Ok(())
    }

    /// Ends a turn, at a cost or with its key kept. What does not run is left as it is.
    fn end(&mut self, at: usize, cost: Option<u32>) -> Result<(), TestCaseError> {
        let Item { number, id, key, stage } = self.items.swap_remove(at);
        match (stage, cost) {
            (Stage::Runs(turn), Some(cost)) => {
                prop_assert_eq!(turn.finish_with_cost(cost), number);
                self.forget(number, key);
            }
            (Stage::Runs(turn), None) => {
                let (value, hold) = turn.linger();
                prop_assert_eq!(value, number);
                self.holds.push((hold, number, key));
            }
            (stage, _) => self.items.push(Item { number, id, key, stage }),
        }
        Ok(())
    }

    fn gone(&mut self, at: usize) {
        let Item { number, key, stage, .. } = self.items.swap_remove(at);
        drop(stage);
        self.forget(number, key);
    }

    fn retry(&mut self, at: usize, after: u64) {
        let item = self.items.swap_remove(at);
        let stage = match item.stage {
            Stage::Runs(turn) => Stage::Admitted(turn.wait_again(Instant::now() + ms(after))),
            other => other,
        };
        self.items.push(Item { stage, ..item });
    }

    fn forget(&mut self, number: u32, key: Option<usize>) {
        if let Some(key) = key {
            self.keys[key].retain(|one| *one != number);
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let gauges = self.sluice.stats().gauges;
        prop_assert_eq!((gauges.running + gauges.queued) as usize, self.items.len());
        prop_assert!(gauges.running <= self.limit.max(self.most));
        self.most = gauges.running.max(self.limit);
        let mut running = 0;
        for item in &self.items {
            let why = self.sluice.why(item.id).unwrap().why;
            prop_assert!(why != Why::Ready, "{} could run and was not told", item.number);
            running += u32::from(why == Why::Running);
            let paused = matches!(why, Why::Paused { .. });
            prop_assert!(!paused || !self.pauses.is_empty());
            match &item.stage {
                Stage::Admitted(_) => {}
                Stage::Waits(waits) => {
                    prop_assert_eq!(waits.wakes(), u32::from(why == Why::Running));
                }
                Stage::Runs(_) => prop_assert_eq!(why, Why::Running),
            }
        }
        prop_assert_eq!(running, gauges.running);
        let tenants = self.sluice.tenants();
        let sum = tenants.iter().fold((0, 0), |(r, q), one| (r + one.running, q + one.queued));
        prop_assert_eq!(sum, (gauges.running, gauges.queued));
        Ok(())
    }
}

async fn history(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut beside = Beside::new();
    for op in ops {
        beside.apply(op).await?;
    }
    let sluice = beside.sluice.clone();
    drop(beside);
    let stats = sluice.stats();
    prop_assert_eq!((stats.gauges.running, stats.gauges.queued), (0, 0));
    prop_assert_eq!(stats.started, stats.completed + stats.dropped);
    prop_assert!(sluice.tenants().is_empty());
    prop_assert!(sluice.drain(Instant::now()).await.is_clean());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_its_counts_and_ends_at_zero(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(history(ops))?;
    }
}
