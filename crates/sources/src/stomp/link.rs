//! One life of the connection: what is here, what is to be written, and what waits for receipts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{Receipt, Settled, SourceError};
use tokio::time::Instant;

use super::frame::{Command, Frame};
use super::shelf::Shelf;
use super::tally::{Asker, Publisher, Replies};

static NEXT_GENERATION: AtomicU64 = AtomicU64::new(1);

/// One life of the connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shelf: Shelf,
    outbox: VecDeque<Frame>,
    /// What waits for the broker's receipts, by their numbers.
    pending: BTreeMap<u64, (Instant, Step)>,
    next_receipt: u64,
    /// Whether the broker sends us messages.
    is_subscribed: bool,
    /// Whether the broker has confirmed anything.
    pub(crate) was_useful: bool,
}

/// What a receipt of the broker leads to.
#[derive(Debug)]
enum Step {
    /// A message has ended.
    Ended(End),
    /// Several have, in one transaction.
    EndedTogether(Vec<End>),
    /// Messages were taken in.
    Published { dues: Vec<u64>, asker: Publisher },
}

/// Nothing was asked for under that number.
#[derive(Debug)]
pub(crate) struct Unknown;

/// The end of a message that is being settled.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) place: u64,
    pub(crate) owed: Owed,
    pub(crate) asker: Option<Asker>,
}

/// How a message ends at the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    Ack,
    Nack,
}

impl Link {
    pub(crate) fn new(is_subscribed: bool) -> Self {
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        let shelf = Shelf::new(generation);
        let (outbox, pending) = (VecDeque::new(), BTreeMap::new());
        Self { shelf, outbox, pending, next_receipt: 1, is_subscribed, was_useful: false }
    }

    pub(crate) const fn generation(&self) -> u64 {
        self.shelf.generation()
    }

    /// Subscribes, unless that was done before; says whether there is something to write now.
    pub(crate) fn subscribe(&mut self, subscription: impl FnOnce() -> Frame) -> bool {
        if std::mem::replace(&mut self.is_subscribed, true) {
            return false;
        }
        self.outbox.push_back(subscription());
        true
    }

    /// Writes a frame whose receipt leads to a step.
    fn ask(&mut self, frame: Frame, then: Step) {
        let number = self.next_receipt;
        self.next_receipt += 1;
        self.outbox.push_back(frame.with("receipt", number.to_string()));
        self.pending.insert(number, (Instant::now(), then));
    }

    /// Takes a delivery to end it for good, if its receipt is valid.
    pub(crate) fn begin_end(
        &mut self,
        receipt: &Receipt,
        owed: Owed,
        asker: Asker,
        replies: &mut Replies,
    ) -> Option<End> {
        let place = self.shelf.begin_settling(receipt, Instant::now());
        match place {
            Some(place) => Some(End { place, owed, asker: Some(asker) }),
            None => {
                replies.settled(asker, Settled::Stale);
                None
            }
        }
    }

    /// Ends messages that are being settled, all in one transaction if there are several: then the
    /// broker syncs once.
    pub(crate) fn end(&mut self, ends: Vec<End>) {
        match <[End; 1]>::try_from(ends) {
            Ok([end]) => {
                if let Some(frame) = self.frame_of(&end) {
                    self.ask(frame, Step::Ended(end));
                }
            }
            Err(ends) if ends.is_empty() => {}
            Err(ends) => {
                let name = self.next_receipt.to_string();
                let of = |command| Frame::new(command).with("transaction", &*name);
                let all: Vec<_> = ends.iter().filter_map(|end| self.frame_of(end)).collect();
                self.outbox.push_back(of(Command::Begin));
                self.outbox.extend(all.into_iter().map(|frame| frame.with("transaction", &*name)));
                self.ask(of(Command::Commit), Step::EndedTogether(ends));
            }
        }
    }

    fn frame_of(&self, end: &End) -> Option<Frame> {
        let parcel = self.shelf.parcel(end.place)?;
        Some(match end.owed {
            Owed::Ack => parcel.acknowledged(),
            Owed::Nack => parcel.refused(),
        })
    }

    fn ended(&mut self, end: End, replies: &mut Replies) {
        self.shelf.finish(end.place, end.asker.as_ref().map(|(tally, _)| tally));
        if let Some(asker) = end.asker {
            replies.settled(asker, Settled::Done);
        }
    }

    /// Sends messages, all in one transaction if there are several.
    pub(crate) fn publish(&mut self, frames: Vec<Frame>, asker: Publisher) {
        let dues = frames.iter().filter_map(due_of).collect();
        let done = Step::Published { dues, asker };
        match <[Frame; 1]>::try_from(frames) {
            Ok([frame]) => self.ask(frame, done),
            Err(frames) => {
                let name = self.next_receipt.to_string();
                let of = |command| Frame::new(command).with("transaction", &*name);
                self.outbox.push_back(of(Command::Begin));
                self.outbox
                    .extend(frames.into_iter().map(|frame| frame.with("transaction", &*name)));
                self.ask(of(Command::Commit), done);
            }
        }
    }

    /// Goes on with what waited for a receipt. Answers when delays of what was sent end.
    pub(crate) fn confirm(&mut self, number: u64, replies: &mut Replies) -> Vec<u64> {
        self.was_useful = true;
        match self.pending.remove(&number) {
            None => Vec::new(),
            Some((_, Step::Ended(end))) => {
                self.ended(end, replies);
                Vec::new()
            }
            Some((_, Step::EndedTogether(ends))) => {
                ends.into_iter().for_each(|end| self.ended(end, replies));
                Vec::new()
            }
            Some((_, Step::Published { dues, asker })) => {
                replies.published(asker, Ok(()));
                dues
            }
        }
    }

    /// The broker does not do what a receipt was asked for: that alone has failed.
    ///
    /// # Errors
    /// There is nothing of that number.
    pub(crate) fn refuse(
        &mut self,
        number: u64,
        why: &SourceError,
        window: Duration,
        replies: &mut Replies,
    ) -> Result<(), Unknown> {
        let (_, step) = self.pending.remove(&number).ok_or(Unknown)?;
        self.was_useful = true;
        let until = Instant::now() + window;
        let mut fail = |place: u64, asker: Option<Asker>| {
            self.shelf.end_settling(place, until);
            if let Some(asker) = asker {
                replies.settled(asker, Settled::Failed(why.clone()));
            }
        };
        match step {
            Step::Ended(end) => fail(end.place, end.asker),
            Step::EndedTogether(ends) => {
                ends.into_iter().for_each(|end| fail(end.place, end.asker));
            }
            Step::Published { asker, .. } => replies.published(asker, Err(why.clone())),
        }
        Ok(())
    }

    /// Ends this life. What was not confirmed is not known; answers the broker's ids of what was about
    /// to end for good.
    pub(crate) fn lose(self, cause: &SourceError, replies: &mut Replies) -> Vec<(Arc<str>, Owed)> {
        let (mut all_owed, shelf) = (Vec::new(), self.shelf);
        let mut lose = |end: End, replies: &mut Replies| {
            let parcel = shelf.parcel(end.place);
            all_owed.extend(parcel.map(|parcel| (Arc::clone(&parcel.message_id), end.owed)));
            if let Some(asker) = end.asker {
                replies.settled(asker, Settled::Stale);
            }
        };
        for (_, step) in self.pending.into_values() {
            match step {
                Step::Ended(end) => lose(end, replies),
                Step::EndedTogether(ends) => ends.into_iter().for_each(|end| lose(end, replies)),
                Step::Published { asker, .. } => replies.published(asker, Err(cause.clone())),
            }
        }
        all_owed
    }

    /// What is to be written.
    pub(crate) fn take_outbox(&mut self) -> VecDeque<Frame> {
        std::mem::take(&mut self.outbox)
    }

    /// Since when the oldest question waits for its answer.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(_, (since, _))| *since)
    }

    /// Whether somebody has something to settle, or waits for an answer.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.shelf.has_out(Instant::now()) || !self.pending.is_empty()
    }
}

fn due_of(frame: &Frame) -> Option<u64> {
    frame.header(super::parcel::DUE)?.parse().ok()
}
