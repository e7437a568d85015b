//! What a source has to keep in order.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::{DEFAULT_GROUP, Message};

/// Which messages stay in order across deliveries, by their pools: a later message of a group is not handed
/// out while an earlier one is out or waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    pools: HashMap<Arc<str>, Ordered, RandomState>,
    others: Ordered,
    /// How many of the pools keep anything in order.
    ordered: usize,
}

/// Which messages of a pool stay in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordered {
    /// None.
    #[default]
    Nothing,
    /// Those of each group; those without a group are in order with nothing.
    Groups,
    /// Those of each group, and those without one as a group of their own.
    All,
}

impl Order {
    /// The same for every pool.
    #[must_use]
    pub fn everywhere(ordered: Ordered) -> Self {
        Self { others: ordered, ..Self::default() }
    }

    /// All messages of these pools, and none of others.
    pub fn of_pools<P: Into<Arc<str>>>(pools: impl IntoIterator<Item = P>) -> Self {
        pools.into_iter().fold(Self::default(), |order, pool| order.with(pool, Ordered::All))
    }

    /// With a pool of its own order.
    #[must_use]
    pub fn with(mut self, pool: impl Into<Arc<str>>, ordered: Ordered) -> Self {
        let is_ordered = |ordered: Ordered| usize::from(ordered != Ordered::Nothing);
        let before = self.pools.insert(pool.into(), ordered).map_or(0, is_ordered);
        self.ordered = self.ordered + is_ordered(ordered) - before;
        self
    }

    /// Whether a group of a pool stays in order; messages without one are the group [`DEFAULT_GROUP`].
    #[must_use]
    pub fn keeps(&self, pool: &str, group: &str) -> bool {
        match self.of(pool) {
            Ordered::Nothing => false,
            Ordered::Groups => group != DEFAULT_GROUP,
            Ordered::All => true,
        }
    }

    /// Whether a message stays in order with others.
    #[must_use]
    pub fn keeps_message(&self, message: &Message) -> bool {
        self.keeps(&message.pool, message.group.as_deref().unwrap_or(DEFAULT_GROUP))
    }

    /// Which messages of a pool stay in order.
    #[must_use]
    pub fn of(&self, pool: &str) -> Ordered {
        self.pools.get(pool).copied().unwrap_or(self.others)
    }

    /// Which messages of pools that are not [named](Order::pools) stay in order.
    #[must_use]
    pub const fn others(&self) -> Ordered {
        self.others
    }

    /// The pools with an order of their own.
    pub fn pools(&self) -> impl Iterator<Item = (&Arc<str>, Ordered)> {
        self.pools.iter().map(|(pool, ordered)| (pool, *ordered))
    }

    /// Whether nothing stays in order.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.others == Ordered::Nothing && self.ordered == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_whether_anything_stays_in_order() {
        let order = Order::default().with("A", Ordered::All).with("B", Ordered::Nothing);
        assert!(!order.is_nothing());
        assert!(!order.clone().with("A", Ordered::Groups).is_nothing());
        assert!(order.with("A", Ordered::Nothing).is_nothing());
        assert!(!Order::everywhere(Ordered::Groups).is_nothing());
        assert!(Order::everywhere(Ordered::Nothing).is_nothing());
    }
}
