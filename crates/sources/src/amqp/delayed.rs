//! What this process has sent to come later, for those who look for it.
//!
//! The broker tells nobody what is inside its delay queues. So what goes there is noted here until it comes
//! back or its time is over: so many messages and bytes at most, of which those go first that are due first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use sluicegate_dispatch::{Found, FoundState, Reason};
use tokio::time::Instant;

use super::incoming::Incoming;

/// How many are noted at most.
const MOST: usize = 100_000;
/// How many bytes their bodies have at most.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// How much later than it should a message may come.
const LATE: Duration = Duration::from_secs(5);

/// Messages that wait in delay queues.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    /// By what they are known by when they come back.
    waiting: HashMap<Arc<str>, Waiting, RandomState>,
    /// By the application's id.
    by_id: HashMap<Arc<str>, Arc<str>, RandomState>,
    by_due: BTreeMap<(Instant, u64), Arc<str>>,
    bytes: usize,
    last: u64,
}

/// A message that is to come later.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// The application's id.
    pub(crate) id: Arc<str>,
    pub(crate) body: Bytes,
    pub(crate) attempts: u32,
    pub(crate) reason: Reason,
    /// Since when it is known here.
    pub(crate) since: Instant,
    pub(crate) due: Instant,
    /// Tells apart what is due at the same time.
    pub(crate) number: u64,
}

impl Delayed {
    /// Notes a message by what it will be known by.
    pub(crate) fn insert(&mut self, key: &Arc<str>, mut waiting: Waiting, now: Instant) {
        self.remove(key);
        self.last += 1;
        waiting.number = self.last;
        self.bytes += waiting.body.len();
        self.by_due.insert((waiting.due, waiting.number), Arc::clone(key));
        self.by_id.insert(Arc::clone(&waiting.id), Arc::clone(key));
        self.waiting.insert(Arc::clone(key), waiting);
        while let Some(((due, _), first)) = self.by_due.first_key_value()
            && (*due + LATE < now || self.waiting.len() > MOST || self.bytes > MOST_BYTES)
        {
            let first = Arc::clone(first);
            self.remove(&first);
        }
    }

    /// Its delay begins: the broker has it.
    pub(crate) fn begin(&mut self, key: &Arc<str>, due: Instant) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            self.by_due.remove(&(waiting.due, waiting.number));
            waiting.due = due;
            self.by_due.insert((waiting.due, waiting.number), Arc::clone(key));
        }
    }

    pub(crate) fn remove(&mut self, key: &str) {
        let Some(gone) = self.waiting.remove(key) else { return };
        self.bytes -= gone.body.len();
        self.by_due.remove(&(gone.due, gone.number));
        if self.by_id.get(&gone.id).is_some_and(|of_id| **of_id == *key) {
            self.by_id.remove(&gone.id);
        }
    }

    /// One came back.
    pub(crate) fn came(&mut self, incoming: &Incoming) {
        if !self.waiting.is_empty() {
            self.remove(&incoming.identity().id);
        }
    }

    /// The one with this id of the application's.
    pub(crate) fn find(&mut self, id: &str, now: Instant) -> Option<Found> {
        let key = Arc::clone(self.by_id.get(id)?);
        let waiting = self.waiting.get(&key)?;
        if waiting.due + LATE < now {
            self.remove(&key);
            return None;
        }
        Some(Found {
            body: String::from_utf8_lossy(&waiting.body).into(),
            state: FoundState::Delayed {
                rest: waiting.due.saturating_duration_since(now),
                reason: waiting.reason,
            },
            attempts: waiting.attempts,
            age: now.saturating_duration_since(waiting.since),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: &str, now: Instant, seconds: u64) -> Waiting {
        Waiting {
            id: id.into(),
            body: Bytes::from(format!("body of {id}")),
            attempts: 2,
            reason: Reason::Failed,
            since: now,
            due: now + Duration::from_secs(seconds),
            number: 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_found_until_it_comes_or_its_time_is_over() {
        let (mut delayed, now) = (Delayed::default(), Instant::now());
        delayed.insert(&"k1".into(), waiting("a", now, 10), now);
        delayed.insert(&"k2".into(), waiting("b", now, 20), now);
        let found = delayed.find("a", now + Duration::from_secs(4)).expect("it waits");
        let (rest, reason) = (Duration::from_secs(6), Reason::Failed);
        assert_eq!(found.state, FoundState::Delayed { rest, reason });
        assert_eq!((&*found.body, found.attempts), ("body of a", 2));
        delayed.remove("k1");
        assert_eq!(delayed.find("a", now), None);
        delayed.begin(&"k2".into(), now + Duration::from_secs(30));
        assert!(delayed.find("b", now + Duration::from_secs(30)).is_some());
        assert_eq!(delayed.find("b", now + Duration::from_secs(36)), None);
        assert_eq!((delayed.bytes, delayed.by_due.len(), delayed.by_id.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_noted_and_no_more() {
        let (mut delayed, now) = (Delayed::default(), Instant::now());
        for n in 0..MOST as u64 + 10 {
            let name: Arc<str> = format!("m{n}").into();
            delayed.insert(&name, waiting(&name, now, 100 + n), now);
        }
        assert_eq!((delayed.waiting.len(), delayed.by_due.len()), (MOST, MOST));
        assert_eq!(delayed.find("m0", now), None);
        assert!(delayed.find("m10", now).is_some());
        // The same one again is one.
        delayed.insert(&"m10".into(), waiting("m10", now, 500), now);
        assert_eq!(delayed.waiting.len(), MOST);
    }
}
