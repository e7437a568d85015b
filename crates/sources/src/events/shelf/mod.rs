//! What is held of the log and where each event of it stands: pure, told the time, changed under one lock.

mod lines;
mod settling;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Order, Reason, Receipt};
use sluicegate_event_store::Event;
use tokio::time::Instant;

use self::lines::Lines;
use super::kept::{Kept, Note};

/// How many bytes of bodies are held, give or take one event; of further ones only where they stand.
const BODIES: usize = 16 << 20;
/// Longer delays are as good as endless, and would overflow a clock.
const LONGEST: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);

/// The events between those that are all settled and those that were not read.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// Which life of the cursor this is: no receipt of another one fits.
    turn: u64,
    window: Duration,
    lines: Lines,
    entries: BTreeMap<u64, Entry>,
    /// Those that can be handed out.
    ready: BTreeSet<u64>,
    /// When windows and delays end.
    ends: BTreeSet<(Instant, u64)>,
    /// Which hand-over is of which event.
    out: HashMap<u64, u64>,
    next_tag: u64,
    bodies: usize,
    /// Open ones of which only that is known: of an earlier life, or put back. They are read before anything else is.
    unread: BTreeMap<u64, Note>,
    /// Everything that matches up to there is here, or settled.
    read_to: u64,
    /// Nothing beyond was settled, and there is nothing to say of what is there.
    touched_to: u64,
    /// Grows with every change that is to be stored.
    version: u64,
}

#[derive(Debug)]
struct Entry {
    group: Option<Arc<str>>,
    attempts: u32,
    was_out: bool,
    now: Now,
    /// The body, if it is held.
    event: Option<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Ready,
    Delayed { until: Instant, reason: Reason },
    Out { tag: u64, until: Instant, rest: Option<Resting> },
}

/// What becomes of a delivery whose window ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resting {
    attempts: u32,
    until: Instant,
    reason: Reason,
}

/// An event that is handed over.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) receipt: Receipt,
    pub(crate) event: Event,
    pub(crate) attempts: u32,
    /// It was handed over before.
    pub(crate) again: bool,
}

/// What there is to hand over.
#[derive(Debug)]
pub(crate) enum Next {
    /// These.
    Taken(Vec<Taken>),
    /// These, once their bodies are read.
    Bodies(Vec<u64>),
    /// Something that its pool has no room for.
    NoRoom,
    /// Nothing.
    Nothing,
}

/// Where an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Ready,
    /// Behind this one of its key.
    Behind(u64),
    Delayed(Duration, Reason),
    Out,
}

/// The time by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    /// In milliseconds since 1970.
    pub(crate) unix: u64,
}

impl Clock {
    fn instant(self, unix: u64) -> Instant {
        later(self.now, Duration::from_millis(unix.saturating_sub(self.unix)))
    }

    fn unix(self, until: Instant) -> u64 {
        let rest = until.saturating_duration_since(self.now).as_micros().div_ceil(1_000);
        self.unix.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
    }
}

/// So long after that; for what is beyond every clock, in many years.
fn later(now: Instant, after: Duration) -> Instant {
    now + after.min(LONGEST)
}

impl Shelf {
    pub(crate) fn new(pool: Arc<str>, window: Duration, turn: u64, kept: Kept) -> Self {
        Self {
            turn,
            window,
            lines: Lines::new(pool),
            entries: BTreeMap::new(),
            ready: BTreeSet::new(),
            ends: BTreeSet::new(),
            out: HashMap::new(),
            next_tag: 0,
            bodies: 0,
            unread: kept.open,
            read_to: kept.up_to,
            touched_to: kept.up_to,
            version: 0,
        }
    }

    /// How many events are open here.
    pub(crate) fn held(&self) -> usize {
        self.entries.len() + self.unread.len()
    }

    /// How many can be handed out.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How far the log was read.
    pub(crate) fn read_to(&self) -> u64 {
        self.read_to
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The first open ones of which nothing is known, at most so many.
    pub(crate) fn unread(&self, most: usize) -> Vec<u64> {
        self.unread.keys().copied().take(most).collect()
    }

    /// When something can be handed out by itself.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|&(until, _)| until)
    }

    /// Takes in what was read after the last page, which ends at a position.
    pub(crate) fn read_on(
        &mut self,
        events: Vec<(Event, Option<Arc<str>>)>,
        from: u64,
        read_to: u64,
    ) {
        // Another reader may have been faster.
        if from != self.read_to {
            return;
        }
        for (event, group) in events {
            self.add(event.position().get(), group, Note::default(), None, Some(event));
        }
        self.read_to = self.read_to.max(read_to);
    }

    /// Takes in what was read of those that were open. Of what was asked for and is not there, nothing is left to do.
    pub(crate) fn read_again(
        &mut self,
        asked: &[u64],
        events: Vec<(Event, Option<Arc<str>>)>,
        clock: Clock,
    ) {
        for (event, group) in events {
            let position = event.position().get();
            if let Some(note) = self.unread.remove(&position) {
                self.add(position, group, note, Some(clock), Some(event));
            } else if let Some(entry) = self.entries.get_mut(&position)
                && entry.event.is_none()
            {
                self.bodies += event.bytes();
                entry.event = Some(event);
            }
        }
        for position in asked {
            let is_missing = |entry: &Entry| entry.event.is_none() && entry.now == Now::Ready;
            if self.unread.remove(position).is_some()
                || self.entries.get(position).is_some_and(is_missing)
            {
                self.finish(*position);
            }
        }
    }

    fn add(
        &mut self,
        position: u64,
        group: Option<Arc<str>>,
        note: Note,
        clock: Option<Clock>,
        event: Option<Event>,
    ) {
        let is_behind = self.lines.add(position, group.as_ref(), &mut self.ready);
        // What waits behind others of its key would take the place of what can go now.
        let has_room = self.bodies < BODIES && (!is_behind || self.bodies < BODIES / 2);
        let event = event.filter(|_| has_room);
        self.bodies += event.as_ref().map_or(0, Event::bytes);
        let (attempts, was_out) = (note.attempts, note.attempts > 0);
        self.entries.insert(position, Entry { group, attempts, was_out, now: Now::Ready, event });
        let due = note.due.zip(clock).map(|((due, why), clock)| (clock.instant(due), why));
        match due.filter(|(until, _)| clock.is_some_and(|clock| *until > clock.now)) {
            Some((until, reason)) => self.delay(position, until, reason),
            None => self.be_ready(position),
        }
    }

    /// Hands over at most so many, in their order, as far as each of them finds room.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        most: usize,
        mut has_room: impl FnMut() -> bool,
    ) -> Next {
        self.advance(now);
        let mut taken = Vec::new();
        let mut is_full = false;
        while taken.len() < most
            && let Some(&position) = self.ready.first()
        {
            if self.entries.get(&position).is_none_or(|entry| entry.event.is_none()) {
                if taken.is_empty() {
                    return Next::Bodies(self.without_bodies(most));
                }
                break;
            }
            is_full = !has_room();
            if is_full {
                break;
            }
            taken.extend(self.hand_over(position, now));
        }
        match (taken.is_empty(), is_full) {
            (true, true) => Next::NoRoom,
            (true, false) => Next::Nothing,
            (false, _) => Next::Taken(taken),
        }
    }

    fn without_bodies(&self, most: usize) -> Vec<u64> {
        let is_without =
            |position: &&u64| self.entries.get(position).is_some_and(|entry| entry.event.is_none());
        self.ready.iter().take(most).filter(is_without).copied().collect()
    }

    fn hand_over(&mut self, position: u64, now: Instant) -> Option<Taken> {
        let entry = self.entries.get_mut(&position)?;
        let event = entry.event.take()?;
        self.bodies -= event.bytes();
        self.ready.remove(&position);
        let tag = self.next_tag;
        self.next_tag += 1;
        let until = later(now, self.window);
        entry.now = Now::Out { tag, until, rest: None };
        let again = std::mem::replace(&mut entry.was_out, true);
        let attempts = entry.attempts;
        self.lines.goes_out(entry.group.as_ref());
        self.ends.insert((until, position));
        self.out.insert(tag, position);
        let receipt = Receipt { tag, generation: self.turn, handle: None };
        Some(Taken { receipt, event, attempts, again })
    }

    /// Ends the windows and delays that are over.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some(&(until, position)) = self.ends.first()
            && until <= now
        {
            self.ends.pop_first();
            let Some(entry) = self.entries.get_mut(&position) else { continue };
            let was = std::mem::replace(&mut entry.now, Now::Ready);
            let Now::Out { tag, rest, .. } = was else {
                self.be_ready(position);
                continue;
            };
            self.out.remove(&tag);
            self.lines.comes_in(entry.group.as_ref());
            if let Some(Resting { attempts, until, reason }) = rest {
                entry.attempts = attempts;
                if until > now {
                    self.delay(position, until, reason);
                    continue;
                }
            }
            self.be_ready(position);
        }
    }

    /// It can be handed out as soon as it is its turn.
    fn be_ready(&mut self, position: u64) {
        let Some(entry) = self.entries.get_mut(&position) else { return };
        entry.now = Now::Ready;
        match self.lines.head(entry.group.as_ref()) {
            // In order with nothing.
            None => drop(self.ready.insert(position)),
            Some(_) => self.look_at_line(position),
        }
    }

    /// It can be handed out after a while. Its body would only take room meanwhile.
    fn delay(&mut self, position: u64, until: Instant, reason: Reason) {
        let Some(entry) = self.entries.get_mut(&position) else { return };
        entry.now = Now::Delayed { until, reason };
        self.bodies -= entry.event.take().map_or(0, |event| event.bytes());
        self.ready.remove(&position);
        self.ends.insert((until, position));
        self.look_at_line(position);
    }

    /// The head of the line that an event stands in can be handed out, unless one of the line is out.
    fn look_at_line(&mut self, position: u64) {
        let group = self.entries.get(&position).and_then(|entry| entry.group.clone());
        self.look_at_line_of(group.as_ref());
    }

    fn look_at_line_of(&mut self, group: Option<&Arc<str>>) {
        let Some(head) = self.lines.free_head(group) else { return };
        if self.entries.get(&head).is_some_and(|entry| entry.now == Now::Ready) {
            self.ready.insert(head);
        }
    }

    /// Puts all events in line anew.
    pub(crate) fn keep_order(&mut self, order: &Arc<Order>) {
        self.lines.begin_anew(order);
        self.ready.clear();
        for (&position, entry) in &self.entries {
            self.lines.add(position, entry.group.as_ref(), &mut self.ready);
            if matches!(entry.now, Now::Out { .. }) {
                self.lines.goes_out(entry.group.as_ref());
            }
        }
        let waits =
            |(&position, entry): (&u64, &Entry)| (entry.now == Now::Ready).then_some(position);
        for position in self.entries.iter().filter_map(waits).collect::<Vec<_>>() {
            self.be_ready(position);
        }
    }
}
