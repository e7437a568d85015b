//! What of a queue is here: received, handed out, delayed or just done. Pure: it is told the time.
//!
//! Invariants:
//! 1. Of a message at most one delivery is out, and at most one waits to be handed out.
//! 2. A receipt is valid until its window ends, its message is settled, or a later delivery of it is
//!    handed out.
//! 3. What is here is bounded: by what was asked for, and by the consumer's `max_ack_pending`.
//! 4. Of a message that is being settled nobody tells the server that it goes on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use async_nats::Subject;
use sluicegate_dispatch::Receipt;
use tokio::time::Instant;

use super::hold::{Hold, Verdict};
use super::tally;

#[path = "front_order.rs"]
mod order;
pub(super) use order::Kept;

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
    /// It is being settled: there is nothing to extend.
    Settling,
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

pub(super) struct Front<B> {
    window: Duration,
    generation: u64,
    entries: HashMap<u64, Entry<B>>,
    /// What waits to be handed out, in order. Of some the delivery may be gone by now.
    queue: VecDeque<u64>,
    hold: Option<Hold>,
    /// The count of the last delivery, where all are ours.
    counted: Option<u64>,
    /// Which messages stay in order, once somebody has asked for that.
    kept: Option<Kept<B>>,
    /// Whether nothing has come from this consumer yet.
    is_fresh: bool,
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
    /// How often the server is just being told that it is worked on.
    extending: u32,
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
    /// It is being copied to where dead messages are kept; its window goes on.
    Copying,
    /// The server is being told what becomes of it.
    Settling,
    /// The server knows, and whoever settles has not been answered.
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
            kept: None,
            is_fresh: false,
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
        self.is_fresh = false;
        self.count(seq, arrived.count, now);
        let verdict = self.look(&arrived, asked);
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
                self.hold_for(&arrived, now);
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
        self.begin(receipt, Stage::Settling, now)
    }

    /// The same for a message that is copied elsewhere first.
    pub(super) fn begin_copying(&mut self, receipt: &Receipt, now: Instant) -> Worth {
        self.begin(receipt, Stage::Copying, now)
    }

    fn begin(&mut self, receipt: &Receipt, stage: Stage, now: Instant) -> Worth {
        match self.out_of(receipt, now) {
            Some((out, word)) if out.stage == Stage::Open => {
                out.stage = stage;
                Worth::Tell(word)
            }
            _ => Worth::Stale,
        }
    }

    /// A message that was copied is going to be settled. `false` if it was handed out anew meanwhile.
    pub(super) fn copied(&mut self, receipt: &Receipt) -> bool {
        let Some(out) = self.current(receipt) else { return false };
        out.stage = Stage::Settling;
        true
    }

    /// What a receipt is worth for extending. What the server is to be told is under way then, until
    /// [`end_extending`](Self::end_extending).
    pub(super) fn begin_extending(&mut self, receipt: &Receipt, now: Instant) -> Worth {
        let Some((out, word)) = self.out_of(receipt, now) else { return Worth::Stale };
        if matches!(out.stage, Stage::Settling | Stage::Told) {
            // Telling the server that it goes on could overwrite a delay.
            return Worth::Settling;
        }
        self.begin_progress(receipt.tag);
        Worth::Tell(word)
    }

    fn begin_progress(&mut self, seq: u64) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.extending += 1;
        }
    }

    /// The server was told that a message is worked on, or was not.
    pub(super) fn end_extending(&mut self, seq: u64) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.extending = entry.extending.saturating_sub(1);
        }
    }

    /// Whether the server is just being told that a message is worked on. What reached it after a delay
    /// would overwrite that.
    pub(super) fn is_extending(&self, seq: u64) -> bool {
        self.entries.get(&seq).is_some_and(|entry| entry.extending > 0)
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

    /// Whoever settles is answered, or gone. What the server was not told of is out as before.
    pub(super) fn end_settling(&mut self, receipt: &Receipt) {
        let Some(out) = self.current(receipt) else { return };
        if out.stage != Stage::Told {
            out.stage = Stage::Open;
            return;
        }
        let Some(entry) = self.entries.get_mut(&receipt.tag) else { return };
        entry.out = None;
        if self.done.contains(&(receipt.tag, entry.published)) {
            self.entries.remove(&receipt.tag);
        }
    }

    /// The message is done with, and the server knows.
    pub(super) fn gone(&mut self, receipt: &Receipt) {
        let Some(out) = self.current(receipt) else { return };
        out.stage = Stage::Told;
        let Some(entry) = self.entries.get_mut(&receipt.tag) else { return };
        // A copy that waits is one of the same message.
        entry.waiting = None;
        let key = (receipt.tag, entry.published);
        self.remember(key);
    }

    /// The message comes back, not before some time, and the server knows.
    pub(super) fn again(
        &mut self,
        receipt: &Receipt,
        not_before: Instant,
        attempts: u32,
        tallied: Option<tally::Entry>,
    ) {
        let Some(out) = self.current(receipt) else { return };
        out.stage = Stage::Told;
        if let Some(entry) = self.entries.get_mut(&receipt.tag) {
            // A copy of before belongs to what is over now; the server delivers it again, and may have
            // done so before it has answered.
            let is_early = |arrived: &mut Arrived<B>| arrived.at < not_before;
            if entry.waiting.take_if(is_early).is_some() || entry.waiting.is_none() {
                entry.not_before = Some(not_before);
            }
            entry.attempts = attempts;
            entry.tallied = tallied;
        }
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

    /// Where the server is to be told that what waits here is still being worked on. It is under way
    /// then, until [`end_extending`](Self::end_extending).
    pub(super) fn begin_keeping(&mut self, now: Instant) -> Vec<(u64, Subject)> {
        let held = self.hold.iter().flat_map(Hold::held);
        let waiting = self.queue.iter().copied().chain(held);
        let waiting = waiting.filter_map(|seq| self.entries.get(&seq)?.waiting.as_ref());
        let old = waiting.filter(|arrived| arrived.at + self.window / 3 <= now);
        let old: Vec<_> = old.map(|arrived| (arrived.seq, arrived.reply.clone())).collect();
        old.iter().for_each(|(seq, _)| self.begin_progress(*seq));
        old
    }

    /// The window of something that waits here has begun anew.
    pub(super) fn kept(&mut self, seq: u64, from: Instant) {
        let waiting = self.entries.get_mut(&seq).and_then(|entry| entry.waiting.as_mut());
        if let Some(arrived) = waiting {
            arrived.at = from;
        }
    }

    /// Gives up what waits to be handed out, also what is held.
    pub(super) fn give_back(&mut self) -> Vec<Errand> {
        let held = self.hold.take().map(Hold::into_held).unwrap_or_default();
        let mut errands = Vec::new();
        for seq in std::mem::take(&mut self.queue).into_iter().chain(held) {
            let waiting = self.entries.get_mut(&seq).and_then(|entry| entry.waiting.take());
            errands.extend(waiting.map(|arrived| Errand::Again(arrived.reply, Duration::ZERO)));
        }
        errands
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
            extending: 0,
            touched: now,
        }
    }
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;
