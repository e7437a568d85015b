//! How the last attempt at a message failed. Most sources cannot keep that for a message that goes back to them, so
//! it is kept here, for the last few.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::{Outcome, Rejection, Target};

/// How the last attempt at a message failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When.
    pub at: SystemTime,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// What happened.
    pub error: String,
    /// What was called, without its query, which may carry a secret.
    pub target: Arc<str>,
    /// The first 1 KiB of the reply, if there was one.
    pub body: Option<Arc<str>>,
}

/// How many messages in queues it is remembered of: with a reply of 1 KiB each some 6 MB.
const MOST: usize = 4096;

/// The last errors of messages that may be in their queues again, the newest of them.
#[derive(Debug, Default)]
pub(crate) struct LastErrors {
    known: Mutex<Known>,
    /// How many there are: where nothing fails nobody takes the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    by_message: HashMap<Named, Numbered>,
    /// The same from the oldest on.
    by_number: BTreeMap<u64, Named>,
    next: u64,
}

/// A queue and a message of it.
type Named = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Numbered {
    number: u64,
    error: Arc<LastError>,
}

impl LastError {
    /// What went wrong in an attempt, for those who ask. An open breaker is none: no call was made, and what its calls met
    /// with is known.
    pub(crate) fn of(outcome: &Outcome, target: &Target) -> Option<Self> {
        let (error, status, body) = match outcome {
            Outcome::Done | Outcome::Interrupted | Outcome::BreakerOpen { .. } => return None,
            Outcome::Rejected(Rejection { status, why, body, .. }) => (why.clone(), *status, body),
            Outcome::Throttled { body, .. } => {
                ("the host asked for a pause".to_owned(), Some(429), body)
            }
            Outcome::RetryLater { why, status, body, .. } => (why.clone(), *status, body),
            Outcome::Unreachable { cause } => (cause.clone(), None, &None),
        };
        Some(Self::now(target, status, error, body.clone()))
    }

    /// What happened just now.
    #[must_use]
    pub fn now(
        target: &Target,
        status: Option<u16>,
        error: String,
        body: Option<Arc<str>>,
    ) -> Self {
        let url = target.url();
        let shown = url.split(['?', '#']).next().unwrap_or(url);
        Self { at: SystemTime::now(), status, error, target: shown.into(), body }
    }
}

impl LastErrors {
    /// Remembers it, and forgets the oldest if there are too many.
    pub(crate) fn insert(&self, queue: &Arc<str>, id: &Arc<str>, error: Arc<LastError>) {
        let named = (Arc::clone(queue), Arc::clone(id));
        let mut known = self.known.lock();
        let number = known.next;
        known.next += 1;
        let before = known.by_message.insert(named.clone(), Numbered { number, error });
        if let Some(before) = before {
            known.by_number.remove(&before.number);
        }
        known.by_number.insert(number, named);
        if known.by_number.len() > MOST
            && let Some((_, oldest)) = known.by_number.pop_first()
        {
            known.by_message.remove(&oldest);
        }
        self.count.store(known.by_number.len(), Memory::Relaxed);
    }

    /// The message is over.
    pub(crate) fn remove(&self, queue: &Arc<str>, id: &Arc<str>) {
        if self.count.load(Memory::Relaxed) == 0 {
            return;
        }
        let mut known = self.known.lock();
        if let Some(gone) = known.by_message.remove(&(Arc::clone(queue), Arc::clone(id))) {
            known.by_number.remove(&gone.number);
        }
        self.count.store(known.by_number.len(), Memory::Relaxed);
    }

    pub(crate) fn get(&self, queue: &Arc<str>, id: &Arc<str>) -> Option<Arc<LastError>> {
        let known = self.known.lock();
        let found = known.by_message.get(&(Arc::clone(queue), Arc::clone(id)))?;
        Some(Arc::clone(&found.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16) -> Arc<LastError> {
        let target = Target::parse("http://a.test/in?key=secret").unwrap();
        Arc::new(LastError::now(&target, Some(status), String::new(), None))
    }

    #[test]
    fn the_newest_are_known_and_each_once() {
        let errors = LastErrors::default();
        let queue: Arc<str> = "q".into();
        let id = |number: usize| -> Arc<str> { number.to_string().into() };
        let status = |number| errors.get(&queue, &id(number)).and_then(|known| known.status);
        for number in 0..MOST {
            errors.insert(&queue, &id(number), error(500));
        }
        errors.insert(&queue, &id(0), error(503));
        errors.insert(&queue, &id(MOST), error(500));
        assert_eq!((status(0), status(1), status(MOST)), (Some(503), None, Some(500)));
        errors.remove(&queue, &id(0));
        assert_eq!(status(0), None);
        let known = errors.known.lock();
        assert_eq!((known.by_message.len(), known.by_number.len()), (MOST - 1, MOST - 1));
    }

    #[test]
    fn a_query_is_not_shown() {
        assert_eq!(&*error(500).target, "http://a.test/in");
    }
}
