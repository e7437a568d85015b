//! Random histories at the door beside a plain list: the first, and only the first, is let in.

use std::pin::Pin;

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_tasks::{Admitted, Context, Entry, Refused, Sluice, Turn};
use tokio::time::Instant;

use super::sluice;
use crate::probe::ByHand;

#[derive(Clone, Debug)]
enum Op {
    Enter,
    /// Polled, called in or not.
    Poll(Index),
    /// Gone from the door, from the queue, or by the end of its context.
    Leave(Index),
    Cancel(Index),
    GiveUp(Index),
    /// The next of those let in takes its turn; one that runs ends, or waits again.
    Run(Index),
    Finish(Index),
    Again(Index),
    /// One that does not wait.
    Admit,
    Resize(u32, u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let at = any::<Index>;
    let op = prop_oneof![
        8 => Just(Op::Enter),
        6 => at().prop_map(Op::Poll),
        2 => at().prop_map(Op::Leave),
        1 => at().prop_map(Op::Cancel),
        1 => at().prop_map(Op::GiveUp),
        5 => at().prop_map(Op::Run),
        4 => at().prop_map(Op::Finish),
        1 => at().prop_map(Op::Again),
        1 => Just(Op::Admit),
        1 => (1..3u32, 1..4u32).prop_map(|(concurrency, capacity)| Op::Resize(concurrency, capacity)),
    ];
    prop::collection::vec(op, 0..120)
}

type Enters = Pin<Box<dyn Future<Output = Result<Admitted<u32>, Refused<u32>>>>>;

struct AtDoor {
    number: u32,
    enters: ByHand<Enters>,
    cx: Context,
    answered: u32,
}

struct Beside {
    sluice: Sluice<u32>,
    /// In the order they came.
    door: Vec<AtDoor>,
    inside: Vec<Admitted<u32>>,
    running: Vec<Turn<u32>>,
    offered: u32,
}

impl Beside {
    fn has_room(&self) -> bool {
        self.sluice.stats().gauges.queued < self.sluice.capacity()
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        let (at_door, inside, running) = (self.door.len(), self.inside.len(), self.running.len());
        match op {
            Op::Enter => self.enter()?,
            Op::Poll(at) if at_door > 0 => self.poll(at.index(at_door))?,
            Op::Leave(at) if at_door > 0 => drop(self.door.remove(at.index(at_door))),
            Op::Cancel(at) if at_door > 0 => {
                // Called in before, it is let in, and would hear of its end when it wants its turn.
                let mut leaves = self.door.remove(at.index(at_door));
                leaves.cx.cancel();
                match leaves.enters.poll() {
                    Some(Err(refused)) => prop_assert_eq!(refused.work, leaves.number),
                    Some(Ok(admitted)) => drop(admitted),
                    None => prop_assert!(false, "its context has ended"),
                }
            }
            Op::GiveUp(at) if inside > 0 => drop(self.inside.swap_remove(at.index(inside))),
            Op::Run(at) if inside > 0 => {
                let id = self.inside[at.index(inside)].id().expect("it is open");
                let why = self.sluice.why(id).expect("it is here").why;
                if why == sluicegate_tasks::Why::Running {
                    let admitted = self.inside.swap_remove(at.index(inside));
                    let turn = ByHand::new(admitted.turn()).poll().expect("it is its turn");
                    self.running.push(turn.expect("it is open"));
                }
            }
            Op::Finish(at) if running > 0 => {
                self.running.swap_remove(at.index(running)).finish();
            }
            Op::Again(at) if running > 0 => {
                let turn = self.running.swap_remove(at.index(running));
                self.inside.push(turn.wait_again(Instant::now()));
            }
            Op::Admit => {
                let fits = self.has_room() && self.door.is_empty();
                let admitted = self.sluice.admit(Entry::of("value"), 0);
                prop_assert_eq!(admitted.is_ok(), fits, "not past those who wait");
                if let Ok(id) = admitted {
                    prop_assert_eq!(self.sluice.withdraw(id), Some(0));
                }
            }
            Op::Resize(concurrency, capacity) => {
                self.sluice.resize(concurrency, capacity).unwrap();
            }
            _ => {}
        }
        self.check()
    }

    fn enter(&mut self) -> Result<(), TestCaseError> {
        let (sluice, cx, number) = (self.sluice.clone(), Context::new(), self.offered);
        self.offered += 1;
        let own = cx.clone();
        let entering = async move { sluice.enter(&own, Entry::of("caller"), number).await };
        let enters = ByHand::new(Box::pin(entering) as Enters);
        self.door.push(AtDoor { number, enters, cx, answered: 0 });
        self.poll(self.door.len() - 1)
    }

    fn poll(&mut self, at: usize) -> Result<(), TestCaseError> {
        let may_enter = at == 0 && self.has_room();
        match self.door[at].enters.poll() {
            None => {
                prop_assert!(!may_enter, "there was room, and it was the first");
                self.door[at].answered = self.door[at].enters.wakes();
            }
            Some(entered) => {
                prop_assert!(may_enter, "it was number {at} at the door");
                let AtDoor { number, .. } = self.door.remove(at);
                let admitted = entered.expect("only the room was missing");
                prop_assert_eq!(*admitted.value(), number);
                self.inside.push(admitted);
            }
        }
        Ok(())
    }

    /// While there is room the first has been called and has not looked yet.
    fn check(&self) -> Result<(), TestCaseError> {
        if let Some(first) = self.door.first() {
            let called = first.enters.wakes() > first.answered;
            prop_assert!(called || !self.has_room(), "{} was not called", first.number);
        }
        let gauges = self.sluice.stats().gauges;
        let let_in = self.inside.len() + self.running.len();
        prop_assert_eq!((gauges.queued + gauges.running) as usize, let_in);
        Ok(())
    }
}

async fn history(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let (door, inside, running) = (Vec::new(), Vec::new(), Vec::new());
    let mut beside = Beside { sluice: sluice(1, 2), door, inside, running, offered: 0 };
    for op in ops {
        beside.apply(op)?;
    }
    let Beside { sluice, mut door, inside, running, .. } = beside;
    prop_assert!(sluice.close().is_empty());
    prop_assert!(door.iter_mut().all(|waits| matches!(waits.enters.poll(), Some(Err(_)))));
    drop((inside, running));
    let gauges = sluice.stats().gauges;
    prop_assert_eq!((gauges.queued, gauges.running), (0, 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_lets_in_the_first_and_only_the_first(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(history(ops))?;
    }
}
