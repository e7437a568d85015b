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
    /// When the broker has last answered what had waited longest.
    answered: Instant,
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
        let (outbox, pending, answered) = (VecDeque::new(), BTreeMap::new(), Instant::now());
        Self { shelf, outbox, pending, answered, next_receipt: 1, is_subscribed, was_useful: false }
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

    /// Takes the answer that a number waits for.
    fn take_pending(&mut self, number: u64) -> Option<Step> {
        let is_oldest = self.pending.first_key_value().is_some_and(|(oldest, _)| *oldest == number);
        let (_, step) = self.pending.remove(&number)?;
        self.was_useful = true;
        if is_oldest {
            self.answered = Instant::now();
        }
        Some(step)
    }

    /// Ends a delivery for good, if its receipt is valid.
    pub(crate) fn end_out(
        &mut self,
        receipt: &Receipt,
        owed: Owed,
        asker: Asker,
        replies: &mut Replies,
    ) {
        match self.shelf.begin_settling(receipt, Instant::now()) {
            Some(place) => self.end(End { place, owed, asker: Some(asker) }),
            None => replies.settled(asker, Settled::Stale),
        }
    }

    /// Ends a message that is being settled. Each has a frame and a receipt of its own, and none waits for that of
    /// another. A transaction would let the broker sync once for several; but up to 5.17 at least it remembers all
    /// that was acknowledged individually in transactions while the subscription lives, and looks through it at each
    /// commit.
    pub(crate) fn end(&mut self, end: End) {
        if let Some(frame) = self.frame_of(&end) {
            self.ask(frame, Step::Ended(end));
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
        match self.take_pending(number) {
            None => Vec::new(),
            Some(Step::Ended(end)) => {
                self.ended(end, replies);
                Vec::new()
            }
            Some(Step::Published { dues, asker }) => {
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
        match self.take_pending(number).ok_or(Unknown)? {
            Step::Ended(end) => {
                self.shelf.end_settling(end.place, Instant::now() + window);
                if let Some(asker) = end.asker {
                    replies.settled(asker, Settled::Failed(why.clone()));
                }
            }
            Step::Published { asker, .. } => replies.published(asker, Err(why.clone())),
        }
        Ok(())
    }

    /// Ends this life. What was not confirmed is not known; answers the broker's ids of what was about
    /// to end for good.
    pub(crate) fn lose(self, cause: &SourceError, replies: &mut Replies) -> Vec<(Arc<str>, Owed)> {
        let (mut all_owed, shelf) = (Vec::new(), self.shelf);
        for (_, step) in self.pending.into_values() {
            match step {
                Step::Ended(End { place, owed, asker }) => {
                    let parcel = shelf.parcel(place);
                    all_owed.extend(parcel.map(|parcel| (Arc::clone(&parcel.message_id), owed)));
                    if let Some(asker) = asker {
                        replies.settled(asker, Settled::Stale);
                    }
                }
                Step::Published { asker, .. } => replies.published(asker, Err(cause.clone())),
            }
        }
        all_owed
    }

    /// What is to be written.
    pub(crate) fn take_outbox(&mut self) -> VecDeque<Frame> {
        std::mem::take(&mut self.outbox)
    }

    /// Since when the oldest question is the next to be answered. The broker answers one after the other: what is
    /// behind many others waits for theirs first.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(_, (since, _))| self.answered.max(*since))
    }

    /// Whether somebody has something to settle, or waits for an answer.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.shelf.has_out(Instant::now()) || !self.pending.is_empty()
    }
}

fn due_of(frame: &Frame) -> Option<u64> {
    frame.header(super::parcel::DUE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stomp::parcel::Parcel;

    /// The last of many waits long for its receipt, and the broker is well. One that is passed over is noticed.
    #[tokio::test(start_paused = true)]
    async fn who_answers_one_after_the_other_is_not_late() {
        let mut link = Link::new(true);
        for n in 0..4 {
            let name = n.to_string();
            let frame = Frame::new(Command::Message).with("ack", &*name).with("message-id", &*name);
            let place = link.shelf.put_settling(Arc::new(Parcel::new(frame).expect("its ids")));
            link.end(End { place, owed: Owed::Ack, asker: None });
        }
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        let mut confirm = |number: u64| {
            link.confirm(number, &mut Replies::default());
            link.waiting_since().map(|since| since - begun)
        };
        let mut waiting = Vec::new();
        for number in [1, 3, 2, 4] {
            tokio::time::advance(second).await;
            waiting.push(confirm(number));
        }
        assert_eq!(waiting, [Some(second), Some(second), Some(3 * second), None]);
    }
}
