//! What happens often is said rarely: once for each pool and host in a while, with how often it was not said.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How often one pool and host is told of.
const BETWEEN: Duration = Duration::from_secs(10);
/// How many hosts are told apart; all others are one.
const MOST: usize = 1_024;

/// What was said when.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    by_host: Mutex<HashMap<Of, Said>>,
}

/// A pool and a host.
type Of = (Arc<str>, Box<str>);

#[derive(Debug)]
struct Said {
    at: Instant,
    /// How often it was not said since.
    unsaid: u64,
}

impl Rarely {
    /// Whether it is to be said now: how often it was not, since it last was.
    pub(crate) fn turn(&self, pool: &Arc<str>, host: &str, now: Instant) -> Option<u64> {
        let mut all = self.by_host.lock();
        let mut key = (Arc::clone(pool), Box::from(host));
        if all.len() >= MOST && !all.contains_key(&key) {
            all.retain(|_, said| now - said.at < BETWEEN);
            if all.len() >= MOST {
                key.1 = Box::default();
            }
        }
        match all.get_mut(&key) {
            None => {
                all.insert(key, Said { at: now, unsaid: 0 });
                Some(0)
            }
            Some(said) if now - said.at >= BETWEEN => {
                said.at = now;
                Some(std::mem::take(&mut said.unsaid))
            }
            Some(said) => {
                said.unsaid += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_pool_and_host_has_its_turn_and_what_was_left_out_is_counted() {
        let rarely = Rarely::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let turn = |pool, host| rarely.turn(pool, host, Instant::now());
        assert_eq!((turn(&a, "h"), turn(&a, "h"), turn(&a, "h")), (Some(0), None, None));
        assert_eq!((turn(&a, "other"), turn(&b, "h")), (Some(0), Some(0)));
        tokio::time::advance(BETWEEN).await;
        assert_eq!((turn(&a, "h"), turn(&a, "h"), turn(&b, "h")), (Some(2), None, Some(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn many_hosts_are_one() {
        let rarely = Rarely::default();
        let pool = "p".into();
        for host in 0..MOST + 100 {
            rarely.turn(&pool, &host.to_string(), Instant::now());
        }
        assert_eq!(rarely.by_host.lock().len(), MOST + 1);
        tokio::time::advance(BETWEEN).await;
        assert_eq!(rarely.turn(&pool, "new", Instant::now()), Some(0));
        assert_eq!(rarely.by_host.lock().len(), 1);
    }
}
