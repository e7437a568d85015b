//! Who watches: from the facts of a run, what must not be.
//!
//! | oracle | must not be |
//! |---|---|
//! | limits | more running, or more let in, than the limits allow |
//! | order | two of a key at once, or one before its turn or its time |
//! | longest | one of a tenant's heads before another of its kind that was ready for longer |
//! | ends | an item that ends twice, or never |
//! | classes | a class that gets none of a whole period though it could start something |
//! | fairness | two tenants in line together that drift apart |
//! | rate | more starts than the rate allows |
//! | leftovers | anything kept after the end |
//!
//! They know nothing of the schedule but what it said, so a wrong one cannot deceive them.

mod bucket;
mod entries;
pub mod router;
mod shares;
mod view;

use std::fmt;

use sluicegate_schedule::{Class, Moment};

use bucket::Paced;
pub use bucket::{Flow, Pace};
use shares::{Classes, Fairness};
use view::View;

/// Something that was promised and did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The oracle that saw it.
    pub oracle: &'static str,
    /// What it saw.
    pub message: String,
}

impl Broken {
    /// A finding of an oracle.
    #[must_use]
    pub const fn new(oracle: &'static str, message: String) -> Self {
        Self { oracle, message }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.message)
    }
}

/// Fails with a message unless the condition holds.
fn hold(oracle: &'static str, holds: bool, message: impl Fn() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken::new(oracle, message())) }
}

/// A tenant's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its share; 1, 2, 3 or 4, so that shares are exact in twelfths.
    pub weight: u32,
    /// How many may run.
    pub max_running: u32,
    /// How many may wait.
    pub max_queued: u32,
    /// How many may enter in any span of so many nanoseconds.
    pub entries: Option<(u32, u64)>,
}

impl Bounds {
    /// No bounds but those of all.
    pub const OPEN: Self =
        Self { weight: 1, max_running: u32::MAX, max_queued: u32::MAX, entries: None };
}

/// What bounds the run from its beginning.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many may run.
    pub concurrency: u32,
    /// How many may wait.
    pub capacity: u32,
    /// Of so many dispatches each class gets one.
    pub class_period: u32,
    /// The tenants, by number.
    pub tenants: Vec<Bounds>,
    /// The most an item costs, and the most that ever run at once: what fairness is measured by.
    pub most_apart: i64,
}

/// An item, as it asked to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its number.
    pub number: u64,
    /// Whose it is.
    pub tenant: usize,
    /// Its key.
    pub key: Option<u32>,
    /// The key is one of its tenant's own.
    pub own_key: bool,
    /// Its class.
    pub class: Class,
    /// What it was said to cost.
    pub cost: u32,
}

/// How an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran, and was measured or not.
    Completed {
        /// What it cost.
        cost: Option<u32>,
    },
    /// It was started but did not run.
    Revoked,
    /// It was taken out while it waited.
    Cancelled,
    /// It had run before, and kept its key until now.
    Departed,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// An item was let in.
    Admitted(Item),
    /// So many items of a tenant, at once, were not let in.
    Refused {
        /// Whose they were.
        tenant: usize,
        /// Their class.
        class: Class,
        /// How many.
        count: u32,
    },
    /// An item started.
    Started(u64),
    /// An item ended.
    Ended(u64, End),
    /// A running item goes back to the front of its key until a moment.
    PutBack {
        /// The item.
        number: u64,
        /// Until when its key is held.
        until: Moment,
        /// What this try cost.
        cost: Option<u32>,
    },
    /// The same, as if it had never started.
    Postponed {
        /// The item.
        number: u64,
        /// Until when its key is held.
        until: Moment,
    },
    /// A running item ended but keeps its key.
    Lingers {
        /// The item.
        number: u64,
        /// What it cost.
        cost: Option<u32>,
    },
    /// Nothing may start, for one reason more.
    Paused,
    /// One reason less.
    Resumed,
    /// The hold of an item's key was ended.
    Released(u64),
    /// Another concurrency.
    Concurrency(u32),
    /// Another capacity.
    Capacity(u32),
    /// Another rate, or none.
    Rate(Option<Pace>),
    /// Other limits for a tenant.
    Tenant(usize, Bounds),
    /// Nothing more is let in.
    Draining,
    /// Everything has ended: this is what the schedule still shows.
    Over {
        /// Items that wait.
        queued: u32,
        /// Items that run.
        running: u32,
        /// Keys.
        keys: usize,
        /// Tenants.
        tenants: usize,
    },
}

/// All oracles together.
#[derive(Debug)]
pub struct Oracles {
    view: View,
    classes: Classes,
    fairness: Fairness,
    paced: Paced,
}

impl Oracles {
    /// They have seen nothing yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            classes: Classes::new(setup.class_period),
            fairness: Fairness::new(setup.tenants.len(), setup.most_apart),
            paced: Paced::default(),
            view: View::new(setup),
        }
    }

    /// Looks at a fact.
    ///
    /// # Errors
    /// What it breaks.
    pub fn see(&mut self, now: Moment, fact: Fact) -> Result<(), Broken> {
        self.view.release_due(now);
        match fact {
            Fact::Started(number) => {
                let in_line = self.view.in_line(now);
                let item = self.view.start(now, number)?;
                self.classes.start(&item, &in_line)?;
                self.fairness.line(&in_line);
                self.fairness.charge(&item, item.weight, i64::from(item.cost));
                self.fairness.start(&item, &in_line)?;
                self.paced.take(now, number)?;
            }
            Fact::Ended(number, end) => {
                let item = self.view.end(number, end)?;
                self.correct(&item, end);
            }
            Fact::PutBack { number, until, cost } => {
                let item = self.view.put_back(number, until, true)?;
                self.correct(&item, End::Completed { cost });
            }
            Fact::Postponed { number, until } => {
                let item = self.view.put_back(number, until, false)?;
                self.correct(&item, End::Revoked);
            }
            Fact::Lingers { number, cost } => {
                let item = self.view.linger(number)?;
                self.correct(&item, End::Completed { cost });
            }
            Fact::Rate(pace) => self.paced.change(now, pace),
            Fact::Tenant(tenant, bounds) => {
                self.view.set_bounds(now, tenant, bounds);
                self.fairness.forget(tenant);
            }
            _ => self.view.see(now, fact)?,
        }
        self.view.note_ready();
        let in_line = self.view.in_line(now);
        self.fairness.line(&in_line);
        self.classes.line(|class| self.view.waits(class), matches!(fact, Fact::Started(_)));
        Ok(())
    }

    /// The widest that two tenants in line were apart, in units of cost at weight 1.
    #[must_use]
    pub const fn widest(&self) -> i64 {
        self.fairness.widest()
    }

    fn correct(&mut self, item: &view::Seen, end: End) {
        match end {
            End::Completed { cost: Some(cost) } => {
                self.fairness.charge(item, item.weight, i64::from(cost) - i64::from(item.cost));
            }
            End::Revoked => {
                self.fairness.charge(item, item.weight, -i64::from(item.cost));
                self.paced.put_back(item.number);
                self.classes.take_back(item.number);
            }
            End::Completed { cost: None } | End::Cancelled | End::Departed => {}
        }
    }
}

#[cfg(test)]
mod tests;
