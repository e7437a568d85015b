//! The books of a consumer: what is in hand, and what waits to be settled.
//!
//! A message that was taken in is an [`Item`], which is ended once, by value. Dropped unended it hands
//! itself back. Drop does no waiting: it writes into the books, and the settler does the rest.
//!
//! The list of what waits to be settled is bounded by what is in hand, since each letter is in it
//! once at most. The two locks are never held together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Reason, Settlement};
use tokio::sync::Notify;

use super::table::Table;
use crate::metadata::Letter;
use crate::stats::Counters;

#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) table: Mutex<Table>,
    ended: Mutex<Vec<Ended>>,
    changed: Notify,
    /// Less is in hand than before.
    pub(super) shrunk: Notify,
    /// How many letters are superseded: nearly always none, and then nobody has to look.
    pub(super) superseded: AtomicUsize,
    pub(super) counters: Counters,
}

/// A message that waits or runs.
#[derive(Debug)]
#[must_use = "dropping it hands the message back"]
pub(super) struct Item {
    letter: Option<Arc<Letter>>,
    /// How many attempts have failed.
    pub(super) failed: u32,
    /// How many of them its source knows of.
    known: u32,
    books: Arc<Books>,
}

/// A message that is over, for its source to hear of.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) letter: Arc<Letter>,
    pub(super) end: End,
}

/// How a message ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Ignored,
    Retried {
        after: Duration,
        failed: u32,
    },
    /// With the attempts that its source knows of: with others it could not stay in its place, and
    /// that matters more.
    HandedBack {
        known: u32,
    },
    Dead,
}

impl End {
    /// What the source is told.
    pub(super) const fn settlement(self) -> Settlement {
        match self {
            Self::Done | Self::Ignored => Settlement::Ack,
            Self::Retried { after, failed } => {
                Settlement::Retry { after, attempts: failed, reason: Reason::Failed }
            }
            Self::HandedBack { known } => {
                let (after, reason) = (Duration::ZERO, Reason::Draining);
                Settlement::Retry { after, attempts: known, reason }
            }
            Self::Dead => Settlement::Park,
        }
    }
}

impl Books {
    /// Adds to what waits to be settled, and leaves the given list empty.
    pub(super) fn push_all(&self, ended: &mut Vec<Ended>) {
        if !ended.is_empty() {
            self.ended.lock().append(ended);
            self.changed.notify_one();
        }
    }

    pub(super) fn push(&self, ended: Ended) {
        self.ended.lock().push(ended);
        self.changed.notify_one();
    }

    /// At most `max` of what is over, oldest first; waits for the first one, and lets whoever can end
    /// at this very moment end too.
    ///
    /// Cancel safe: nothing is taken before it answers.
    pub(super) async fn next_ended(&self, max: usize) -> Vec<Ended> {
        while self.ended.lock().is_empty() {
            self.changed.notified().await;
        }
        tokio::task::yield_now().await;
        let mut ended = self.ended.lock();
        if ended.len() <= max {
            let capacity = ended.len();
            return std::mem::replace(&mut *ended, Vec::with_capacity(capacity));
        }
        let rest = ended.split_off(max);
        let first = std::mem::replace(&mut *ended, rest);
        // There is more: the next call must not wait for another to be added.
        self.changed.notify_one();
        first
    }

    /// Waits until nothing is in hand. Only one may wait, and nobody receives meanwhile.
    pub(super) async fn emptied(&self) {
        while self.table.lock().len() > 0 {
            self.shrunk.notified().await;
        }
    }

    /// Whether a letter was superseded and is nobody's any more.
    pub(super) fn is_superseded(&self, letter: &Letter) -> bool {
        if self.superseded.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut table = self.table.lock();
        let is_superseded = table.is_superseded(letter.number);
        self.superseded.store(table.superseded(), Ordering::Release);
        is_superseded
    }
}

impl Item {
    pub(super) const fn new(letter: Arc<Letter>, known: u32, books: Arc<Books>) -> Self {
        Self { letter: Some(letter), failed: known, known, books }
    }

    pub(super) fn letter(&self) -> &Arc<Letter> {
        self.letter.as_ref().expect("an item has its letter until it is ended")
    }

    /// Ends it. Whoever gets the end must have it settled.
    pub(super) fn end(mut self, end: End) -> Ended {
        let letter = self.letter.take().expect("an item has its letter until it is ended");
        Ended { letter, end }
    }

    /// Lets go of a letter that was superseded: another one stands for its message.
    pub(super) fn let_go(mut self) {
        self.letter = None;
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        if let Some(letter) = self.letter.take() {
            let end = End::HandedBack { known: self.known };
            self.books.push(Ended { letter, end });
        }
    }
}
