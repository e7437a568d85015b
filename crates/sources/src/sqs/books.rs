//! What is out under which receipt, what is over, and what rests until when. Pure: it is told the
//! time, and asks nobody.
//!
//! A receipt handle of SQS names one delivery of one message, but the service is not exact about old
//! ones: deleting by one that is no more the newest may answer with success and delete nothing, or
//! delete what someone else works on. So who holds the newest receipt is kept here.
//!
//! Invariants:
//! 1. A message is out under one receipt at most: the newest that was handed over.
//! 2. An entry stays until the service has answered definitely, or the message came again.
//! 3. What is over is not handed over again as long as it is remembered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_dispatch::{Receipt, Settled};
use tokio::time::Instant;

use super::recent::Recent;
use super::settings::LONGEST_WINDOW;

/// How many messages that are over are remembered, for the case that they come again.
const REMEMBERED: usize = 20_000;
/// How many messages that were handed back are remembered with their attempts.
const NOTED: usize = 50_000;
/// Entries whose windows ended so long ago are forgotten when there are many.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
const MANY: usize = 10_000;
/// What stands between the two parts of a receipt's text.
const BETWEEN: char = ' ';

/// The books of one source.
#[derive(Debug)]
pub(super) struct Books {
    /// Which source this is, so that another one's receipts are told apart.
    life: u64,
    next: u64,
    out: HashMap<u64, Out>,
    tags: HashMap<Arc<str>, u64>,
    forget_at: usize,
    /// Settled as gone, or to be deleted when they come again.
    over: Recent<()>,
    notes: Recent<Note>,
}

#[derive(Debug)]
struct Out {
    broker_id: Arc<str>,
    received: Instant,
    ends: Instant,
    stage: Stage,
    /// How many calls are under way that begin its window anew.
    extending: u32,
    copy: Option<Arc<Copied>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// It is being written elsewhere; its window goes on.
    Copying,
    /// The service is being asked to delete it or to hand it back.
    Settling,
}

/// A message as it has to be written elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copied {
    pub(super) body: Bytes,
    pub(super) group: Option<Arc<str>>,
    pub(super) attributes: HashMap<String, aws_sdk_sqs::types::MessageAttributeValue>,
}

/// What is known of a message that is not out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    attempts: u32,
    /// Not to be handed over before.
    due: Option<Instant>,
    /// Counted by the service as waiting, since it knows of no delay.
    unseen: bool,
}

/// What a receipt is good for, to begin its window anew.
#[derive(Clone, Debug)]
pub(super) enum Extension {
    Stale,
    /// It is being settled: there is nothing to extend.
    Settling,
    Live(Live),
}

/// A receipt to ask the service with.
#[derive(Clone, Debug)]
pub(super) struct Live {
    /// `None` for a delivery by another source of the same queue.
    tag: Option<u64>,
    pub(super) broker_id: Arc<str>,
    /// The text of the receipt, which holds the handle.
    text: Arc<str>,
    /// Whether its window had ended by our clock.
    pub(super) expired: bool,
    /// How much longer the service may hide it at most.
    pub(super) room: Duration,
    pub(super) copy: Option<Arc<Copied>>,
}

impl Live {
    pub(super) fn handle(&self) -> &str {
        self.text.split_once(BETWEEN).map_or(&*self.text, |(_, handle)| handle)
    }
}

/// What to do with a message that was received.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is over: delete it.
    Over,
    /// It is not due: hide it for so long.
    Early(Duration),
    /// Hand it over, after so many attempts.
    Due(u32),
}

impl Books {
    pub(super) fn new(life: u64) -> Self {
        Self {
            life,
            next: 0,
            out: HashMap::new(),
            tags: HashMap::new(),
            forget_at: MANY,
            over: Recent::new(REMEMBERED),
            notes: Recent::new(NOTED),
        }
    }

    /// What to do with a message that was received.
    pub(super) fn arrived(&mut self, broker_id: &str, now: Instant) -> Arrival {
        if self.over.get(broker_id).is_some() {
            return Arrival::Over;
        }
        let Some(note) = self.notes.get_mut(broker_id) else { return Arrival::Due(0) };
        note.unseen = false;
        match note.due {
            Some(due) if due > now => Arrival::Early(due - now),
            _ => {
                note.due = None;
                Arrival::Due(note.attempts)
            }
        }
    }

    /// Hands a message over; an earlier receipt of it is worth nothing from now on.
    pub(super) fn hand_over(
        &mut self,
        broker_id: &Arc<str>,
        handle: &str,
        now: Instant,
        window: Duration,
        copy: Option<Arc<Copied>>,
    ) -> Receipt {
        self.next += 1;
        let tag = self.next;
        if let Some(old) = self.tags.insert(Arc::clone(broker_id), tag) {
            self.out.remove(&old);
        }
        let broker_id = Arc::clone(broker_id);
        let text = format!("{broker_id}{BETWEEN}{handle}").into();
        let (stage, ends) = (Stage::Open, now + window);
        let out = Out { broker_id, received: now, ends, stage, extending: 0, copy };
        self.out.insert(tag, out);
        self.forget(now);
        Receipt { tag, generation: self.life, handle: Some(text) }
    }

    /// Entries that nobody asks for any more do not pile up.
    fn forget(&mut self, now: Instant) {
        if self.out.len() < self.forget_at {
            return;
        }
        self.out.retain(|_, out| out.ends + FORGET_AFTER > now);
        let out = &self.out;
        self.tags.retain(|_, tag| out.contains_key(tag));
        self.forget_at = MANY.max(self.out.len() * 2);
    }

    /// What to ask the service with, if a receipt is good for anything.
    fn live(&self, receipt: &Receipt, now: Instant) -> Option<Live> {
        let text = receipt.handle.as_ref()?;
        if receipt.generation != self.life {
            return self.foreign(text);
        }
        let out = self.out.get(&receipt.tag)?;
        Some(Live {
            tag: Some(receipt.tag),
            broker_id: Arc::clone(&out.broker_id),
            text: Arc::clone(text),
            expired: out.ends <= now,
            room: LONGEST_WINDOW.saturating_sub(now - out.received),
            copy: out.copy.clone(),
        })
    }

    /// Begins to settle a delivery, unless somebody has begun already.
    pub(super) fn begin_settling(&mut self, receipt: &Receipt, now: Instant) -> Option<Live> {
        self.begin(receipt, Stage::Settling, now)
    }

    /// Begins to write a message elsewhere.
    pub(super) fn begin_copying(&mut self, receipt: &Receipt, now: Instant) -> Option<Live> {
        self.begin(receipt, Stage::Copying, now)
    }

    fn begin(&mut self, receipt: &Receipt, stage: Stage, now: Instant) -> Option<Live> {
        let live = self.live(receipt, now)?;
        if let Some(out) = self.out_of(&live) {
            if out.stage != Stage::Open {
                return None;
            }
            out.stage = stage;
        }
        Some(live)
    }

    /// It is written elsewhere, and over wherever it comes from next.
    pub(super) fn copied(&mut self, live: &Live) {
        if let Some(out) = self.out_of(live) {
            out.stage = Stage::Settling;
        }
        self.over.insert(Arc::clone(&live.broker_id), ());
    }

    /// Whoever settles is answered, or gone. What is still here is out as before.
    pub(super) fn end_settling(&mut self, live: &Live) {
        if let Some(out) = self.out_of(live) {
            out.stage = Stage::Open;
        }
    }

    /// Begins to extend a delivery, until [`end_extending`](Self::end_extending).
    pub(super) fn begin_extending(&mut self, receipt: &Receipt, now: Instant) -> Extension {
        let Some(live) = self.live(receipt, now) else { return Extension::Stale };
        match self.out_of(&live) {
            // What reached the service after a settlement would hide the message anew.
            Some(out) if out.stage == Stage::Settling => Extension::Settling,
            Some(out) => {
                out.extending += 1;
                Extension::Live(live)
            }
            None => Extension::Live(live),
        }
    }

    pub(super) fn end_extending(&mut self, live: &Live) {
        if let Some(out) = self.out_of(live) {
            out.extending = out.extending.saturating_sub(1);
        }
    }

    /// Whether a call is under way that begins its window anew.
    pub(super) fn is_extending(&self, live: &Live) -> bool {
        let out = live.tag.and_then(|tag| self.out.get(&tag));
        out.is_some_and(|out| out.extending > 0)
    }

    fn out_of(&mut self, live: &Live) -> Option<&mut Out> {
        live.tag.and_then(|tag| self.out.get_mut(&tag))
    }

    /// A receipt of a source that this one replaces is still good at the service, unless the message
    /// came again.
    fn foreign(&self, text: &Arc<str>) -> Option<Live> {
        let (broker_id, _) = text.split_once(BETWEEN)?;
        if self.tags.contains_key(broker_id) || self.over.get(broker_id).is_some() {
            return None;
        }
        Some(Live {
            tag: None,
            broker_id: broker_id.into(),
            text: Arc::clone(text),
            expired: true,
            room: LONGEST_WINDOW,
            copy: None,
        })
    }

    /// Whether the window of a delivery that nobody was given yet lasts until then.
    pub(super) fn lasts_until(&self, receipt: &Receipt, time: Instant) -> bool {
        self.out.get(&receipt.tag).is_some_and(|out| out.ends >= time)
    }

    /// The service has deleted it, or says so: by a receipt that had expired that may be untrue.
    pub(super) fn deleted(&mut self, live: &Live) -> Settled {
        if !self.close(live) {
            return Settled::Stale;
        }
        self.notes.remove(&live.broker_id);
        self.over.insert(Arc::clone(&live.broker_id), ());
        if live.expired && live.tag.is_some() { Settled::Stale } else { Settled::Done }
    }

    /// The service does not know the receipt any more. What was to be deleted is deleted when it
    /// comes again.
    pub(super) fn not_deleted(&mut self, live: &Live) -> Settled {
        // Delivered anew meanwhile, it is to be settled by the new receipt.
        if self.close(live) {
            self.over.insert(Arc::clone(&live.broker_id), ());
        }
        Settled::Stale
    }

    /// Whether a message was settled as gone.
    pub(super) fn is_over(&self, broker_id: &str) -> bool {
        self.over.get(broker_id).is_some()
    }

    /// It is going to be handed back. Noted before the service is asked: it may hand the message out
    /// again before its answer is here.
    pub(super) fn hands_back(&mut self, live: &Live, attempts: u32, due: Instant) {
        let note = Note { attempts, due: Some(due), unseen: false };
        self.notes.insert(Arc::clone(&live.broker_id), note);
    }

    /// It was handed back, says the service.
    pub(super) fn handed_back(&mut self, live: &Live) -> Settled {
        // If it is not out any more, it came again already: within its window only by this.
        if self.close(live) || !live.expired { Settled::Done } else { Settled::Stale }
    }

    /// It could not be handed back, since the service does not know the receipt any more.
    pub(super) fn not_handed_back(&mut self, live: &Live) -> Settled {
        self.close(live);
        Settled::Stale
    }

    /// Forgets a delivery. `false` if it was not the newest one of its message any more.
    fn close(&mut self, live: &Live) -> bool {
        let Some(tag) = live.tag else {
            return !self.tags.contains_key(&live.broker_id);
        };
        if self.out.remove(&tag).is_none() {
            return false;
        }
        self.tags.remove(&live.broker_id);
        true
    }

    /// The service has begun the window anew.
    pub(super) fn extended(&mut self, live: &Live, ends: Instant) -> Settled {
        if let Some(out) = self.out_of(live) {
            out.ends = ends;
            return Settled::Done;
        }
        // If it did not come again, it was settled meanwhile.
        if self.came_again(live) { Settled::Stale } else { Settled::Done }
    }

    /// The window is over, says the service: it has ended, unless it was settled meanwhile.
    pub(super) fn expired(&mut self, live: &Live, now: Instant) -> Settled {
        let was_settled = match self.out_of(live) {
            Some(out) if out.stage == Stage::Settling => true,
            Some(out) => {
                out.ends = out.ends.min(now);
                false
            }
            None => live.tag.is_some() && !self.came_again(live),
        };
        if was_settled { Settled::Done } else { Settled::Stale }
    }

    /// Whether the message was handed over again, by another receipt.
    fn came_again(&self, live: &Live) -> bool {
        live.tag.is_some() && self.tags.contains_key(&live.broker_id)
    }

    /// A message was published that may not be handed over before.
    pub(super) fn scheduled(&mut self, broker_id: Arc<str>, due: Instant) {
        self.notes.insert(broker_id, Note { attempts: 0, due: Some(due), unseen: true });
    }

    /// A message that was received and is not due is hidden until then.
    pub(super) fn hidden(&mut self, broker_id: Arc<str>, due: Instant) {
        let attempts = self.notes.get(&broker_id).map_or(0, |note| note.attempts);
        self.notes.insert(broker_id, Note { attempts, due: Some(due), unseen: false });
    }

    /// How many messages rest: all of them, and those that the service counts as waiting.
    pub(super) fn resting(&self, now: Instant) -> (u64, u64) {
        let rests = |note: &&Note| note.due.is_some_and(|due| due > now);
        let resting = self.notes.values().filter(rests);
        resting.fold((0, 0), |(all, unseen), note| (all + 1, unseen + u64::from(note.unseen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);

    fn hand(books: &mut Books, id: &str, handle: &str, now: Instant) -> Receipt {
        books.hand_over(&id.into(), handle, now, WINDOW, None)
    }

    fn live(books: &Books, receipt: &Receipt, now: Instant) -> Live {
        books.live(receipt, now).expect("it is good")
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_newest_receipt_of_a_message_is_good() {
        let (mut books, now) = (Books::new(1), Instant::now());
        let first = hand(&mut books, "b1", "h1", now);
        assert_eq!(live(&books, &first, now).handle(), "h1");
        let second = hand(&mut books, "b1", "h2", now + WINDOW);
        assert!(books.live(&first, now).is_none());
        assert_eq!(live(&books, &second, now + WINDOW).handle(), "h2");
        assert_eq!(books.out.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_not_handed_over_again() {
        let (mut books, now) = (Books::new(1), Instant::now());
        // Deleted in time, too late, and not at all.
        let cases = [
            ("b1", now, true, Settled::Done),
            ("b2", now + WINDOW, true, Settled::Stale),
            ("b3", now + WINDOW, false, Settled::Stale),
        ];
        for (id, time, is_done, expected) in cases {
            let end = if is_done { Books::deleted } else { Books::not_deleted };
            let receipt = hand(&mut books, id, "h", now);
            let live = live(&books, &receipt, time);
            assert_eq!(end(&mut books, &live), expected, "{id}");
            assert_eq!(end(&mut books, &live), Settled::Stale, "{id}");
            assert_eq!(books.arrived(id, time), Arrival::Over, "{id}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_receipt_that_came_too_late_deletes_nothing_that_came_again() {
        let (mut books, now) = (Books::new(1), Instant::now());
        let first = hand(&mut books, "b1", "h1", now);
        let late = live(&books, &first, now + WINDOW);
        hand(&mut books, "b1", "h2", now + WINDOW);
        assert_eq!(books.not_deleted(&late), Settled::Stale);
        assert_eq!(books.deleted(&late), Settled::Stale);
        assert_eq!(books.arrived("b1", now), Arrival::Due(0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_before_its_time_rests_on_and_keeps_its_attempts() {
        let (mut books, now) = (Books::new(1), Instant::now());
        let receipt = hand(&mut books, "b1", "h1", now);
        let delay = Duration::from_secs(50_000);
        let live = live(&books, &receipt, now);
        books.hands_back(&live, 3, now + delay);
        assert_eq!(books.handed_back(&live), Settled::Done);
        let early = now + Duration::from_secs(43_000);
        assert_eq!(books.resting(early), (1, 0));
        assert_eq!(books.arrived("b1", early), Arrival::Early(Duration::from_secs(7_000)));
        books.hidden("b1".into(), now + delay);
        assert_eq!(books.arrived("b1", now + delay), Arrival::Due(3));
        assert_eq!(books.resting(now + delay), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_comes_again_before_the_answer_is_handed_back_all_the_same() {
        let (mut books, now) = (Books::new(1), Instant::now());
        let receipt = hand(&mut books, "b1", "h1", now);
        let before = live(&books, &receipt, now);
        books.hands_back(&before, 2, now);
        assert_eq!(books.arrived("b1", now), Arrival::Due(2));
        let second = hand(&mut books, "b1", "h2", now);
        assert_eq!(books.handed_back(&before), Settled::Done);
        assert_eq!(live(&books, &second, now).handle(), "h2");
    }

    #[tokio::test(start_paused = true)]
    async fn receipts_of_a_source_before_are_good_until_the_message_comes_again() {
        let now = Instant::now();
        let receipt = hand(&mut Books::new(1), "b1", "h1", now);
        let mut books = Books::new(2);
        assert_eq!(live(&books, &receipt, now).handle(), "h1");
        hand(&mut books, "b1", "h2", now);
        assert!(books.live(&receipt, now).is_none());
        let mut books = Books::new(2);
        let foreign = live(&books, &receipt, now);
        assert_eq!(books.deleted(&foreign), Settled::Done);
        assert!(books.live(&receipt, now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn twelve_hours_are_the_most() {
        let (mut books, now) = (Books::new(1), Instant::now());
        let receipt = hand(&mut books, "b1", "h1", now);
        let hour = Duration::from_secs(3600);
        for hours in [0, 1, 12, 13] {
            let room = live(&books, &receipt, now + hour * hours).room;
            assert_eq!(room, hour * 12u32.saturating_sub(hours));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_is_forgotten_in_the_end() {
        let (mut books, now) = (Books::new(1), Instant::now());
        for n in 0..MANY - 1 {
            hand(&mut books, &format!("b{n}"), "h", now);
        }
        let late = now + WINDOW + FORGET_AFTER;
        hand(&mut books, "last", "h", late);
        assert_eq!((books.out.len(), books.tags.len()), (1, 1));
    }
}
