//! What the broker has handed us on one channel and has not heard of yet, by delivery tag.
//!
//! Invariants:
//! 1. An entry is in here from its arrival until the broker is told what became of it, and it is told
//!    once. So there are at most as many as the prefetch allows, and an ack of all up to a tag covers
//!    exactly what waits for it.
//! 2. Tags count up without gaps; those that wait to be handed out come last.
//! 3. A message's name is taken from its arrival until the broker was told and whoever settled it has the
//!    answer, or until it is about to come back, whichever is first: whatever comes back finds its own
//!    name free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{FoundState, Receipt, Settled, SourceError};
use tokio::time::Instant;

use super::answers::Part;
use super::incoming::Incoming;
use super::names::{Identity, Name, Names};
use super::publisher::Queued;

/// The deliveries of one channel.
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    /// Which channel. Zero is none.
    generation: u64,
    /// The tag of the next delivery.
    next: u64,
    /// The tag of the first entry that was not handed out.
    fresh: u64,
    entries: BTreeMap<u64, Entry>,
    /// Tags to hand back or reject as soon as may be.
    returns: Vec<u64>,
    /// Tags to ack above one that is missing, and those that were told since.
    held: Vec<u64>,
    /// How many entries are to be acked.
    acks: usize,
    names: Names,
    /// No window ends before this.
    next_end: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    arrived: Instant,
    handed: Instant,
    /// When its window ends.
    end: Option<Instant>,
    state: State,
    /// Its name, until that may be another's.
    name: Option<Name>,
    incoming: Option<Arc<Incoming>>,
    part: Option<Part>,
    /// Its copy, which is not sent any more when this goes.
    copy: Option<Queued>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits to be handed out.
    Fresh,
    /// It was handed out.
    Out,
    /// A copy of it is being published.
    Copying,
    Ack,
    Return,
    Reject,
}

/// A message that is handed out.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) receipt: Receipt,
    pub(crate) name: Arc<str>,
    pub(crate) incoming: Arc<Incoming>,
}

/// How a delivery is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ack,
    Return,
    Reject,
}

/// What to tell the broker, in this order.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// These go back to the queue.
    pub(crate) returns: Vec<u64>,
    /// These are rejected.
    pub(crate) rejects: Vec<u64>,
    /// All up to this one are done with.
    pub(crate) up_to: Option<u64>,
    /// These are done with.
    pub(crate) singles: Vec<u64>,
    parts: Vec<Part>,
    /// Names that nobody waits with.
    names: Vec<Name>,
    /// When there is more to tell.
    pub(crate) next: Option<Instant>,
}

impl Frames {
    pub(crate) fn is_empty(&self) -> bool {
        self.returns.is_empty()
            && self.rejects.is_empty()
            && self.up_to.is_none()
            && self.singles.is_empty()
    }

    fn take(&mut self, entry: Entry) {
        let name = match (&entry.part, entry.name) {
            (Some(part), Some(name)) => part.keep(name),
            (None, name) => name,
            (Some(_), None) => None,
        };
        self.names.extend(name);
        self.parts.extend(entry.part);
    }

    /// Answers whoever settled them.
    pub(crate) fn answer(self, is_told: bool) {
        for part in self.parts {
            part.answer(if is_told { Settled::Done } else { Settled::Stale });
        }
    }
}

/// How long acks wait for a missing one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// They wait while the missing one is out for less than this.
    pub(crate) age: Duration,
    /// They wait while there are fewer than this.
    pub(crate) most: usize,
}

impl Hold {
    /// Nothing waits.
    pub(crate) const NONE: Self = Self { age: Duration::ZERO, most: 0 };
}

impl Unacked {
    /// Begins with a new channel.
    pub(crate) fn begin(&mut self, generation: u64) {
        self.end();
        (self.generation, self.next, self.fresh) = (generation, 1, 1);
    }

    /// Ends with the channel: whatever was not told is the broker's again. Those who wait are answered, and
    /// copies that were not sent yet are not sent.
    pub(crate) fn end(&mut self) {
        let mut names = std::mem::take(&mut self.names);
        let ended = std::mem::take(self);
        for name in ended.entries.into_values().filter_map(|entry| entry.name) {
            names.leave(name);
        }
        self.names = names;
    }

    /// Takes a delivery in; `false` where its tag is not the next one.
    pub(crate) fn arrive(
        &mut self,
        tag: u64,
        identity: Identity,
        incoming: Incoming,
        now: Instant,
    ) -> bool {
        if tag != self.next {
            return false;
        }
        self.next += 1;
        let name = self.names.take(identity, self.generation, tag, now);
        let entry = Entry {
            arrived: now,
            handed: now,
            end: None,
            state: State::Fresh,
            name: Some(name),
            incoming: Some(Arc::new(incoming)),
            part: None,
            copy: None,
        };
        self.entries.insert(tag, entry);
        true
    }

    /// The entry of a receipt, in one of these states.
    fn entry(&mut self, receipt: &Receipt, states: &[State]) -> Option<&mut Entry> {
        if receipt.generation != self.generation || receipt.handle.is_some() {
            return None;
        }
        self.entries.get_mut(&receipt.tag).filter(|entry| states.contains(&entry.state))
    }

    fn out(&mut self, receipt: &Receipt) -> Option<&mut Entry> {
        self.entry(receipt, &[State::Out])
    }

    /// Hands out at most `max` that wait.
    pub(crate) fn hand_out(
        &mut self,
        max: usize,
        now: Instant,
        window: Option<Duration>,
    ) -> Vec<Handed> {
        let end = window.map(|window| now + window);
        let generation = self.generation;
        let mut handed = Vec::new();
        for (tag, entry) in self.entries.range_mut(self.fresh..).take(max) {
            (entry.state, entry.handed, entry.end) = (State::Out, now, end);
            let (Some(incoming), Some(name)) = (&entry.incoming, &entry.name) else { continue };
            handed.push(Handed {
                receipt: Receipt { tag: *tag, generation, handle: None },
                name: Arc::clone(name.text()),
                incoming: Arc::clone(incoming),
            });
        }
        if let Some(last) = handed.last() {
            self.fresh = last.receipt.tag + 1;
            self.next_end = self.next_end.into_iter().chain(end).min();
        }
        handed
    }

    /// Begins a window anew; `false` where the receipt is not valid.
    pub(crate) fn extend(&mut self, receipt: &Receipt, end: Option<Instant>) -> bool {
        match self.entry(receipt, &[State::Out, State::Copying]) {
            Some(entry) => {
                entry.end = end;
                true
            }
            None => false,
        }
    }

    /// Notes how a delivery ends. Where the receipt is not valid its part is stale.
    pub(crate) fn settle(&mut self, receipt: &Receipt, end: End, part: Part) -> bool {
        let Some(entry) = self.out(receipt) else { return false };
        entry.part = Some(part);
        self.mark(receipt.tag, end);
        true
    }

    fn mark(&mut self, tag: u64, end: End) {
        let Some(entry) = self.entries.get_mut(&tag) else { return };
        (entry.incoming, entry.copy) = (None, None);
        match end {
            End::Ack => {
                entry.state = State::Ack;
                self.acks += 1;
                self.held.push(tag);
            }
            End::Return => {
                entry.state = State::Return;
                // From now on the message may come again.
                if let Some(name) = entry.name.take() {
                    self.names.leave(name);
                }
                self.returns.push(tag);
            }
            End::Reject => {
                entry.state = State::Reject;
                self.returns.push(tag);
            }
        }
    }

    /// What a receipt is of, to publish a copy of it. The copy may come while the first one is still
    /// here, and has its name then.
    pub(crate) fn copy(&mut self, receipt: &Receipt, part: Part) -> Option<Copying> {
        let entry = self.out(receipt)?;
        let name = entry.name.clone()?;
        let incoming = Arc::clone(entry.incoming.as_ref()?);
        (entry.state, entry.part) = (State::Copying, Some(part));
        let arrived = entry.arrived;
        self.names.lend(&name);
        Some(Copying { name: Arc::clone(name.text()), incoming, arrived })
    }

    /// Keeps what its copy is in line by; gives it back where it is not being copied any more.
    pub(crate) fn queued(&mut self, receipt: &Receipt, queued: Queued) -> Option<Queued> {
        match self.entry(receipt, &[State::Copying]) {
            Some(entry) => {
                entry.copy = Some(queued);
                None
            }
            None => Some(queued),
        }
    }

    /// What a receipt is of.
    pub(crate) fn incoming(&mut self, receipt: &Receipt) -> Option<&Arc<Incoming>> {
        self.out(receipt).and_then(|entry| entry.incoming.as_ref())
    }

    /// Hears what became of a copy. Where there is none, the delivery is out again.
    pub(crate) fn copied(
        &mut self,
        receipt: &Receipt,
        copied: Result<(), SourceError>,
        end: Option<Instant>,
    ) {
        let Some(entry) = self.entry(receipt, &[State::Copying]) else { return };
        match copied {
            Ok(()) => {
                self.mark(receipt.tag, End::Ack);
            }
            Err(error) => {
                (entry.state, entry.end, entry.copy) = (State::Out, end, None);
                let (part, name) = (entry.part.take(), entry.name.clone());
                if let Some(name) = name {
                    self.names.take_back(&name);
                }
                self.next_end = self.next_end.into_iter().chain(end).min();
                if let Some(part) = part {
                    part.answer(Settled::Failed(error));
                }
            }
        }
    }

    /// Hands back what was never handed out.
    pub(crate) fn return_fresh(&mut self) {
        let tags: Vec<u64> = self.entries.range(self.fresh..).map(|(tag, _)| *tag).collect();
        for tag in tags {
            self.mark(tag, End::Return);
        }
        self.fresh = self.next;
    }

    /// Hands back whatever was out for longer than its window.
    fn sweep(&mut self, now: Instant) {
        if self.next_end.is_none_or(|end| end > now) {
            return;
        }
        self.next_end = None;
        let mut over = Vec::new();
        for (tag, entry) in &self.entries {
            match entry.end.filter(|_| entry.state == State::Out) {
                Some(end) if end <= now => over.push(*tag),
                end => self.next_end = self.next_end.into_iter().chain(end).min(),
            }
        }
        for tag in over {
            self.mark(tag, End::Return);
        }
    }

    /// What is to be told now, which counts as told from here on.
    pub(crate) fn frames(&mut self, now: Instant, hold: Hold) -> Frames {
        self.sweep(now);
        let mut frames = Frames::default();
        for tag in std::mem::take(&mut self.returns) {
            let Some(entry) = self.entries.remove(&tag) else { continue };
            match entry.state {
                State::Return => frames.returns.push(tag),
                _ => frames.rejects.push(tag),
            }
            frames.take(entry);
        }
        self.tell_front(&mut frames);
        self.tell_above(&mut frames, now, hold);
        frames.next = frames.next.into_iter().chain(self.next_end).min();
        frames
    }

    /// What is settled at the front goes, told by one frame.
    fn tell_front(&mut self, frames: &mut Frames) {
        while let Some(first) = self.entries.first_entry()
            && first.get().state == State::Ack
        {
            let (tag, entry) = first.remove_entry();
            frames.up_to = Some(tag);
            self.acks -= 1;
            frames.take(entry);
        }
    }

    /// What is settled above a missing one waits a while for that, and is then told one by one.
    fn tell_above(&mut self, frames: &mut Frames, now: Instant, hold: Hold) {
        let Some(front) = self.entries.values().next().filter(|_| self.acks > 0) else {
            self.held.clear();
            return;
        };
        let until = front.handed + hold.age;
        if self.acks < hold.most && until > now {
            frames.next = Some(until);
            self.forget_told();
            return;
        }
        for tag in std::mem::take(&mut self.held) {
            let is_ack = |entry: &Entry| entry.state == State::Ack;
            if self.entries.get(&tag).is_some_and(is_ack)
                && let Some(entry) = self.entries.remove(&tag)
            {
                frames.singles.push(tag);
                self.acks -= 1;
                frames.take(entry);
            }
        }
    }

    /// The list of held tags stays in proportion to what is here.
    fn forget_told(&mut self) {
        if self.held.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.held.retain(|tag| entries.get(tag).is_some_and(|entry| entry.state == State::Ack));
        }
    }

    /// Hears that frames were told, or could not be.
    pub(crate) fn told(&mut self, frames: &mut Frames, now: Instant) {
        self.rest(std::mem::take(&mut frames.names), now);
    }

    /// These messages are done, and whoever settled them has the answer.
    pub(crate) fn rest(&mut self, names: Vec<Name>, now: Instant) {
        for name in names {
            self.names.rest(name, now);
        }
    }

    /// How many wait to be handed out, and how many are out.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let fresh = self.entries.values().filter(|entry| entry.state == State::Fresh).count();
        (fresh, self.entries.len() - fresh)
    }

    /// Since when the oldest delivery is here unsettled, waiting or out.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let unsettled =
            |entry: &&Entry| matches!(entry.state, State::Fresh | State::Out | State::Copying);
        self.entries.values().find(unsettled).map(|entry| entry.arrived)
    }

    /// Those that are here, waiting or out, since when, and where they stand.
    pub(crate) fn here(&self) -> Vec<(Arc<Incoming>, Instant, FoundState)> {
        let here = self.entries.values().filter_map(|entry| {
            let state = match entry.state {
                State::Fresh => FoundState::Ready,
                State::Out => FoundState::Out,
                _ => return None,
            };
            Some((Arc::clone(entry.incoming.as_ref()?), entry.arrived, state))
        });
        here.collect()
    }
}

/// A message of which a copy is to be published.
#[derive(Debug)]
pub(crate) struct Copying {
    pub(crate) name: Arc<str>,
    pub(crate) incoming: Arc<Incoming>,
    pub(crate) arrived: Instant,
}

#[cfg(test)]
mod tests;
