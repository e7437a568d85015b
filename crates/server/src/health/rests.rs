//! Which pools were told to wait for a moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Fact, MAX_DELAY};
use tokio::time::Instant;

/// Until when pools rest, as far as facts told.
///
/// It holds one moment per pool, and forgets those that have passed.
#[derive(Debug, Default)]
pub struct Rests {
    until: Mutex<BTreeMap<Arc<str>, Instant>>,
}

impl Rests {
    /// Remembers a pause of a host, or that a message is tried again later.
    pub fn hear(&self, fact: &Fact<'_>) {
        match *fact {
            Fact::Paused { pool, after, .. } => self.rest(pool, after),
            Fact::Retrying { pool, after: Some(after), .. } => self.rest(pool, after),
            _ => {}
        }
    }

    fn rest(&self, pool: &Arc<str>, after: Duration) {
        let now = Instant::now();
        let after = after.min(MAX_DELAY);
        let mut all = self.until.lock();
        match all.get_mut(pool) {
            Some(until) => *until = (*until).max(now + after),
            None => {
                all.retain(|_, until| *until > now);
                all.insert(Arc::clone(pool), now + after);
            }
        }
    }

    /// Whether a pool rests.
    #[must_use]
    pub fn rests(&self, pool: &str, now: Instant) -> bool {
        self.until.lock().get(pool).is_some_and(|until| *until > now)
    }
}
