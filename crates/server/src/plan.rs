//! What is to change so that what runs is what is wanted: pure, and the same for file and sync.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_dispatch::{DEFAULT_POOL, PoolSettings};

use crate::settings::QueueSettings;

/// Pools and queues by name: what is wanted, or what was last asked for.
///
/// A plan compares two of these, not the router itself: what was changed by hand since stays until
/// the configuration says something new about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The pools, by code.
    pub pools: BTreeMap<Arc<str>, PoolSettings>,
    /// The queues, by name.
    pub queues: BTreeMap<String, QueueSettings>,
}

/// How many pools there may be. The default pool does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// No more than this.
    pub most: u32,
    /// From here on somebody should know.
    pub warn_from: u32,
}

/// What is to change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Pools to add or to change.
    pub set_pools: Vec<PoolSettings>,
    /// Pools to remove.
    pub remove_pools: Vec<Arc<str>>,
    /// Pools that there is no room for.
    pub refused_pools: Vec<Arc<str>>,
    /// Whether there are so many pools that somebody should know.
    pub many_pools: bool,
    /// Queues to remove, before others are added.
    pub remove_queues: Vec<String>,
    /// Queues to add.
    pub add_queues: Vec<QueueSettings>,
}

/// Compares what was asked for with what is wanted.
#[must_use]
pub fn plan(asked: &Layout, wanted: &Layout, limits: PoolLimits) -> Plan {
    let mut plan = Plan::default();
    for code in asked.pools.keys().filter(|code| !wanted.pools.contains_key(*code)) {
        // The default pool is always there, if need be as the paper has it.
        if &**code == DEFAULT_POOL {
            plan.set_pools.push(PoolSettings::default_pool());
        } else {
            plan.remove_pools.push(Arc::clone(code));
        }
    }
    let counts = |code: &str| code != DEFAULT_POOL;
    let kept = wanted.pools.keys().filter(|code| asked.pools.contains_key(*code) && counts(code));
    let mut count = u32::try_from(kept.count()).unwrap_or(u32::MAX);
    for (code, settings) in &wanted.pools {
        match asked.pools.get(code) {
            Some(asked) if asked == settings => {}
            Some(_) => plan.set_pools.push(settings.clone()),
            None if counts(code) && count >= limits.most => {
                plan.refused_pools.push(Arc::clone(code));
            }
            None => {
                plan.many_pools |= counts(code) && count >= limits.warn_from;
                count += u32::from(counts(code));
                plan.set_pools.push(settings.clone());
            }
        }
    }
    for (name, queue) in &asked.queues {
        if wanted.queues.get(name) != Some(queue) {
            plan.remove_queues.push(name.clone());
        }
    }
    for (name, queue) in &wanted.queues {
        if asked.queues.get(name) != Some(queue) {
            plan.add_queues.push(queue.clone());
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::QueueUri;

    const LIMITS: PoolLimits = PoolLimits { most: 3, warn_from: 2 };

    fn layout(pools: &[(&str, u32)], queues: &[(&str, u32)]) -> Layout {
        let pool = |(code, concurrency): &(&str, u32)| {
            (Arc::from(*code), PoolSettings::new(*code, *concurrency))
        };
        let queue = |(name, connections): &(&str, u32)| {
            let uri = QueueUri::parse(&format!("sqlite:{name}")).expect("a uri");
            let mut queue = QueueSettings::new(*name, uri);
            queue.connections = *connections;
            ((*name).to_owned(), queue)
        };
        Layout {
            pools: pools.iter().map(pool).collect(),
            queues: queues.iter().map(queue).collect(),
        }
    }

    /// `set A=1` `remove B` `refuse C` `many` `stop q` `start q`, in this order.
    fn words(plan: &Plan) -> Vec<String> {
        let set =
            plan.set_pools.iter().map(|pool| format!("set {}={}", pool.code, pool.concurrency));
        let remove = plan.remove_pools.iter().map(|code| format!("remove {code}"));
        let refuse = plan.refused_pools.iter().map(|code| format!("refuse {code}"));
        let many = plan.many_pools.then(|| "many".to_owned());
        let stop = plan.remove_queues.iter().map(|name| format!("stop {name}"));
        let start = plan.add_queues.iter().map(|queue| format!("start {}", queue.name));
        set.chain(remove).chain(refuse).chain(many).chain(stop).chain(start).collect()
    }

    type Pools<'a> = &'a [(&'a str, u32)];

    #[test]
    fn plans() {
        #[rustfmt::skip]
        let cases: &[(Pools<'_>, Pools<'_>, Pools<'_>, Pools<'_>, &[&str])] = &[
            // asked pools, wanted pools, asked queues, wanted queues
            (&[], &[], &[], &[], &[]),
            (&[], &[("A", 1)], &[], &[("q", 1)], &["set A=1", "start q"]),
            (&[("A", 1)], &[("A", 1)], &[("q", 1)], &[("q", 1)], &[]),
            (&[("A", 1)], &[("A", 2)], &[("q", 1)], &[("q", 2)], &["set A=2", "stop q", "start q"]),
            (&[("A", 1)], &[], &[("q", 1)], &[], &["remove A", "stop q"]),
            (&[], &[("A", 1), ("B", 1), ("C", 1)], &[], &[], &["set A=1", "set B=1", "set C=1", "many"]),
            (&[], &[("A", 1), ("B", 1), ("C", 1), ("D", 1)], &[], &[],
                &["set A=1", "set B=1", "set C=1", "refuse D", "many"]),
            (&[("A", 1)], &[("B", 1), ("C", 1), ("D", 1)], &[], &[],
                &["set B=1", "set C=1", "set D=1", "remove A", "many"]),
            (&[("A", 1), ("B", 1), ("D", 1)], &[("A", 1), ("B", 1), ("C", 1), ("D", 1)], &[], &[], &["refuse C"]),
            (&[("A", 1), ("B", 1), ("D", 1)], &[("A", 1), ("B", 1), ("D", 1), (DEFAULT_POOL, 7)], &[], &[],
                &["set DEFAULT-POOL=7"]),
            (&[(DEFAULT_POOL, 7)], &[], &[], &[], &["set DEFAULT-POOL=20"]),
        ];
        for (asked_pools, wanted_pools, asked_queues, wanted_queues, expected) in cases {
            let asked = layout(asked_pools, asked_queues);
            let wanted = layout(wanted_pools, wanted_queues);
            assert_eq!(words(&plan(&asked, &wanted, LIMITS)), *expected, "{asked:?} {wanted:?}");
        }
    }
}
