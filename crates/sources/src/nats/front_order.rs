//! Order across deliveries: what waits for messages that are on their way back.

use std::num::NonZero;

use tokio::time::Instant;

use super::super::hold::{Hold, LATE, Verdict};
use super::{Arrived, Entry, Front, Out, Stage};

/// How many messages may wait in a hold while others, which need no order, are asked for.
const HELD: usize = 1_000;

/// Which messages stay in order.
pub(in super::super) struct Kept<B> {
    /// Whether this one does.
    pub(in super::super) keeps: Box<dyn Fn(&B) -> bool + Send>,
    /// Whether all do, so that nothing can pass what waits.
    pub(in super::super) all: bool,
}

impl<B> Front<B> {
    pub(in super::super) fn hold(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// From here on all deliveries are ours, and a gap in their count is noticed.
    pub(in super::super) const fn count_from(&mut self, count: u64) {
        self.counted = Some(count);
        self.is_fresh = true;
    }

    /// Whether nothing has come from this consumer yet.
    pub(in super::super) const fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// From here on these messages stay in order. Others that are held go on.
    pub(in super::super) fn keep_order(&mut self, kept: Kept<B>) {
        self.kept = Some(kept);
        let Some(mut hold) = self.hold.take() else { return };
        let waits = |seq: &u64| {
            let waiting = self.entries.get(seq).and_then(|entry| entry.waiting.as_ref());
            waiting.is_some_and(|arrived| self.is_kept(&arrived.body))
        };
        let (waiting, passing): (Vec<u64>, Vec<u64>) = hold.held().partition(|seq| waits(seq));
        hold.only(waiting);
        self.hold = Some(hold);
        self.queue.extend(passing);
    }

    /// Until somebody says which messages stay in order, all do.
    fn is_kept(&self, body: &B) -> bool {
        self.kept.as_ref().is_none_or(|kept| (kept.keeps)(body))
    }

    /// Whether somebody has asked for order, from a consumer whose deliveries are all ours.
    const fn minds_order(&self) -> bool {
        self.counted.is_some() && self.kept.is_some()
    }

    /// Whether a message that has arrived waits for others.
    pub(super) fn look(&mut self, arrived: &Arrived<B>, asked: Instant) -> Verdict {
        let Some(hold) = &mut self.hold else { return Verdict::Passes };
        if hold.look(arrived.seq, asked) == Verdict::Passes {
            return Verdict::Passes;
        }
        if self.is_kept(&arrived.body) {
            return Verdict::Waits;
        }
        if let Some(hold) = &mut self.hold {
            hold.let_pass(arrived.seq);
        }
        Verdict::Passes
    }

    pub(super) fn count(&mut self, seq: u64, count: u64, now: Instant) {
        let minds_order = self.minds_order();
        let Some(before) = &mut self.counted else { return };
        let missed = count.saturating_sub(std::mem::replace(before, count) + 1);
        let missed = usize::try_from(missed).unwrap_or(usize::MAX);
        if missed == 0 || !minds_order {
            return;
        }
        let (floor, until) = (seq.saturating_sub(1), now + self.window + LATE);
        match &mut self.hold {
            Some(hold) => hold.miss(missed, floor, until),
            None => self.hold = Hold::new(floor, missed, until),
        }
    }

    /// A message that waited here for too long comes again: if it stays in order, so do those behind it
    /// that do, and wait for it.
    pub(super) fn hold_for(&mut self, late: &Arrived<B>, now: Instant) {
        if !self.minds_order() || !self.is_kept(&late.body) {
            return;
        }
        let until = now + self.window + LATE;
        let mut hold = match self.hold.take() {
            Some(mut hold) => {
                hold.miss(1, late.seq, until);
                hold
            }
            None => match Hold::new(late.seq, 1, until) {
                Some(hold) => hold,
                None => return,
            },
        };
        let behind = std::mem::take(&mut self.queue);
        for seq in behind {
            let waiting = self.entries.get(&seq).and_then(|entry| entry.waiting.as_ref());
            match waiting.is_some_and(|arrived| self.is_kept(&arrived.body)) {
                true => hold.wait(seq),
                false => self.queue.push_back(seq),
            }
        }
        self.hold = Some(hold);
    }

    /// What is held waits no longer, and nothing stays in order.
    pub(in super::super) fn release_hold(&mut self) {
        self.kept = None;
        let held = self.hold.take().map(Hold::into_held).unwrap_or_default();
        // What was held is newer than what has arrived, and older than what is yet to come.
        self.queue.extend(held);
    }

    pub(super) fn end_hold_if_over(&mut self) {
        if !self.hold.as_ref().is_some_and(Hold::is_over) {
            return;
        }
        // The one whose arrival ended it is newer than what was held.
        let is_new = |seq: &u64, held: &[u64]| held.first().is_some_and(|first| seq > first);
        let held = self.hold.take().map(Hold::into_held).unwrap_or_default();
        let at = self.queue.iter().position(|seq| is_new(seq, &held)).unwrap_or(self.queue.len());
        let newer = self.queue.split_off(at);
        self.queue.extend(held);
        self.queue.extend(newer);
    }

    /// Nothing came when it was asked for.
    pub(in super::super) fn nothing_arrived(&mut self, asked: Instant) {
        if let Some(hold) = &mut self.hold {
            hold.look_at_nothing(asked);
        }
        self.end_hold_if_over();
    }

    /// Whether the server is to be asked what an earlier life has left, before anything new is.
    pub(in super::super) fn is_hold_in_question(&self, now: Instant) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_in_question(now))
    }

    /// How many are late and asked for before anything else.
    pub(in super::super) fn missing(&self) -> Option<NonZero<usize>> {
        self.hold.as_ref().and_then(Hold::missing)
    }

    /// The server waits for so many: if those are more than are here, the hold goes on for a while. What
    /// is being settled just now may or may not be among them, and counts as not here: a hold that is a
    /// little too long does no harm.
    pub(in super::super) fn hear_of_unsettled(&mut self, unsettled: usize, now: Instant) {
        let is_out = |out: &Out| matches!(out.stage, Stage::Open | Stage::Copying);
        let is_known = |entry: &&Entry<B>| {
            entry.waiting.is_some()
                || entry.out.as_ref().is_some_and(is_out)
                || entry.not_before.is_some_and(|time| time > now)
        };
        let known = self.entries.values().filter(is_known).count();
        if let Some(hold) = &mut self.hold {
            hold.hear_of_missing(unsettled.saturating_sub(known), self.window, now);
        }
    }

    /// When to ask again, where asking now would bring nothing that may be handed out.
    pub(in super::super) fn pause(&self, now: Instant) -> Option<Instant> {
        let hold = self.hold.as_ref()?;
        let any_may_pass = self.kept.as_ref().is_some_and(|kept| !kept.all);
        if any_may_pass && hold.held().count() < HELD {
            return None;
        }
        hold.pause(now)
    }
}
