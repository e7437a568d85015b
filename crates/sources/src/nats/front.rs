//! What of a queue is here: received, handed out, delayed or just done. Pure: it is told the time.
//!
//! Invariants:
//! 1. Of a message at most one delivery is out, and at most one waits to be handed out.
//! 2. A receipt is valid until its window ends, its message is settled, or a later delivery of it is
//!    handed out.
//! 3. What is here is bounded: by what was asked for, and by the consumer's `max_ack_pending`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZero;
use std::time::Duration;

use async_nats::Subject;
use sluicegate_dispatch::Receipt;
use tokio::time::Instant;

use super::hold::{Hold, LATE, Verdict};
use super::tally;

/// How many messages that are done are remembered, so that a copy that was under way is not taken
/// for another delivery.
const REMEMBERED: usize = 32_768;
/// A delay that ends within this has ended.
const TICK: Duration = Duration::from_millis(2);
/// How long something of which nothing is heard any more is kept, at least.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// How often that is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// A delivery as it came from the server.
#[derive(Debug)]
pub(super) struct Arrived<B> {
    pub(super) seq: u64,
    /// The server's count of deliveries, to whomever.
    pub(super) count: u64,
    /// When it was published, in nanoseconds: with the sequence it names a message for good, also if
    /// the stream is made anew.
    pub(super) published: i128,
    /// Where it is acknowledged.
    pub(super) reply: Subject,
    /// When its window began.
    pub(super) at: Instant,
    pub(super) body: B,
}

/// A delivery to hand out.
#[derive(Debug)]
pub(super) struct Taken<B> {
    pub(super) arrived: Arrived<B>,
    pub(super) generation: u64,
    pub(super) attempts: u32,
}

/// What to tell the server of a delivery that is not handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// Its message is done with.
    Gone(Subject),
    /// It is too early for it.
    Again(Subject, Duration),
}

/// What a receipt is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// The server is to be told.
    Tell(Word),
    /// The server has been told already, though the caller has not heard of it.
    Told,
    Stale,
}

/// What to know for telling the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) reply: Subject,
    pub(super) published: i128,
    /// What is written down of the message.
    pub(super) tallied: Option<tally::Entry>,
}

#[derive(Debug)]
pub(super) struct Front<B> {
    window: Duration,
    generation: u64,
    entries: HashMap<u64, Entry<B>>,
    /// What waits to be handed out, in order. Of some the delivery may be gone by now.
    queue: VecDeque<u64>,
    hold: Option<Hold>,
    /// The count of the last delivery, where all are ours.
    counted: Option<u64>,
    /// Whether somebody has asked for order.
    minds_order: bool,
    done: HashSet<(u64, i128)>,
    done_order: VecDeque<(u64, i128)>,
    /// How many are wanted by those who wait.
    pub(super) wanted: usize,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Entry<B> {
    published: i128,
    attempts: u32,
    tallied: Option<tally::Entry>,
    out: Option<Out>,
    waiting: Option<Arrived<B>>,
    /// It may not be handed out before.
    not_before: Option<Instant>,
    touched: Instant,
}

#[derive(Debug)]
struct Out {
    generation: u64,
    until: Instant,
    reply: Subject,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Settling,
    Told,
}

impl<B> Front<B> {
    /// An empty one. Generations begin behind those of every earlier life.
    pub(super) fn new(window: Duration, generation: u64) -> Self {
        Self {
            window,
            generation,
            entries: HashMap::new(),
            queue: VecDeque::new(),
            hold: None,
            counted: None,
            minds_order: false,
            done: HashSet::new(),
            done_order: VecDeque::new(),
            wanted: 0,
            swept: None,
        }
    }

    pub(super) const fn window(&self) -> Duration {
        self.window
    }

    pub(super) const fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// How many more to ask for.
    pub(super) fn lack(&self) -> usize {
        self.wanted.saturating_sub(self.queue.len())
    }

    /// Takes a delivery in, or says what to tell the server instead. `rest` is what its sender wants
    /// it to wait, `asked` when it was asked for.
    pub(super) fn arrive(
        &mut self,
        arrived: Arrived<B>,
        rest: Duration,
        asked: Instant,
        now: Instant,
    ) -> Option<Errand> {
        let (seq, published) = (arrived.seq, arrived.published);
        self.count(seq, arrived.count, now);
        let verdict = self.hold.as_mut().map_or(Verdict::Passes, |hold| hold.look(seq, asked));
        let errand = if self.done.contains(&(seq, published)) {
            Some(Errand::Gone(arrived.reply))
        } else {
            self.keep(arrived, rest, verdict, now)
        };
        self.end_hold_if_over();
        errand
    }

    fn keep(
        &mut self,
        arrived: Arrived<B>,
        rest: Duration,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Errand> {
        let (seq, published) = (arrived.seq, arrived.published);
        let entry = self.entries.entry(seq).or_insert_with(|| Entry::new(published, now));
        if entry.published != published {
            *entry = Entry::new(published, now);
        }
        entry.touched = now;
        if rest > TICK {
            entry.not_before = entry.not_before.max(Some(now + rest));
        }
        if let Some(time) = entry.not_before.filter(|&time| time > now + TICK) {
            return Some(Errand::Again(arrived.reply, time - now));
        }
        entry.not_before = None;
        let is_queued = entry.waiting.replace(arrived).is_some();
        if verdict == Verdict::Passes && !is_queued {
            self.queue.push_back(seq);
        }
        None
    }

    /// At most so many deliveries, in order.
    pub(super) fn take(&mut self, max: usize, now: Instant) -> Vec<Taken<B>> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(seq) = self.queue.pop_front()
        {
            let Some(entry) = self.entries.get_mut(&seq) else { continue };
            let Some(arrived) = entry.waiting.take() else { continue };
            let until = arrived.at + self.window;
            if until <= now {
                // The server delivers it again.
                self.hold_for(seq, now);
                continue;
            }
            self.generation += 1;
            let generation = self.generation;
            let reply = arrived.reply.clone();
            entry.out = Some(Out { generation, until, reply, stage: Stage::Open });
            entry.touched = now;
            taken.push(Taken { arrived, generation, attempts: entry.attempts });
        }
        taken
    }

    /// What a receipt is worth for settling. What the server is to be told is under way then.
    pub(super) fn begin_settling(&mut self, receipt: &Receipt, now: Instant) -> Worth {
        let Some((out, word)) = self.out_of(receipt, now) else { return Worth::Stale };
        match out.stage {
            Stage::Open => {
                out.stage = Stage::Settling;
                Worth::Tell(word)
            }
            Stage::Settling => Worth::Stale,
            Stage::Told => {
                self.clear(receipt);
                Worth::Told
            }
        }
    }

    /// What a receipt is worth for extending.
    pub(super) fn begin_extending(&mut self, receipt: &Receipt, now: Instant) -> Worth {
        match self.out_of(receipt, now) {
            None => Worth::Stale,
            Some((out, word)) if out.stage == Stage::Open => Worth::Tell(word),
            // Telling the server that it goes on could overwrite a delay.
            Some(_) => Worth::Told,
        }
    }

    fn out_of(&mut self, receipt: &Receipt, now: Instant) -> Option<(&mut Out, Word)> {
        let Entry { published, tallied, out, .. } = self.entries.get_mut(&receipt.tag)?;
        let out = out.as_mut()?;
        let word = Word { reply: out.reply.clone(), published: *published, tallied: *tallied };
        (out.generation == receipt.generation && out.until > now).then_some((out, word))
    }

    /// Whether nothing is known of a message.
    pub(super) fn is_unknown(&self, seq: u64, published: i128) -> bool {
        self.entries.get(&seq).is_none_or(|entry| entry.published != published)
            && !self.done.contains(&(seq, published))
    }

    /// Takes note of what was written down of a message in an earlier life, `rest` of whose delay is
    /// left.
    pub(super) fn recall(
        &mut self,
        (seq, published): (u64, i128),
        known: tally::Entry,
        rest: Duration,
        now: Instant,
    ) {
        let (attempts, not_before) = (known.attempts, Some(now + rest));
        let known =
            Entry { attempts, not_before, tallied: Some(known), ..Entry::new(published, now) };
        self.entries.insert(seq, known);
    }

    /// The server was not told, as far as is known.
    pub(super) fn not_told(&mut self, receipt: &Receipt) {
        if let Some(out) = self.current(receipt)
            && out.stage == Stage::Settling
        {
            out.stage = Stage::Open;
        }
    }

    /// The message is done with.
    pub(super) fn gone(&mut self, receipt: &Receipt, is_answered: bool) {
        if self.current(receipt).is_none() {
            return;
        }
        let Some(entry) = self.entries.get_mut(&receipt.tag) else { return };
        // A copy that waits is one of the same message.
        entry.waiting = None;
        let key = (receipt.tag, entry.published);
        self.remember(key);
        self.answer(receipt, is_answered);
        let entry = self.entries.get(&receipt.tag);
        if entry.is_some_and(|entry| entry.out.is_none()) {
            self.entries.remove(&receipt.tag);
        }
    }

    /// The message comes back, not before some time.
    pub(super) fn again(
        &mut self,
        receipt: &Receipt,
        not_before: Option<Instant>,
        attempts: u32,
        tallied: Option<tally::Entry>,
        is_answered: bool,
    ) {
        if self.current(receipt).is_none() {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&receipt.tag) {
            // A copy that waits belongs to what is over now; the server delivers it again.
            entry.waiting = None;
            entry.not_before = not_before;
            entry.attempts = attempts;
            entry.tallied = tallied;
        }
        self.answer(receipt, is_answered);
    }

    /// Its window has begun anew.
    pub(super) fn extended(&mut self, receipt: &Receipt, from: Instant) {
        let window = self.window;
        if let Some(out) = self.current(receipt) {
            out.until = from + window;
        }
    }

    fn current(&mut self, receipt: &Receipt) -> Option<&mut Out> {
        let out = self.entries.get_mut(&receipt.tag)?.out.as_mut()?;
        (out.generation == receipt.generation).then_some(out)
    }

    /// The caller hears of it, or will when he asks again.
    fn answer(&mut self, receipt: &Receipt, is_answered: bool) {
        if is_answered {
            self.clear(receipt);
        } else if let Some(out) = self.current(receipt) {
            out.stage = Stage::Told;
        }
    }

    fn clear(&mut self, receipt: &Receipt) {
        let Some(entry) = self.entries.get_mut(&receipt.tag) else { return };
        entry.out = None;
        if self.done.contains(&(receipt.tag, entry.published)) {
            self.entries.remove(&receipt.tag);
        }
    }

    fn remember(&mut self, key: (u64, i128)) {
        if self.done.insert(key) {
            self.done_order.push_back(key);
        }
        if self.done_order.len() > REMEMBERED
            && let Some(oldest) = self.done_order.pop_front()
        {
            self.done.remove(&oldest);
        }
    }

    /// How many are out.
    pub(super) fn out(&self, now: Instant) -> usize {
        let is_out = |entry: &&Entry<B>| {
            let live = |out: &Out| out.until > now && out.stage != Stage::Told;
            entry.out.as_ref().is_some_and(live)
        };
        self.entries.values().filter(is_out).count()
    }

    /// Where the server is to be told that what waits here is still being worked on.
    pub(super) fn ageing(&self, now: Instant) -> Vec<(u64, Subject)> {
        let held = self.hold.iter().flat_map(|hold| hold.held());
        let waiting = self.queue.iter().chain(held);
        let waiting = waiting.filter_map(|seq| self.entries.get(seq)?.waiting.as_ref());
        let old = waiting.filter(|arrived| arrived.at + self.window / 3 <= now);
        old.map(|arrived| (arrived.seq, arrived.reply.clone())).collect()
    }

    /// The window of something that waits here has begun anew.
    pub(super) fn kept(&mut self, seq: u64, from: Instant) {
        let waiting = self.entries.get_mut(&seq).and_then(|entry| entry.waiting.as_mut());
        if let Some(arrived) = waiting {
            arrived.at = from;
        }
    }

    /// Gives up what waits to be handed out. What is held stays with the server: handed back it
    /// would go before what it was held for.
    pub(super) fn give_back(&mut self) -> Vec<Errand> {
        let mut errands = Vec::new();
        for seq in std::mem::take(&mut self.queue) {
            let waiting = self.entries.get_mut(&seq).and_then(|entry| entry.waiting.take());
            errands.extend(waiting.map(|arrived| Errand::Again(arrived.reply, Duration::ZERO)));
        }
        errands
    }

    pub(super) fn hold(&mut self, hold: Option<Hold>) {
        self.hold = hold;
    }

    /// From here on all deliveries are ours, and a gap in their count is noticed.
    pub(super) const fn count_from(&mut self, count: u64) {
        self.counted = Some(count);
    }

    /// From here on order matters.
    pub(super) const fn mind_order(&mut self) {
        self.minds_order = true;
    }

    fn count(&mut self, seq: u64, count: u64, now: Instant) {
        let Some(before) = self.counted.replace(count) else {
            self.counted = None;
            return;
        };
        let missed = usize::try_from(count.saturating_sub(before + 1)).unwrap_or(usize::MAX);
        if missed == 0 || !self.minds_order {
            return;
        }
        let (floor, until) = (seq.saturating_sub(1), now + self.window + LATE);
        match &mut self.hold {
            Some(hold) => hold.miss(missed, floor, until),
            None => self.hold = Hold::new(floor, missed, until),
        }
    }

    /// A message that waited here for too long comes again: where order matters, those behind it wait
    /// for it.
    fn hold_for(&mut self, seq: u64, now: Instant) {
        if self.counted.is_none() || !self.minds_order {
            return;
        }
        let until = now + self.window + LATE;
        let hold = match &mut self.hold {
            Some(hold) => {
                hold.miss(1, seq, until);
                hold
            }
            None => match Hold::new(seq, 1, until) {
                Some(hold) => self.hold.insert(hold),
                None => return,
            },
        };
        for behind in std::mem::take(&mut self.queue) {
            hold.wait(behind);
        }
    }

    /// What is held waits no longer.
    pub(super) fn release_hold(&mut self) {
        self.minds_order = false;
        let held = self.hold.take().map(Hold::into_held).unwrap_or_default();
        // What was held is newer than what has arrived, and older than what is yet to come.
        self.queue.extend(held);
    }

    fn end_hold_if_over(&mut self) {
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
    pub(super) fn nothing_arrived(&mut self, asked: Instant) {
        if let Some(hold) = &mut self.hold {
            hold.look_at_nothing(asked);
        }
        self.end_hold_if_over();
    }

    /// Whether the server is to be asked what an earlier life has left, before anything new is.
    pub(super) fn is_hold_in_question(&self, now: Instant) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_in_question(now))
    }

    /// How many are late and asked for before anything else.
    pub(super) fn missing(&self) -> Option<NonZero<usize>> {
        self.hold.as_ref().and_then(Hold::missing)
    }

    /// The server waits for so many: if those are more than are here, the hold goes on for a while.
    pub(super) fn hear_of_unsettled(&mut self, unsettled: usize, now: Instant) {
        let is_out = |out: &Out| out.stage != Stage::Told;
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
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        self.hold.as_ref().and_then(|hold| hold.pause(now))
    }

    /// Forgets everything: the consumer is another one, and no receipt of the old one is worth
    /// anything.
    pub(super) fn reset(&mut self) {
        self.entries.clear();
        self.queue.clear();
        self.hold = None;
        self.counted = None;
        self.done.clear();
        self.done_order.clear();
    }

    /// Forgets what nothing was heard of for long: it went to another instance, or was deleted.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|last| last + SWEEP_EVERY > now) {
            return;
        }
        self.swept = Some(now);
        let patience = FORGOTTEN_AFTER.max(self.window * 4);
        self.entries.retain(|_, entry| {
            let out = entry.out.as_ref().map(|out| out.until);
            let last = out.into_iter().chain(entry.not_before).fold(entry.touched, Instant::max);
            entry.waiting.is_some() || last + patience > now
        });
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }
}

impl<B> Entry<B> {
    const fn new(published: i128, now: Instant) -> Self {
        Self {
            published,
            attempts: 0,
            tallied: None,
            out: None,
            waiting: None,
            not_before: None,
            touched: now,
        }
    }
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;
