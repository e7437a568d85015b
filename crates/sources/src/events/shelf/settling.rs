//! What becomes of what was handed out; and what is told of it.

use sluicegate_dispatch::{Depth, Discarded, Receipt, Rest, Settle, Settled, Settlement};
use tokio::time::Instant;

use super::{Clock, Entry, Kept, Note, Now, Resting, Shelf, Standing, later};

impl Shelf {
    /// The position of what is out with this receipt.
    fn find_out(&mut self, receipt: &Receipt, now: Instant) -> Option<u64> {
        self.advance(now);
        let position = *self.out.get(&receipt.tag)?;
        (receipt.generation == self.turn).then_some(position)
    }

    /// Settles a delivery: it is durable with the [version](Shelf::version) that there is then.
    pub(crate) fn settle(&mut self, settle: &Settle, now: Instant) -> Settled {
        let Some(position) = self.find_out(&settle.receipt, now) else { return Settled::Stale };
        self.take_in(position);
        match settle.settlement {
            // Who parks it keeps it, where its source does not.
            Settlement::Ack | Settlement::Park => self.finish(position),
            Settlement::Retry { after, attempts, reason } => {
                let Some(entry) = self.entries.get_mut(&position) else { return Settled::Stale };
                let is_plain = after.is_zero() && attempts == entry.attempts;
                entry.attempts = attempts;
                match after.is_zero() {
                    true => self.be_ready(position),
                    false => self.delay(position, later(now, after), reason),
                }
                if !is_plain {
                    self.touch(position);
                }
            }
        }
        Settled::Done
    }

    /// It is not out any more.
    fn take_in(&mut self, position: u64) {
        let Some(entry) = self.entries.get_mut(&position) else { return };
        if let Now::Out { tag, until, .. } = entry.now {
            self.out.remove(&tag);
            self.ends.remove(&(until, position));
            self.lines.comes_in(entry.group.as_ref());
            entry.now = Now::Ready;
        }
    }

    fn touch(&mut self, position: u64) {
        self.touched_to = self.touched_to.max(position);
        self.version += 1;
    }

    /// It is settled, and was not out.
    pub(super) fn finish(&mut self, position: u64) {
        self.touch(position);
        let Some(entry) = self.entries.remove(&position) else { return };
        let Entry { group, now, event, .. } = entry;
        self.bodies -= event.map_or(0, |event| event.bytes());
        self.ready.remove(&position);
        if let Now::Delayed { until, .. } = now {
            self.ends.remove(&(until, position));
        }
        self.lines.remove(position, group.as_ref());
        self.look_at_line_of(group.as_ref());
    }

    /// Begins a window anew.
    pub(crate) fn extend(&mut self, receipt: &Receipt, now: Instant) -> Settled {
        let Some(position) = self.find_out(receipt, now) else { return Settled::Stale };
        let window = later(now, self.window);
        let Some(entry) = self.entries.get_mut(&position) else { return Settled::Stale };
        if let Now::Out { until, .. } = &mut entry.now {
            self.ends.remove(&(*until, position));
            *until = window;
            self.ends.insert((window, position));
        }
        Settled::Done
    }

    /// Notes what becomes of a delivery that stays out: as durable as a settlement.
    pub(crate) fn rest(&mut self, noted: &Rest, now: Instant) -> Settled {
        let Some(position) = self.find_out(&noted.receipt, now) else { return Settled::Stale };
        let Some(entry) = self.entries.get_mut(&position) else { return Settled::Stale };
        let Rest { after, attempts, reason, .. } = *noted;
        if let Now::Out { rest, .. } = &mut entry.now {
            *rest = Some(Resting { attempts, until: later(now, after), reason });
        }
        self.touch(position);
        Settled::Done
    }

    /// An event that was settled is open again, at its place; `false` if it is open.
    pub(crate) fn put_back(&mut self, position: u64) -> bool {
        let is_open = position > self.read_to
            || self.entries.contains_key(&position)
            || self.unread.contains_key(&position);
        if !is_open {
            self.unread.insert(position, Note::default());
            self.touch(position);
        }
        !is_open
    }

    /// Gives up an event that waits. `None` if it was not read, or was settled.
    pub(crate) fn discard(&mut self, position: u64, now: Instant) -> Option<Discarded> {
        self.advance(now);
        if self.unread.remove(&position).is_some() {
            self.touch(position);
            return Some(Discarded::Done);
        }
        let entry = self.entries.get(&position)?;
        if matches!(entry.now, Now::Out { .. }) {
            return Some(Discarded::Out);
        }
        self.finish(position);
        Some(Discarded::Done)
    }

    /// Where an event stands, and how often it was tried; `None` if it was not read, or is settled.
    pub(crate) fn standing(&mut self, position: u64, clock: Clock) -> Option<(Standing, u32)> {
        let now = clock.now;
        self.advance(now);
        if let Some(note) = self.unread.get(&position) {
            let rest = |(due, why)| (clock.instant(due).saturating_duration_since(now), why);
            let standing = match note.due.map(rest) {
                Some((rest, why)) if !rest.is_zero() => Standing::Delayed(rest, why),
                _ => Standing::Ready,
            };
            return Some((standing, note.attempts));
        }
        let entry = self.entries.get(&position)?;
        let ahead = self.lines.head(entry.group.as_ref()).filter(|head| *head != position);
        let standing = match (entry.now, ahead) {
            (Now::Out { .. }, _) => Standing::Out,
            (Now::Delayed { until, reason }, _) => Standing::Delayed(until - now, reason),
            (Now::Ready, Some(head)) => Standing::Behind(head),
            (Now::Ready, None) => Standing::Ready,
        };
        Some((standing, entry.attempts))
    }

    /// How many are held, and where they stand.
    pub(crate) fn depth(&mut self, clock: Clock) -> Depth {
        self.advance(clock.now);
        let is_late = |note: &&Note| note.due.is_some_and(|(due, _)| due > clock.unix);
        let out = self.out.len();
        let late = self.unread.values().filter(is_late).count();
        let delayed = self.ends.len() - out + late;
        let waiting = self.held() - out - delayed;
        Depth { waiting: waiting as u64, delayed: delayed as u64, out: out as u64 }
    }

    /// What is to be stored, and the version that it is.
    pub(crate) fn kept(&self, clock: Clock) -> (Kept, u64) {
        let touched = self.entries.range(..=self.touched_to);
        let note = |(&position, entry): (&u64, &Entry)| (position, entry.note(clock));
        let mut open = self.unread.clone();
        open.extend(touched.map(note));
        (Kept { up_to: self.touched_to, open }, self.version)
    }
}

impl Entry {
    fn note(&self, clock: Clock) -> Note {
        let (attempts, due) = match self.now {
            Now::Ready | Now::Out { rest: None, .. } => (self.attempts, None),
            Now::Delayed { until, reason } => (self.attempts, Some((until, reason))),
            Now::Out { rest: Some(rest), .. } => (rest.attempts, Some((rest.until, rest.reason))),
        };
        let late = due.filter(|(until, _)| *until > clock.now);
        Note { attempts, due: late.map(|(until, reason)| (clock.unix(until), reason)) }
    }
}
