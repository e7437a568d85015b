//! Who watches a router: from what reaches its ends, what must not be.

mod fact;

pub use fact::{Effect, Fact, Handed, KeyName, Letter};

use sluicegate_schedule::Moment;

use super::Broken;

/// What the oracles know from the beginning.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// For each queue: whether its source keeps the order of strict keys.
    pub queues: Vec<bool>,
    /// Whether tenants do nothing but compete, so that their shares can be measured.
    pub fair: bool,
}

/// All oracles of a router together.
#[derive(Debug)]
pub struct Oracles {
    setup: Setup,
}

impl Oracles {
    /// They have seen nothing yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Looks at a fact.
    ///
    /// # Errors
    /// What it breaks.
    pub fn see(&mut self, now: Moment, fact: Fact) -> Result<(), Broken> {
        drop((now, fact));
        Ok(())
    }
}
