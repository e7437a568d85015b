//! What the broker has handed us on one channel, by delivery tag.
//!
//! Tags count up from one without gaps, so a message is found at its distance from the oldest one.
//!
//! Invariants:
//! 1. Entries are in the order of their tags; those that wait to be handed out come last.
//! 2. The oldest entry is one that the broker was not told about: what is told at the front goes.
//! 3. An entry is told once. So an ack of all up to a tag covers exactly what waits for it.
//! 4. A message's name is taken from its arrival until the broker was told, or until it is about to
//!    come back, whichever is first: whatever comes back finds its own name free.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Receipt, SourceError};
use tokio::time::Instant;

use super::letter::Letter;
use super::names::{Name, Names};
use super::ticket::{Ticket, Tickets, Told};

/// The deliveries of one channel.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Which channel. Zero is none.
    generation: u64,
    /// The tag of the first entry.
    first: u64,
    /// The tag of the first entry that was not handed out.
    fresh: u64,
    entries: VecDeque<Entry>,
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
    /// Its name, until that is free.
    name: Option<Name>,
    letter: Option<Arc<Letter>>,
    ticket: Option<Arc<Ticket>>,
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
    Told,
}

/// A message that is handed out.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) receipt: Receipt,
    pub(crate) name: Arc<str>,
    pub(crate) letter: Arc<Letter>,
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
    pub(crate) generation: u64,
    /// These go back to the queue.
    pub(crate) returns: Vec<u64>,
    /// These are rejected.
    pub(crate) rejects: Vec<u64>,
    /// All up to this one are done with.
    pub(crate) up_to: Option<u64>,
    /// These are done with.
    pub(crate) singles: Vec<u64>,
    pub(crate) tickets: Tickets,
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

impl Ring {
    /// Begins with a new channel.
    pub(crate) fn begin(&mut self, generation: u64) {
        self.end();
        (self.generation, self.first, self.fresh) = (generation, 1, 1);
    }

    /// Ends with the channel: whatever was not told is the broker's again.
    pub(crate) fn end(&mut self) {
        let mut tickets = Tickets::default();
        for entry in self.entries.drain(..) {
            tickets.push(entry.ticket);
        }
        tickets.conclude(&Told::Lost);
        let mut names = std::mem::take(&mut self.names);
        names.forget_used();
        *self = Self { names, ..Self::default() };
    }

    /// Takes a delivery in; `false` where its tag is not the next one.
    pub(crate) fn arrive(&mut self, tag: u64, id: Arc<str>, letter: Letter, now: Instant) -> bool {
        if tag != self.first + self.entries.len() as u64 {
            return false;
        }
        let name = Some(self.names.take(id, now));
        self.entries.push_back(Entry {
            arrived: now,
            handed: now,
            end: None,
            state: State::Fresh,
            name,
            letter: Some(Arc::new(letter)),
            ticket: None,
        });
        true
    }

    fn at(&mut self, tag: u64) -> Option<&mut Entry> {
        let index = usize::try_from(tag.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    /// The entry of a receipt, where it is out.
    fn out(&mut self, receipt: &Receipt) -> Option<&mut Entry> {
        if receipt.generation != self.generation || receipt.handle.is_some() {
            return None;
        }
        self.at(receipt.tag).filter(|entry| entry.state == State::Out)
    }

    /// Hands out at most `max` that wait.
    pub(crate) fn hand_out(
        &mut self,
        max: usize,
        now: Instant,
        window: Option<Duration>,
    ) -> Vec<Handed> {
        let start = usize::try_from(self.fresh - self.first.min(self.fresh)).unwrap_or(0);
        let count = (self.entries.len() - start.min(self.entries.len())).min(max);
        let end = window.map(|window| now + window);
        let (generation, fresh) = (self.generation, self.fresh);
        let mut handed = Vec::with_capacity(count);
        for (entry, tag) in self.entries.iter_mut().skip(start).take(count).zip(fresh..) {
            (entry.state, entry.handed, entry.end) = (State::Out, now, end);
            let letter = entry.letter.as_ref().expect("it keeps its letter until it is told");
            let name = entry.name.as_ref().expect("it keeps its name until it is settled");
            handed.push(Handed {
                receipt: Receipt { tag, generation, handle: None },
                name: name.text(),
                letter: Arc::clone(letter),
            });
        }
        self.fresh += count as u64;
        if count > 0 {
            self.next_end = self.next_end.into_iter().chain(end).min();
        }
        handed
    }

    /// Begins a window anew; `false` where the receipt is not valid.
    pub(crate) fn extend(&mut self, receipt: &Receipt, end: Option<Instant>) -> bool {
        if receipt.generation != self.generation || receipt.handle.is_some() {
            return false;
        }
        let Some(entry) = self.at(receipt.tag) else { return false };
        match entry.state {
            State::Out | State::Copying => entry.end = end,
            _ => return false,
        }
        true
    }

    /// Notes how a delivery ends; `false` where the receipt is not valid.
    pub(crate) fn settle(&mut self, receipt: &Receipt, end: End, ticket: &Arc<Ticket>) -> bool {
        let Some(entry) = self.out(receipt) else { return false };
        ticket.add();
        entry.ticket = Some(Arc::clone(ticket));
        self.mark(receipt.tag, end);
        true
    }

    fn mark(&mut self, tag: u64, end: End) {
        let Some(entry) = self.at(tag) else { return };
        entry.letter = None;
        match end {
            End::Ack => {
                entry.state = State::Ack;
                self.acks += 1;
                self.held.push(tag);
            }
            End::Return | End::Reject => {
                entry.state = if end == End::Return { State::Return } else { State::Reject };
                self.free(tag);
                self.returns.push(tag);
            }
        }
    }

    /// Gives a name back: from now on the message may come again.
    fn free(&mut self, tag: u64) {
        if let Some(name) = self.at(tag).and_then(|entry| entry.name.take()) {
            self.names.free(&name);
        }
    }

    /// What a receipt is of, to publish a copy of it. The copy may come while the first one is still
    /// here, so its name is free from now on.
    pub(crate) fn copy(
        &mut self,
        receipt: &Receipt,
        ticket: &Arc<Ticket>,
    ) -> Option<(Arc<str>, Arc<Letter>)> {
        let entry = self.out(receipt)?;
        ticket.add();
        entry.state = State::Copying;
        entry.ticket = Some(Arc::clone(ticket));
        let id = Arc::clone(entry.name.as_ref()?.id());
        let letter = Arc::clone(entry.letter.as_ref()?);
        self.free(receipt.tag);
        Some((id, letter))
    }

    /// What a receipt is of.
    pub(crate) fn letter(&mut self, receipt: &Receipt) -> Option<&Arc<Letter>> {
        self.out(receipt).and_then(|entry| entry.letter.as_ref())
    }

    /// Hears what became of a copy. Where there is none, the delivery is out again.
    pub(crate) fn copied(
        &mut self,
        generation: u64,
        tag: u64,
        copied: Result<(), SourceError>,
        end: Option<Instant>,
        now: Instant,
    ) {
        if generation != self.generation {
            return;
        }
        let Some(entry) = self.at(tag).filter(|entry| entry.state == State::Copying) else {
            return;
        };
        match copied {
            Ok(()) => self.mark(tag, End::Ack),
            Err(error) => {
                (entry.state, entry.end) = (State::Out, end);
                let (ticket, letter) = (entry.ticket.take(), entry.letter.clone());
                let name = letter.map(|letter| self.names.take(letter.id(), now));
                if let Some(entry) = self.at(tag) {
                    entry.name = name;
                }
                self.next_end = self.next_end.into_iter().chain(end).min();
                if let Some(ticket) = ticket {
                    ticket.conclude(1, Told::Failed(error));
                }
            }
        }
    }

    /// Hands back what was never handed out.
    pub(crate) fn return_fresh(&mut self) {
        let end = self.first + self.entries.len() as u64;
        for tag in self.fresh..end {
            self.mark(tag, End::Return);
        }
        self.fresh = end;
    }

    /// Hands back whatever was out for longer than its window.
    fn sweep(&mut self, now: Instant) {
        if self.next_end.is_none_or(|end| end > now) {
            return;
        }
        self.next_end = None;
        let mut over = Vec::new();
        for (entry, tag) in self.entries.iter().zip(self.first..) {
            match entry.end.filter(|_| entry.state == State::Out) {
                Some(end) if end <= now => over.push(tag),
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
        let mut frames = Frames { generation: self.generation, ..Frames::default() };
        for tag in std::mem::take(&mut self.returns) {
            let Some(entry) = self.at(tag) else { continue };
            match entry.state {
                State::Return => frames.returns.push(tag),
                State::Reject => frames.rejects.push(tag),
                _ => continue,
            }
            entry.state = State::Told;
            frames.tickets.push(entry.ticket.take());
        }
        self.tell_front(&mut frames);
        self.tell_above(&mut frames, now, hold);
        frames.next = frames.next.into_iter().chain(self.next_end).min();
        frames
    }

    /// What is settled at the front goes, told by one frame.
    fn tell_front(&mut self, frames: &mut Frames) {
        while let Some(entry) = self.entries.front() {
            match entry.state {
                State::Told => {}
                State::Ack => {
                    frames.up_to = Some(self.first);
                    self.acks -= 1;
                }
                _ => break,
            }
            let Some(entry) = self.entries.pop_front() else { break };
            self.first += 1;
            frames.tickets.push(entry.ticket);
            frames.names.extend(entry.name);
        }
        // Handed back before it was handed out, the front may have passed the fresh ones.
        self.fresh = self.fresh.max(self.first);
    }

    /// What is settled above a missing one waits a while for that, and is then told one by one.
    fn tell_above(&mut self, frames: &mut Frames, now: Instant, hold: Hold) {
        if self.acks == 0 {
            self.held.clear();
            return;
        }
        let Some(front) = self.entries.front() else { return };
        let until = front.handed + hold.age;
        if self.acks < hold.most && until > now {
            frames.next = Some(until);
            self.forget_told();
            return;
        }
        for tag in std::mem::take(&mut self.held) {
            let Some(entry) = self.at(tag).filter(|entry| entry.state == State::Ack) else {
                continue;
            };
            entry.state = State::Told;
            frames.tickets.push(entry.ticket.take());
            frames.names.extend(entry.name.take());
            frames.singles.push(tag);
            self.acks -= 1;
        }
    }

    /// The list of held tags stays in proportion to what is here.
    fn forget_told(&mut self) {
        if self.held.len() > 2 * self.entries.len() + 64 {
            let mut held = std::mem::take(&mut self.held);
            held.retain(|tag| self.at(*tag).is_some_and(|entry| entry.state == State::Ack));
            self.held = held;
        }
    }

    /// Hears that frames were told, or could not be.
    pub(crate) fn told(&mut self, frames: &mut Frames, now: Instant) {
        if frames.generation == self.generation {
            for name in frames.names.drain(..) {
                self.names.rest(name, now);
            }
        }
    }

    /// How many wait to be handed out, and how many are out.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let is_out = |entry: &&Entry| !matches!(entry.state, State::Fresh | State::Told);
        let out = self.entries.iter().filter(is_out).count();
        let fresh = self.entries.iter().filter(|entry| entry.state == State::Fresh).count();
        (fresh, out)
    }

    /// Since when the oldest delivery is here unsettled, waiting or out.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let unsettled =
            |entry: &&Entry| matches!(entry.state, State::Fresh | State::Out | State::Copying);
        self.entries.iter().find(unsettled).map(|entry| entry.arrived)
    }
}

#[cfg(test)]
mod tests;
