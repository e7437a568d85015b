//! What those who wait to receive want together.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_dispatch::Demand;

/// How many are claimed at once.
const BATCH: usize = 1000;

/// What to claim: at most so many messages, by pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) most: usize,
    /// Of each pool that is named, also of those that have no room; in the order of their codes.
    pub(crate) pools: Vec<(Arc<str>, u32)>,
    /// Of pools that are not named.
    pub(crate) others: u32,
}

impl Wants {
    /// What these demands want beside what is here for them, given as the pools of that. Receivers of a queue
    /// share the places of its pools, so these are not added up.
    pub(crate) fn new<'a>(
        demands: impl Iterator<Item = &'a Demand>,
        here: impl Iterator<Item = &'a Arc<str>>,
    ) -> Self {
        let mut most = 0_usize;
        let mut rooms: HashMap<Arc<str>, u32> = HashMap::new();
        let (mut others, mut is_any) = (0, false);
        for demand in demands {
            most = most.saturating_add(demand.most());
            let Some(room) = demand.room() else {
                is_any = true;
                continue;
            };
            for (pool, count) in room.pools {
                let known = rooms.entry(pool).or_default();
                *known = count.max(*known);
            }
            others = room.others.max(others);
        }
        if is_any {
            rooms.clear();
            others = u32::MAX;
        }
        for pool in here {
            let room = rooms.get_mut(pool).unwrap_or(&mut others);
            // One that nobody has room for takes nobody's place.
            if *room > 0 {
                *room -= 1;
                most = most.saturating_sub(1);
            }
        }
        let mut pools: Vec<_> = rooms.into_iter().collect();
        pools.sort_unstable();
        Self { most: most.min(BATCH), pools, others }
    }

    /// Whether there is nothing to claim.
    pub(crate) fn is_empty(&self) -> bool {
        self.most == 0 || self.others == 0 && self.pools.iter().all(|(_, room)| *room == 0)
    }

    /// Whether it wants of pools that the other wanted nothing of.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        if self.others > 0 && other.others == 0 {
            return true;
        }
        let wanted = |pool: &Arc<str>| {
            let place = other.pools.binary_search_by(|(known, _)| known.cmp(pool));
            place.map_or(other.others > 0, |place| other.pools[place].1 > 0)
        };
        self.pools.iter().any(|(pool, room)| *room > 0 && !wanted(pool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(pools: &[(&str, u32)], others: u32) -> Wants {
        let pools = pools.iter().map(|(pool, room)| (Arc::from(*pool), *room)).collect();
        Wants { most: 10, pools, others }
    }

    #[test]
    fn a_want_exceeds_what_was_dry_when_a_pool_is_new_to_it() {
        let dry = wants(&[("A", 1), ("B", 0)], 0);
        assert!(!wants(&[("A", 9), ("B", 0)], 0).exceeds(&dry));
        assert!(wants(&[("A", 0), ("B", 1)], 0).exceeds(&dry));
        assert!(wants(&[("A", 1), ("C", 1)], 0).exceeds(&dry));
        assert!(wants(&[("A", 1)], 1).exceeds(&dry));
        assert!(!wants(&[("C", 1)], 1).exceeds(&wants(&[], 1)));
    }

    #[test]
    fn what_is_here_takes_the_places_of_those_that_want_it() {
        let demand = Demand::any(5);
        let pool: Arc<str> = "A".into();
        let left = Wants::new([&demand, &demand].into_iter(), [&pool, &pool, &pool].into_iter());
        assert_eq!((left.most, left.is_empty()), (7, false));
        assert!(Wants::new([&demand].into_iter(), [&pool; 5].into_iter()).is_empty());
        assert!(Wants::new([].into_iter(), [].into_iter()).is_empty());
    }
}
