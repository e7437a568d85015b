//! The oracles of classes and of fairness: who gets how much while others stand in line too.

use std::collections::VecDeque;

use sluicegate_schedule::Class;

use super::view::{InLine, Seen};
use super::{Broken, hold};

/// Per class: dispatches in a row that it could have had and did not get.
#[derive(Debug)]
pub(super) struct Classes {
    period: u32,
    passed_over: [u32; Class::COUNT],
    /// The same before each of the last starts, and whether that was taken back.
    before: VecDeque<(u64, [u32; Class::COUNT], bool)>,
}

impl Classes {
    pub(super) const fn new(period: u32) -> Self {
        Self { period, passed_over: [0; Class::COUNT], before: VecDeque::new() }
    }

    pub(super) fn start(&mut self, item: &Seen, in_line: &InLine) -> Result<(), Broken> {
        let started = item.class;
        self.before.push_back((item.number, self.passed_over, false));
        if self.before.len() > REMEMBERED {
            self.before.pop_front();
        }
        for class in Class::ALL {
            let passed_over = &mut self.passed_over[class as usize];
            let could = in_line[class as usize].contains(&true);
            *passed_over = if could && class != started { *passed_over + 1 } else { 0 };
            let (count, period) = (*passed_over, self.period);
            hold("classes", count < period, || format!("{class:?} got none of {count} starts"))?;
        }
        Ok(())
    }

    /// A start did not run: with all that started since it was none.
    pub(super) fn take_back(&mut self, number: u64) {
        if let Some(start) = self.before.iter_mut().rev().find(|(item, ..)| *item == number) {
            start.2 = true;
        }
        while let Some((_, before, _)) = self.before.pop_back_if(|(_, _, taken_back)| *taken_back) {
            self.passed_over = before;
        }
    }

    /// What waits after a fact; a class of which nothing does is owed nothing. By a start that is so
    /// only until it is taken back.
    pub(super) fn line(&mut self, waits: impl Fn(Class) -> bool, by_start: bool) {
        for class in Class::ALL.into_iter().filter(|class| !waits(*class)) {
            self.passed_over[class as usize] = 0;
            if !by_start {
                self.before.iter_mut().for_each(|(_, before, _)| before[class as usize] = 0);
            }
        }
    }
}

/// So many starts are remembered.
const REMEMBERED: usize = 64;

/// A twelfth of a unit of cost at weight 1: exact for the weights 1 to 4.
const TWELFTH: i64 = 12;

/// What each tenant was given, and for each two of them how far apart they were when they last began
/// to stand in line together.
#[derive(Debug)]
pub(super) struct Fairness {
    tenants: usize,
    most_apart: i64,
    given: [Vec<i64>; Class::COUNT],
    /// Per class, for each pair: since when both stand in line, what the one was ahead by.
    ahead: [Vec<Option<i64>>; Class::COUNT],
    widest: i64,
}

impl Fairness {
    pub(super) fn new(tenants: usize, most_apart: i64) -> Self {
        Self {
            tenants,
            most_apart,
            given: [(); Class::COUNT].map(|()| vec![0; tenants]),
            ahead: [(); Class::COUNT].map(|()| vec![None; tenants * tenants]),
            widest: 0,
        }
    }

    pub(super) const fn widest(&self) -> i64 {
        self.widest / TWELFTH
    }

    /// So much more, or less, was given.
    pub(super) fn charge(&mut self, item: &Seen, weight: u32, cost: i64) {
        self.given[item.class as usize][item.tenant] += cost * TWELFTH / i64::from(weight);
    }

    /// A tenant's limits changed: what it was given before is not to be compared any more.
    pub(super) fn forget(&mut self, tenant: usize) {
        for ahead in &mut self.ahead {
            for other in 0..self.tenants {
                ahead[tenant * self.tenants + other] = None;
                ahead[other * self.tenants + tenant] = None;
            }
        }
    }

    /// Who stands in line from here on.
    pub(super) fn line(&mut self, in_line: &InLine) {
        for (class, here) in in_line.iter().enumerate() {
            for one in 0..self.tenants {
                for other in 0..self.tenants {
                    let both = here[one] && here[other];
                    let ahead = &mut self.ahead[class][one * self.tenants + other];
                    let now = self.given[class][one] - self.given[class][other];
                    *ahead = if both { Some(ahead.unwrap_or(now)) } else { None };
                }
            }
        }
    }

    /// One that started, and was charged for it, has not run away from those it left in line.
    pub(super) fn start(&mut self, item: &Seen, in_line: &InLine) -> Result<(), Broken> {
        let class = item.class as usize;
        for other in (0..self.tenants).filter(|other| in_line[class][*other]) {
            let pair = item.tenant * self.tenants + other;
            let Some(before) = self.ahead[class][pair] else { continue };
            let now = self.given[class][item.tenant] - self.given[class][other];
            let apart = now - before;
            self.widest = self.widest.max(apart);
            hold("fairness", apart <= self.most_apart * TWELFTH, || {
                let (apart, most) = (apart / TWELFTH, self.most_apart);
                format!("tenant {} is {apart} ahead of {other}, of {most}", item.tenant)
            })?;
        }
        Ok(())
    }
}
