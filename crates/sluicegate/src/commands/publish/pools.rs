//! The pools that a configuration names: what is published for another is told.

use std::collections::BTreeSet;

use sluicegate::dispatch::DEFAULT_POOL;
use sluicegate::server::settings::{Settings, UnknownPool};
use sluicegate::sources::nearest;

/// How many unknown pools are told of.
const MOST_TOLD: usize = 20;

/// The pools of a configuration file.
#[derive(Debug)]
pub(super) struct Pools {
    known: BTreeSet<String>,
    unknown: UnknownPool,
    /// Those that were told of.
    told: BTreeSet<String>,
}

/// What to do about a message of a pool that is not there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Refuse it, for this reason.
    Refuse(String),
    /// Say this, once for each pool.
    Tell(String),
}

impl Pools {
    /// `None` where further pools come from elsewhere: then nobody knows here.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        if !settings.router.config_url.is_empty() {
            return None;
        }
        let known = settings.pools.iter().map(|pool| pool.code.clone());
        let known = known.chain([DEFAULT_POOL.to_owned()]).collect();
        let unknown = settings.router.unknown_pool;
        Some(Self { known, unknown, told: BTreeSet::new() })
    }

    /// What to do about a message of this pool, if anything.
    pub(super) fn look(&mut self, pool: &str) -> Option<Unknown> {
        if self.known.contains(pool) {
            return None;
        }
        let near = nearest(pool, self.known.iter().map(String::as_str));
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let words = format!("there is no pool `{pool}`{near}");
        let fate = match self.unknown {
            UnknownPool::Refuse => return Some(Unknown::Refuse(format!("poolCode: {words}"))),
            UnknownPool::Park => "its messages will be parked",
            UnknownPool::Default => "DEFAULT-POOL delivers its messages",
        };
        let is_new = self.told.len() < MOST_TOLD && self.told.insert(pool.to_owned());
        let setting = "router.unknown_pool says what becomes of them";
        is_new.then(|| Unknown::Tell(format!("{words} ({fate}; {setting})")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(router: &str) -> Option<Pools> {
        let text = format!("[router]\n{router}\n[[pool]]\ncode = \"ORDERS\"\n");
        Pools::of(&Settings::parse("f.toml", &text, &|_| None).unwrap())
    }

    #[test]
    fn unknown_pools_are_told_of_once_or_refused() {
        let mut default = pools("").unwrap();
        assert_eq!(default.look("ORDERS"), None);
        assert_eq!(default.look("DEFAULT-POOL"), None);
        let Some(Unknown::Tell(words)) = default.look("ODRERS") else { panic!("it is told") };
        assert!(words.contains("did you mean `ORDERS`?"), "{words}");
        assert_eq!(default.look("ODRERS"), None, "once");
        let told = (0..100).filter(|at| default.look(&format!("{at}")).is_some()).count();
        assert_eq!(told, MOST_TOLD - 1);
        let mut refusing = pools("unknown_pool = \"refuse\"").unwrap();
        let near = "poolCode: there is no pool `ODRERS`; did you mean `ORDERS`?";
        for _ in 0..2 {
            assert_eq!(refusing.look("ODRERS"), Some(Unknown::Refuse(near.to_owned())));
        }
        assert!(pools("config_url = [\"http://c.test/\"]").is_none());
    }
}
