//! Random histories of permits beside a model too simple to be wrong.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_tasks::{AtLimit, Context, Interrupt, OwnedPermit, Permits};

use crate::probe::ByHand;

#[derive(Clone, Debug)]
enum Op {
    Try,
    Acquire,
    Poll(Index),
    Leave(Index),
    Cancel(Index),
    GiveBack(Index),
    Resize(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        2 => Just(Op::Try),
        4 => Just(Op::Acquire),
        3 => any::<Index>().prop_map(Op::Poll),
        2 => any::<Index>().prop_map(Op::Leave),
        1 => any::<Index>().prop_map(Op::Cancel),
        4 => any::<Index>().prop_map(Op::GiveBack),
        1 => (1u32..6).prop_map(Op::Resize),
    ];
    prop::collection::vec(op, 0..120)
}

type Wait = ByHand<Pin<Box<dyn Future<Output = Result<OwnedPermit, Interrupt>>>>>;

struct Waiter {
    number: u32,
    cx: Context,
    wait: Wait,
}

/// The permits under test, and what they should be.
struct Beside {
    permits: Arc<Permits>,
    held: Vec<OwnedPermit>,
    waiters: Vec<Waiter>,
    arrived: u32,
    limit: u32,
    in_use: u32,
    line: VecDeque<u32>,
    granted: Vec<u32>,
    /// No more than this many are in use: it falls as they come back after a shrink.
    most: u32,
}

impl Beside {
    fn new(limit: u32) -> Self {
        Self {
            permits: Arc::new(Permits::new(limit).unwrap()),
            held: Vec::new(),
            waiters: Vec::new(),
            arrived: 0,
            limit,
            in_use: 0,
            line: VecDeque::new(),
            granted: Vec::new(),
            most: limit,
        }
    }

    fn is_free(&self) -> bool {
        self.line.is_empty() && self.in_use < self.limit
    }

    fn grant(&mut self) {
        while self.in_use < self.limit
            && let Some(first) = self.line.pop_front()
        {
            self.in_use += 1;
            self.granted.push(first);
        }
    }

    fn come_back(&mut self) {
        self.in_use -= 1;
        self.grant();
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Try => match self.permits.try_acquire_owned() {
                Ok(permit) => {
                    prop_assert!(self.is_free());
                    self.in_use += 1;
                    self.held.push(permit);
                }
                Err(refused) => {
                    let (limit, in_use) = (self.limit, self.in_use);
                    prop_assert!(!self.is_free());
                    prop_assert_eq!(refused, AtLimit { limit, in_use });
                }
            },
            Op::Acquire => self.acquire()?,
            Op::Poll(at) if !self.waiters.is_empty() => self.poll(at.index(self.waiters.len()))?,
            Op::Leave(at) if !self.waiters.is_empty() => {
                let waiter = self.waiters.remove(at.index(self.waiters.len()));
                self.forget(waiter.number);
            }
            Op::Cancel(at) if !self.waiters.is_empty() => {
                let at = at.index(self.waiters.len());
                self.waiters[at].cx.cancel();
                self.poll(at)?;
            }
            Op::GiveBack(at) if !self.held.is_empty() => {
                drop(self.held.remove(at.index(self.held.len())));
                self.come_back();
            }
            Op::Resize(limit) => {
                self.permits.resize(limit).unwrap();
                self.limit = limit;
                self.grant();
            }
            _ => {}
        }
        self.check()
    }

    fn acquire(&mut self) -> Result<(), TestCaseError> {
        let (cx, number) = (Context::new(), self.arrived);
        self.arrived += 1;
        let (permits, under) = (Arc::clone(&self.permits), cx.clone());
        let mut wait: Wait =
            ByHand::new(Box::pin(async move { permits.acquire_owned(&under).await }));
        match wait.poll() {
            Some(permit) => {
                prop_assert!(self.is_free());
                self.in_use += 1;
                self.held.push(permit.unwrap());
            }
            None => {
                prop_assert!(!self.is_free());
                self.line.push_back(number);
                self.waiters.push(Waiter { number, cx, wait });
            }
        }
        Ok(())
    }

    fn poll(&mut self, at: usize) -> Result<(), TestCaseError> {
        let number = self.waiters[at].number;
        let granted = self.granted.contains(&number);
        match self.waiters[at].wait.poll() {
            None => prop_assert!(!granted),
            Some(Ok(permit)) => {
                prop_assert!(granted, "out of order");
                self.granted.retain(|one| *one != number);
                self.waiters.remove(at);
                self.held.push(permit);
            }
            Some(Err(why)) => {
                prop_assert_eq!(why, Interrupt::Cancelled);
                prop_assert!(self.waiters[at].cx.is_cancelled());
                self.waiters.remove(at);
                self.forget(number);
            }
        }
        Ok(())
    }

    fn forget(&mut self, number: u32) {
        if self.granted.contains(&number) {
            self.granted.retain(|one| *one != number);
            self.come_back();
        } else {
            self.line.retain(|one| *one != number);
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.permits.in_use(), self.in_use);
        prop_assert_eq!(self.permits.limit(), self.limit);
        prop_assert_eq!(self.permits.waiting() as usize, self.line.len());
        prop_assert!(self.in_use <= self.limit.max(self.most), "more than ever may");
        self.most = self.in_use.max(self.limit);
        for waiter in &self.waiters {
            let granted = self.granted.contains(&waiter.number);
            let woken = waiter.wait.wakes() > 0;
            prop_assert_eq!(granted && !waiter.cx.is_cancelled(), woken, "woken when granted only");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_agrees_with_the_model_and_ends_at_zero(limit in 1u32..5, ops in ops()) {
        let mut beside = Beside::new(limit);
        for op in ops {
            beside.apply(op)?;
        }
        let permits = Arc::clone(&beside.permits);
        drop(beside);
        prop_assert_eq!((permits.in_use(), permits.waiting()), (0, 0));
        prop_assert!(permits.try_acquire().is_ok());
    }
}
