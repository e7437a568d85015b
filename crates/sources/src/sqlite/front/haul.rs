//! What is to be read from the file, and what was.
//!
//! One reader at a time goes with an [`Errand`] and comes back with a [`Haul`]. It reads from one
//! snapshot that is younger than the errand.

use sluicegate_dispatch::Order;
use std::collections::HashMap;
use std::sync::Arc;

use super::super::row::{Content, Head, Key};
use super::{AHEAD_BYTES, Front, Ready};

/// What is to be read.
#[derive(Debug)]
pub(crate) struct Errand {
    epoch: u64,
    /// Bodies of these.
    pub(crate) bare: Vec<i64>,
    /// The next of these keys.
    pub(crate) choosing: Vec<Key>,
    /// Messages in order of their numbers, beyond this one and this many.
    pub(crate) fresh: Option<(i64, usize)>,
    /// Messages in order of their times, beyond this one and up to now.
    pub(crate) due: Option<(i64, i64)>,
    /// What time it is.
    pub(crate) now: i64,
    pub(crate) order: Arc<Order>,
    /// How long the bodies that it brings may be, together.
    pub(crate) room: usize,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Haul {
    pub(crate) loaded: Vec<(i64, Option<Content>)>,
    pub(crate) chosen: Vec<(Key, Option<Fresh>)>,
    pub(crate) fresh: Vec<Fresh>,
    /// The next of each key that is kept in order and is among the fresh ones, where it may be another
    /// than the first of these.
    pub(crate) first: HashMap<Key, Head>,
    pub(crate) due: Vec<Head>,
    /// The first time that has not come.
    pub(crate) next_due: Option<i64>,
    /// Whether there may be more whose time has come.
    pub(crate) more_due: bool,
}

/// A message that was found.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) head: Head,
    /// Read at once where it will be needed, most likely.
    pub(crate) content: Option<Content>,
}

impl Front {
    /// What is to be read now, if anything and if nobody is at it. Whoever gets an errand must end
    /// with [`Front::bring`] or [`Front::not_brought`].
    pub(crate) fn errand(&mut self, now: i64) -> Option<Errand> {
        if self.filling {
            return None;
        }
        let first_bare = self.ready.first_key_value().is_some_and(|(_, (_, r))| r.is_bare());
        let loaded = self.ready.len() - self.bare.len();
        let is_low = loaded < self.ahead.div_ceil(2) && self.bytes < AHEAD_BYTES / 2;
        let has_due = self.next_due.is_some_and(|due| due <= now);
        let has_room = self.ready.len() < self.ahead;
        let wants_rows = has_room && is_low && (self.fresh || has_due);
        let wants_bodies = first_bare || (is_low && !self.bare.is_empty());
        if !wants_rows && !wants_bodies && self.choosing.is_empty() {
            return None;
        }
        self.filling = true;
        let fresh = (has_room && self.fresh).then(|| (self.cursor, self.ahead - self.ready.len()));
        let due = (has_room && has_due).then_some(self.due_cursor);
        // From here on they say what came since.
        self.fresh &= fresh.is_none();
        self.next_due = self.next_due.filter(|_| due.is_none());
        Some(Errand {
            epoch: self.epoch,
            bare: self.bare.iter().copied().take(self.ahead).collect(),
            choosing: std::mem::take(&mut self.choosing),
            fresh,
            due,
            now,
            order: Arc::clone(&self.order),
            room: AHEAD_BYTES.saturating_sub(self.bytes),
        })
    }

    /// Takes in what was read.
    pub(crate) fn bring(&mut self, errand: &Errand, haul: Haul) {
        self.filling = false;
        let raised = std::mem::take(&mut self.raised);
        if errand.epoch != self.epoch {
            self.fresh = true;
            return;
        }
        for (seq, content) in haul.loaded {
            match content {
                Some(content) => self.load(seq, content),
                None => self.vanished(seq),
            }
        }
        if errand.due.is_some() {
            self.bring_due(haul.due, haul.next_due, haul.more_due);
        }
        if let Some((_, limit)) = errand.fresh {
            self.fresh |= haul.fresh.len() >= limit;
            self.bring_fresh(haul.fresh, haul.first);
        }
        for (key, next) in haul.chosen {
            let (head, content) = next.map(|next| (next.head, next.content)).unzip();
            let seq = head.as_ref().map(|head| head.seq);
            self.chosen(&key, head);
            self.load_if_some(seq, content.flatten());
        }
        // Those that the snapshot did not have yet.
        for (key, seq) in raised {
            self.raise(key, seq);
        }
    }

    /// The errand failed: it is to be done again.
    pub(crate) fn not_brought(&mut self, errand: Errand, why: String) {
        self.filling = false;
        self.raised.clear();
        self.read_error = Some(why);
        if errand.epoch == self.epoch {
            self.choosing.extend(errand.choosing);
            self.fresh |= errand.fresh.is_some();
            if errand.due.is_some() {
                self.await_due(i64::MIN);
            }
        }
    }

    fn bring_due(&mut self, due: Vec<Head>, next: Option<i64>, more: bool) {
        for head in due {
            let Head { seq, key, due, high, .. } = head;
            self.due_cursor = (due.unwrap_or(i64::MIN), seq);
            if key.is_kept(&self.order) {
                self.head_due(seq, key, high);
            } else if seq <= self.cursor && !self.out.contains_key(&seq) {
                // What lies beyond the cursor is found, and taken for due, when it is read.
                self.make_ready(seq, key);
            }
        }
        if let Some(next) = if more { Some(i64::MIN) } else { next } {
            self.await_due(next);
        }
    }

    fn bring_fresh(&mut self, fresh: Vec<Fresh>, mut first: HashMap<Key, Head>) {
        for Fresh { head, content } in fresh {
            let seq = head.seq;
            self.cursor = self.cursor.max(seq);
            let due = head.due.filter(|&due| (due, seq) > self.due_cursor);
            if head.key.is_kept(&self.order) {
                self.bring_in_order(head, due, &mut first);
            } else if let Some(due) = due {
                self.await_due(due);
            } else if !self.out.contains_key(&seq) {
                self.make_ready(seq, head.key);
            }
            self.load_if_some(Some(seq), content);
        }
    }

    /// Takes in a message of a pool that keeps order, and when its time comes if that is not yet.
    fn bring_in_order(&mut self, head: Head, due: Option<i64>, first: &mut HashMap<Key, Head>) {
        if head.high
            && let Some(due) = due
        {
            // Then it may go before others.
            self.await_due(due);
        }
        if !self.has_head(&head.key) {
            self.crown(first.remove(&head.key).unwrap_or(head));
        } else if head.high && due.is_none() {
            self.raise(head.key, head.seq);
        }
    }

    /// Takes a body in, if its message is ready.
    fn load_if_some(&mut self, seq: Option<i64>, content: Option<Content>) {
        if let Some((seq, content)) = seq.zip(content) {
            self.load(seq, content);
        }
    }

    /// A message that should be in the file is not: someone else deleted it.
    fn vanished(&mut self, seq: i64) {
        if let Some((key, _)) = self.ready.get(&seq) {
            let key = key.clone();
            self.unready(seq);
            if key.is_kept(&self.order) {
                self.choose_again(&key);
            }
        }
    }
}

impl Ready {
    const fn is_bare(&self) -> bool {
        matches!(self, Self::Bare)
    }
}
