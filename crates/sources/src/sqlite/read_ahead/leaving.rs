//! Messages that are being taken out of the file by hand, from wherever they wait.
//!
//! From the moment it is said until it is known whether the file let it go, such a message is not handed out. What
//! was read ahead of it is then given up; where order is kept and it may be the head of its key, the next is looked
//! up, on a snapshot that is younger.

use std::sync::Arc;

use tokio::time::Instant;

use super::super::row::Key;
use super::lane::{HIGH, rank};
use super::{Lanes, ReadAhead};

/// A message that is being taken out.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    pub(crate) seq: i64,
    pub(crate) lane: i64,
    pub(crate) key: Key,
    pub(crate) high: bool,
    /// It stood ready when it was its turn, and was passed over: where that was. Since it was looked for, its number may
    /// have become another's.
    passed: Option<Passed>,
}

/// Where a message stood ready.
#[derive(Clone, Debug)]
struct Passed {
    key: Key,
    code: Arc<str>,
    lane: i64,
    high: bool,
}

impl Leaving {
    pub(crate) const fn new(seq: i64, lane: i64, key: Key, high: bool) -> Self {
        Self { seq, lane, key, high, passed: None }
    }
}

impl ReadAhead {
    /// It is to be taken out; `false` if it is handed out, or somebody else is at it.
    pub(crate) fn begin_leaving(&mut self, leaving: Leaving, now: Instant) -> bool {
        if self.is_out(leaving.seq, now) || self.leaving.contains_key(&leaving.seq) {
            return false;
        }
        self.leaving.insert(leaving.seq, leaving);
        true
    }

    /// Whether the next of this lane is being taken out: then it is passed over.
    pub(super) fn passes_over(&mut self, pool: i64, lane: i64) -> bool {
        if self.leaving.is_empty() {
            return false;
        }
        let Some(of_pool) = self.pools.get(&pool) else { return false };
        let ready = of_pool.lanes.get(&lane).and_then(|lane| lane.ready.first_key_value());
        let Some((&rank, ready)) = ready else { return false };
        let Some(leaving) = self.leaving.get_mut(&rank.1) else { return false };
        let key = Key { pool, group: Arc::clone(&ready.group) };
        let (code, high) = (Arc::clone(&of_pool.code), rank.0 == HIGH);
        leaving.passed = Some(Passed { key, code, lane, high });
        self.change(pool, |pool| pool.unready(lane, rank));
        true
    }

    /// It is known whether the file let it go.
    pub(crate) fn left(&mut self, seq: i64, is_gone: bool) {
        let Some(leaving) = self.leaving.remove(&seq) else { return };
        if self.lanes == Lanes::Unknown {
            // Whoever asks first finds what there is.
            return;
        }
        if self.fetching && is_gone {
            // What is being read may have it still.
            self.came_back.insert(seq);
        }
        let Leaving { lane, key, high, passed, .. } = leaving;
        if is_gone {
            self.forget_tried(&key, seq);
            self.head_left(&key, seq);
            self.change(key.pool, |pool| pool.unready(lane, rank(seq, high)));
        } else if let Some(Passed { key, code, lane, high }) = passed {
            // Its pool may have been forgotten, with nothing else in it.
            self.pool(key.pool, &code);
            match self.keeps(&key) {
                true => self.head_left(&key, seq),
                false => self.make_ready(seq, high, key, lane),
            }
        }
    }
}
