//! What is in hand: every message from its delivery until its settlement is durable, by its broker's
//! id. Plain state.
//!
//! Invariants:
//! 1. A message is in here from its delivery until its settlement is durable, so that a second
//!    delivery of it meanwhile is always recognised, and never handled beside the first.
//! 2. The receipt in here is the one that is valid now.
//! 3. `superseded` holds the numbers of letters whose message was taken in again though they were
//!    still here. Each is taken out by whoever has the letter.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use sluicegate_dispatch::Receipt;
use tokio::time::Instant;

use crate::metadata::Letter;

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<Arc<str>, Entry, RandomState>,
    superseded: HashSet<u64>,
    last_number: u64,
}

#[derive(Debug)]
struct Entry {
    receipt: Receipt,
    number: u64,
    /// The generation of the delivery that it was taken in by.
    born: u64,
    key: Option<Arc<str>>,
    since: Instant,
    warned: bool,
}

/// What a delivery turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// A message that is to be handled, by its number.
    New(u64),
    /// One that is still here and goes on with its new receipt.
    Again,
}

/// Where a message stands when its settlement was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The receipt that was used is the valid one: it is out of the table now.
    Over,
    /// It came again meanwhile, with another receipt.
    Redelivered,
    /// It was taken in again meanwhile.
    Superseded,
}

impl Table {
    /// Takes a delivery in.
    ///
    /// After a reconnect a broker delivers in order what it has not heard of. If one of a key was
    /// settled too late it is taken in anew, behind later ones of its key that are still here; those
    /// must run again after it, or the key would end in the state of an old message. So they are
    /// superseded, not only given a new receipt.
    pub(super) fn take(
        &mut self,
        broker_id: &Arc<str>,
        receipt: Receipt,
        key: Option<Arc<str>>,
        now: Instant,
    ) -> Took {
        let again = self.entries.get(broker_id).map(|known| known.receipt.generation);
        if let Some(earlier) = again {
            let preceded = earlier != receipt.generation
                && key.is_some()
                && self.is_preceded(&key, receipt.generation);
            if let Some(known) = self.entries.get_mut(broker_id)
                && !preceded
            {
                (known.receipt, known.since, known.warned) = (receipt, now, false);
                return Took::Again;
            }
        }
        self.last_number += 1;
        let (number, born) = (self.last_number, receipt.generation);
        let entry = Entry { receipt, number, born, key, since: now, warned: false };
        if let Some(old) = self.entries.insert(Arc::clone(broker_id), entry) {
            self.superseded.insert(old.number);
        }
        Took::New(number)
    }

    /// Whether a message of this key was taken in anew in this generation.
    fn is_preceded(&self, key: &Option<Arc<str>>, generation: u64) -> bool {
        self.entries.values().any(|entry| entry.born == generation && entry.key == *key)
    }

    /// The receipt that a letter is settled with now; `None` if it was superseded.
    pub(super) fn receipt(&mut self, letter: &Letter) -> Option<Receipt> {
        if self.is_superseded(letter.number) {
            return None;
        }
        self.entries.get(&letter.broker_id).map(|entry| entry.receipt.clone())
    }

    /// Whether a letter was superseded. It is asked once.
    pub(super) fn is_superseded(&mut self, number: u64) -> bool {
        !self.superseded.is_empty() && self.superseded.remove(&number)
    }

    pub(super) fn superseded(&self) -> usize {
        self.superseded.len()
    }

    /// A settlement with this receipt was answered.
    pub(super) fn settled(&mut self, letter: &Letter, used: &Receipt) -> Standing {
        if self.is_superseded(letter.number) {
            return Standing::Superseded;
        }
        match self.entries.get(&letter.broker_id) {
            Some(entry) if entry.receipt != *used => Standing::Redelivered,
            _ => {
                self.entries.remove(&letter.broker_id);
                Standing::Over
            }
        }
    }

    pub(super) fn receipts(&self) -> Vec<Receipt> {
        self.entries.values().map(|entry| entry.receipt.clone()).collect()
    }

    /// Those that have been here for this long, each once for each of its deliveries.
    pub(super) fn overdue(&mut self, limit: Duration, now: Instant) -> Vec<(Arc<str>, Duration)> {
        let old = self.entries.iter_mut().filter_map(|(id, entry)| {
            let age = now - entry.since;
            let is_new = age >= limit && !std::mem::replace(&mut entry.warned, age >= limit);
            is_new.then(|| (Arc::clone(id), age))
        });
        old.collect()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_dispatch::Envelope;

    fn take(table: &mut Table, id: &str, generation: u64, key: Option<&str>) -> Took {
        let receipt = Receipt { tag: table.last_number + 1, generation, handle: None };
        table.take(&id.into(), receipt, key.map(Arc::from), Instant::now())
    }

    fn letter(id: &str, number: u64) -> Letter {
        Letter { broker_id: id.into(), number, envelope: Envelope::default() }
    }

    #[test]
    fn what_is_still_here_goes_on_with_its_new_receipt() {
        let mut table = Table::default();
        assert_eq!(take(&mut table, "a", 1, None), Took::New(1));
        let first = table.receipt(&letter("a", 1)).unwrap();
        assert_eq!(take(&mut table, "a", 2, None), Took::Again);
        let second = table.receipt(&letter("a", 1)).unwrap();
        assert_eq!((first.generation, second.generation), (1, 2));
        assert_eq!(table.settled(&letter("a", 1), &first), Standing::Redelivered);
        assert_eq!(table.len(), 1);
        assert_eq!(table.settled(&letter("a", 1), &second), Standing::Over);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn what_comes_behind_one_that_comes_anew_is_handled_again_after_it() {
        let mut table = Table::default();
        for (id, number) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(take(&mut table, id, 1, Some("k")), Took::New(number));
        }
        assert_eq!(take(&mut table, "x", 1, Some("other")), Took::New(4));
        let old = table.receipt(&letter("a", 1)).unwrap();
        assert_eq!(table.settled(&letter("a", 1), &old), Standing::Over); // too late, as it turns out
        assert_eq!(take(&mut table, "a", 2, Some("k")), Took::New(5));
        assert_eq!(take(&mut table, "b", 2, Some("k")), Took::New(6));
        assert_eq!(take(&mut table, "x", 2, Some("other")), Took::Again);
        assert_eq!(take(&mut table, "c", 2, Some("k")), Took::New(7));
        assert_eq!(table.superseded(), 2);
        assert!(table.is_superseded(2) && !table.is_superseded(2));
        assert_eq!(table.receipt(&letter("c", 3)), None);
        assert_eq!((table.superseded(), table.len()), (0, 4));
        assert!(table.receipt(&letter("c", 7)).is_some());
    }

    #[test]
    fn without_a_key_nothing_is_handled_again() {
        let mut table = Table::default();
        for id in ["a", "b"] {
            take(&mut table, id, 1, None);
        }
        let old = table.receipt(&letter("a", 1)).unwrap();
        table.settled(&letter("a", 1), &old);
        assert_eq!(take(&mut table, "a", 2, None), Took::New(3));
        assert_eq!(take(&mut table, "b", 2, None), Took::Again);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_here_for_long_is_named_once_a_delivery() {
        let mut table = Table::default();
        let limit = Duration::from_secs(10);
        take(&mut table, "a", 1, None);
        let overdue = |table: &mut Table| table.overdue(limit, Instant::now()).len();
        assert_eq!(overdue(&mut table), 0);
        tokio::time::advance(limit).await;
        take(&mut table, "b", 1, None);
        assert_eq!(overdue(&mut table), 1);
        assert_eq!(overdue(&mut table), 0);
        take(&mut table, "a", 2, None);
        tokio::time::advance(limit).await;
        assert_eq!(overdue(&mut table), 2);
    }
}
