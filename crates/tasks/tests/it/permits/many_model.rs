//! Random histories of guards of all sizes beside a model too simple to be wrong.
//!
//! `docs/rules.md#permit-5`.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_tasks::{AcquireManyError, Context, OwnedManyPermits, Permits};

use crate::probe::ByHand;

#[derive(Clone, Debug)]
enum Op {
    Try(u32),
    Acquire(u32),
    Poll(Index),
    Leave(Index),
    GiveBack(Index),
    Resize(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        2 => (1u32..5).prop_map(Op::Try),
        4 => (1u32..5).prop_map(Op::Acquire),
        3 => any::<Index>().prop_map(Op::Poll),
        2 => any::<Index>().prop_map(Op::Leave),
        4 => any::<Index>().prop_map(Op::GiveBack),
        2 => (1u32..6).prop_map(Op::Resize),
    ];
    prop::collection::vec(op, 0..120)
}

type Acquired = Result<OwnedManyPermits, AcquireManyError>;

/// One in line: how many it wants and has, and the limit that turned it away.
struct Waiter {
    wait: ByHand<Pin<Box<dyn Future<Output = Acquired>>>>,
    wanted: u32,
    got: u32,
    turned_away: Option<u32>,
}

impl Waiter {
    const fn waits(&self) -> bool {
        self.got < self.wanted && self.turned_away.is_none()
    }
}

struct Beside {
    permits: Arc<Permits>,
    held: Vec<OwnedManyPermits>,
    line: VecDeque<Waiter>,
    limit: u32,
    in_use: u32,
}

impl Beside {
    fn free(&self) -> u32 {
        self.limit.saturating_sub(self.in_use)
    }

    fn is_free_for(&self, wanted: u32) -> bool {
        self.free() >= wanted && !self.line.iter().any(Waiter::waits)
    }

    /// In order, and the first that does not get all it wants keeps what it got.
    fn grant(&mut self) {
        for at in 0..self.line.len() {
            let free = self.free();
            let waiter = &mut self.line[at];
            if waiter.waits() {
                let more = free.min(waiter.wanted - waiter.got);
                waiter.got += more;
                self.in_use += more;
                if waiter.waits() {
                    break;
                }
            }
        }
    }

    fn come_back(&mut self, count: u32) {
        self.in_use -= count;
        self.grant();
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Try(wanted) => match self.permits.try_acquire_many_owned(wanted) {
                Ok(permits) => {
                    prop_assert!(self.is_free_for(wanted));
                    self.in_use += wanted;
                    self.held.push(permits);
                }
                Err(AcquireManyError::TooMany { .. }) => prop_assert!(wanted > self.limit),
                Err(_) => prop_assert!(wanted <= self.limit && !self.is_free_for(wanted)),
            },
            Op::Acquire(wanted) => self.acquire(wanted)?,
            Op::Poll(at) if !self.line.is_empty() => self.poll(at.index(self.line.len()))?,
            Op::Leave(at) if !self.line.is_empty() => {
                let gone = self.line.remove(at.index(self.line.len())).unwrap();
                let got = if gone.turned_away.is_some() { 0 } else { gone.got };
                drop(gone);
                self.come_back(got);
            }
            Op::GiveBack(at) if !self.held.is_empty() => {
                let gone = self.held.remove(at.index(self.held.len()));
                let count = gone.count();
                drop(gone);
                self.come_back(count);
            }
            Op::Resize(limit) => {
                self.permits.resize(limit).unwrap();
                self.limit = limit;
                let too_large = |one: &&mut Waiter| one.waits() && one.wanted > limit;
                for waiter in self.line.iter_mut().filter(too_large) {
                    waiter.turned_away = Some(limit);
                    self.in_use -= waiter.got;
                }
                self.grant();
            }
            _ => {}
        }
        self.check()
    }

    fn acquire(&mut self, wanted: u32) -> Result<(), TestCaseError> {
        let permits = Arc::clone(&self.permits);
        let acquire =
            Box::pin(async move { permits.acquire_many_owned(&Context::new(), wanted).await });
        let mut wait = ByHand::new(acquire as Pin<Box<dyn Future<Output = Acquired>>>);
        match wait.poll() {
            Some(Ok(permits)) => {
                prop_assert!(self.is_free_for(wanted));
                self.in_use += wanted;
                self.held.push(permits);
            }
            Some(Err(why)) => {
                prop_assert_eq!(why, AcquireManyError::TooMany { wanted, limit: self.limit });
                prop_assert!(wanted > self.limit);
            }
            None => {
                prop_assert!(wanted <= self.limit && !self.is_free_for(wanted));
                self.line.push_back(Waiter { wait, wanted, got: 0, turned_away: None });
                self.grant();
            }
        }
        Ok(())
    }

    fn poll(&mut self, at: usize) -> Result<(), TestCaseError> {
        let waiter = &mut self.line[at];
        let (wanted, waits, turned_away) = (waiter.wanted, waiter.waits(), waiter.turned_away);
        match waiter.wait.poll() {
            None => prop_assert!(waits),
            Some(Ok(permits)) => {
                prop_assert!(!waits && turned_away.is_none(), "out of order");
                prop_assert_eq!(permits.count(), wanted);
                self.held.push(permits);
                self.line.remove(at);
            }
            Some(Err(why)) => {
                let limit = turned_away.unwrap_or(0);
                prop_assert_eq!(why, AcquireManyError::TooMany { wanted, limit });
                self.line.remove(at);
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!((self.permits.in_use(), self.permits.limit()), (self.in_use, self.limit));
        let waiting = self.line.iter().filter(|one| one.waits()).count();
        prop_assert_eq!(self.permits.waiting() as usize, waiting);
        for waiter in &self.line {
            prop_assert_eq!(waiter.wait.wakes() > 0, !waiter.waits(), "woken when it is over only");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_of_all_sizes_agrees_with_the_model(limit in 1u32..5, ops in ops()) {
        let permits = Arc::new(Permits::new(limit).unwrap());
        let own = Arc::clone(&permits);
        let (held, line) = (Vec::new(), VecDeque::new());
        let mut beside = Beside { permits: own, held, line, limit, in_use: 0 };
        for op in ops {
            beside.apply(op)?;
        }
        drop(beside);
        prop_assert_eq!((permits.in_use(), permits.waiting()), (0, 0));
        prop_assert!(permits.try_acquire().is_ok());
    }
}
