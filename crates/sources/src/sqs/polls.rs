//! Long polls.
//!
//! A poll is a task of its own: when the receive that it was begun for is dropped, it goes on, and
//! what it brings is kept for the next receive. Otherwise the service would hand messages to a
//! connection that nobody listens to, and hide them for a whole window.
//!
//! Invariants:
//! 1. There are as many polls as receives that wait, or as many more as full polls have shown to be
//!    worth it and the demand asks for; never more than [`WIDEST`] for the demand's sake. So what is kept
//!    is bounded by ten messages for each.
//! 2. What is kept is extended, and handed back when nobody comes for it.
//! 3. A receive takes and answers in one step: there is no await between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_dispatch::{Delivery, Reason, Settle, Settlement, SourceError};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep_until};

use super::batches::{BATCH, Entry, Wish};
use super::books::Arrival;
use super::client::PollId;
use super::incoming::Incoming;
use super::settings::{LONGEST_HIDE, seconds_up};
use super::source::{Inner, Part};
use super::trouble::Trouble;
use crate::Content;
use crate::network::pause::Pauses;

/// The pause after a poll that brought some, but fewer than asked for: more may gather.
const AFTER_SOME: Duration = Duration::from_millis(100);
/// How many polls are under way at most for what one receive asks for.
const WIDEST: usize = 16;
/// For so long the service gives the answer of a repeated poll again.
const REPEATABLE: Duration = Duration::from_secs(240);

/// What polls brought and what they are up to.
#[derive(Debug)]
pub(super) struct Polls<M> {
    /// Oldest first, with when it came.
    ready: VecDeque<(Delivery<M>, Instant)>,
    /// How many receives wait, and how many messages they want together.
    waiting: usize,
    wanted: usize,
    running: usize,
    /// How many polls are worth having at once: more while they come back full.
    width: usize,
    /// How many have begun, and which is the last of those that have ended: a receive answers when
    /// one has ended that began after it came, so that it has waited long enough.
    begun: u64,
    ended: u64,
    error: Option<SourceError>,
    not_before: Instant,
    pauses: Pauses,
    /// Polls of a FIFO queue whose answers were lost.
    lost: Vec<(PollId, Instant)>,
    numbered: u64,
}

impl<M> Polls<M> {
    pub(super) fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: 0,
            wanted: 0,
            running: 0,
            width: 1,
            begun: 0,
            ended: 0,
            error: None,
            not_before: Instant::now(),
            pauses: Pauses::default(),
            lost: Vec::new(),
            numbered: 0,
        }
    }

    /// How many polls there should be.
    fn target(&self) -> usize {
        let lacking = self.wanted.saturating_sub(self.ready.len()).div_ceil(BATCH);
        lacking.min(self.width).max(self.waiting)
    }

    /// Hears how many of those that were asked for a poll has brought.
    fn brought(&mut self, asked: usize, count: usize, now: Instant) {
        self.pauses.reset();
        self.error = None;
        self.width = match count {
            0 => 1,
            _ if count < asked => (self.width / 2).max(1),
            _ => (self.width * 2).min(WIDEST),
        };
        let may_gather = count > 0 && count < asked && self.width == 1;
        self.not_before = if may_gather { now + AFTER_SOME } else { now };
    }
}

/// A receive that waits; counted until it is dropped.
struct Waiting<'a, M: Content>(&'a Inner<M>, usize);

impl<'a, M: Content> Waiting<'a, M> {
    fn begin(inner: &'a Inner<M>, max: usize) -> (Self, u64) {
        let mut polls = inner.polls.lock();
        polls.waiting += 1;
        polls.wanted += max;
        (Self(inner, max), polls.begun)
    }
}

impl<M: Content> Drop for Waiting<'_, M> {
    fn drop(&mut self) {
        let mut polls = self.0.polls.lock();
        polls.waiting -= 1;
        polls.wanted -= self.1;
    }
}

/// A poll that runs, with its number; counted until it is dropped, so on every path.
struct Running<M: Content>(Arc<Inner<M>>, u64);

impl<M: Content> Drop for Running<M> {
    fn drop(&mut self) {
        let mut polls = self.0.polls.lock();
        polls.running -= 1;
        polls.ended = polls.ended.max(self.1);
        drop(polls);
        self.0.changed.notify_waiters();
    }
}

/// What a look at the polls tells a receive.
enum Seen<M> {
    Take(Vec<Delivery<M>>),
    Failed(SourceError),
    Wait,
}

impl<M: Content> Inner<M> {
    pub(super) async fn receive(
        self: &Arc<Self>,
        max: usize,
    ) -> Result<Vec<Delivery<M>>, SourceError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let (_waiting, before) = Waiting::begin(self, max);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on nothing that happens is missed, though nobody waits yet.
            changed.as_mut().enable();
            if self.stopped.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            match self.see(max, before) {
                Seen::Take(taken) => return Ok(taken),
                Seen::Failed(error) => return Err(error),
                Seen::Wait => changed.await,
            }
        }
    }

    fn see(self: &Arc<Self>, max: usize, before: u64) -> Seen<M> {
        // So much of its window is left for whoever is given a message, at least: a heartbeat at a
        // third of the window finds it alive.
        let lasts = Instant::now() + self.link.settings.window / 2;
        let mut polls = self.polls.lock();
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some((delivery, _)) = polls.ready.pop_front()
        {
            if self.books.lock().lasts_until(&delivery.receipt, lasts) {
                taken.push(delivery);
                continue;
            }
            // It could not be extended, and comes again by itself. What follows it in its group must
            // not overtake it.
            if self.link.settings.is_fifo() {
                polls.ready.clear();
            }
        }
        if !taken.is_empty() {
            return Seen::Take(taken);
        }
        if let Some(error) = polls.error.take() {
            return Seen::Failed(error);
        }
        if polls.ended > before {
            return Seen::Take(Vec::new());
        }
        let more = polls.target().saturating_sub(polls.running);
        let begun = polls.begun + 1..=polls.begun + more as u64;
        polls.running += more;
        polls.begun += more as u64;
        drop(polls);
        for number in begun {
            self.begin_poll(Running(Arc::clone(self), number), max.min(BATCH));
        }
        Seen::Wait
    }

    fn begin_poll(&self, running: Running<M>, max: usize) {
        let Some(group) = self.group() else { return };
        // Cancelled with the source, it leaves what it may have been given to the window's end.
        let poll = move |cx: Context| async move { cx.until_interrupted(poll(running, max)).await };
        if let Err(refused) = group.try_submit(Context::new(), poll) {
            // There are very many polls, or this is the end: what others bring is for all.
            drop(refused);
        }
    }

    /// Keeps what polls brought and nobody took alive, and hands it back in the end.
    pub(super) async fn keep_ready(&self) {
        let window = self.link.settings.window;
        let round = Instant::now();
        let (kept, given_up) = {
            let mut polls = self.polls.lock();
            let ready = std::mem::take(&mut polls.ready);
            let (young, old): (VecDeque<_>, VecDeque<_>) =
                ready.into_iter().partition(|(_, came)| *came + window > round);
            polls.ready = young;
            let kept: Vec<_> = polls.ready.iter().map(|(kept, _)| kept.receipt.clone()).collect();
            (kept, old)
        };
        if !kept.is_empty() {
            drop(self.extend(kept).await);
        }
        self.hand_back(given_up.into_iter().map(|(delivery, _)| delivery).collect()).await;
    }

    /// Hands back all that polls brought and nobody took.
    pub(super) async fn hand_back_ready(&self) {
        let ready = std::mem::take(&mut self.polls.lock().ready);
        self.hand_back(ready.into_iter().map(|(delivery, _)| delivery).collect()).await;
    }

    /// Makes messages visible at once that nobody was given. What fails comes back by itself.
    async fn hand_back(&self, deliveries: Vec<Delivery<M>>) {
        let back = |delivery: Delivery<M>| {
            let (after, attempts, reason) = (Duration::ZERO, delivery.attempts, Reason::Draining);
            let settlement = Settlement::Retry { after, attempts, reason };
            Settle { receipt: delivery.receipt, settlement }
        };
        drop(self.settle(deliveries.into_iter().map(back).collect()).await);
    }

    /// Waits until no poll is under way, and hands back what they brought: what becomes visible while one
    /// is would be handed to it and hidden for a window.
    pub(super) async fn end_polls(&self) {
        self.hand_back_ready().await;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.polls.lock().running == 0 {
                break;
            }
            changed.await;
        }
        self.hand_back_ready().await;
    }

    fn next_poll_id(&self, max: usize) -> Option<PollId> {
        if !self.link.settings.is_fifo() {
            return None;
        }
        let mut polls = self.polls.lock();
        let window = self.link.settings.window.min(REPEATABLE);
        polls.lost.retain(|(_, since)| since.elapsed() < window);
        if let Some((id, _)) = polls.lost.pop() {
            return Some(id);
        }
        polls.numbered += 1;
        Some(PollId { text: format!("{:016x}-{}", self.life, polls.numbered), max })
    }

    /// Hears what became of a poll: when the next one may begin.
    fn polled(&self, asked: usize, brought: Result<usize, &Trouble>, id: Option<PollId>) {
        let mut polls = self.polls.lock();
        let now = Instant::now();
        match brought {
            Ok(count) => {
                polls.brought(asked, count, now);
                drop(polls);
                self.works(Part::Receiving);
            }
            Err(trouble) => {
                polls.not_before = now + polls.pauses.next();
                polls.error = Some(trouble.clone().into());
                if let (Some(id), Trouble::Passing(_)) = (id, trouble) {
                    polls.lost.push((id, now));
                }
                drop(polls);
                self.fails(Part::Receiving, trouble);
            }
        }
    }

    /// Sorts out what a poll brought: what is to be handed over, and what the service is to be asked
    /// instead.
    fn sort(&self, incoming: Vec<Incoming>) -> (Vec<Delivery<M>>, Vec<(String, Wish)>) {
        let now = Instant::now();
        let window = self.link.settings.window;
        let keeps_copies = self.dead_letters().is_some();
        let mut deliveries = Vec::with_capacity(incoming.len());
        let mut wishes = Vec::new();
        // Groups of which an earlier message is not due: later ones must not overtake it.
        let mut held: Vec<Arc<str>> = Vec::new();
        for mut incoming in incoming {
            let mut books = self.books.lock();
            let arrival = match books.arrived(&incoming.broker_id, now) {
                Arrival::Due(_) if !incoming.rest.is_zero() => Arrival::Early(incoming.rest),
                other => other,
            };
            let is_held = incoming.group.as_ref().is_some_and(|group| held.contains(group));
            match arrival {
                Arrival::Over => wishes.push((incoming.handle, Wish::Delete)),
                // It stays behind the one that is hidden, which holds the group.
                Arrival::Due(_) if is_held => wishes.push((incoming.handle, Wish::Hide(0))),
                Arrival::Early(rest) => {
                    books.hidden(Arc::clone(&incoming.broker_id), now + rest);
                    let seconds = seconds_up(rest).min(LONGEST_HIDE - 10);
                    wishes.push((incoming.handle, Wish::Hide(seconds)));
                    held.extend(incoming.group.filter(|_| self.link.settings.is_fifo()));
                }
                Arrival::Due(attempts) => {
                    let copy = keeps_copies.then(|| Arc::new(incoming.copied()));
                    let id = &incoming.broker_id;
                    let receipt = books.hand_over(id, &incoming.handle, now, window, copy);
                    drop(books);
                    let Incoming { broker_id, envelope, .. } = incoming;
                    let message = M::read(envelope);
                    deliveries.push(Delivery { broker_id, receipt, attempts, message });
                }
            }
        }
        (deliveries, wishes)
    }
}

/// One poll, from its pause to what is left to do for what it brought.
async fn poll<M: Content>(running: Running<M>, max: usize) {
    let inner = Arc::clone(&running.0);
    let not_before = inner.polls.lock().not_before;
    sleep_until(not_before).await;
    if inner.stopped.load(Ordering::Acquire) {
        return;
    }
    let id = inner.next_poll_id(max);
    let max = id.as_ref().map_or(max, |id| id.max);
    let brought = match inner.is_looked_at() {
        Ok(()) => inner.link.poll(max, id.as_ref()).await,
        Err(trouble) => Err(trouble),
    };
    let messages = match brought {
        Ok(messages) => messages,
        Err(trouble) => return inner.polled(max, Err(&trouble), id),
    };
    inner.polled(max, Ok(messages.len()), id);
    let queue = &inner.link.settings.name;
    let incoming = messages.into_iter().filter_map(|message| Incoming::read(message, queue));
    let (deliveries, wishes) = inner.sort(incoming.collect());
    let now = Instant::now();
    inner.polls.lock().ready.extend(deliveries.into_iter().map(|delivery| (delivery, now)));
    if inner.stopped.load(Ordering::Acquire) {
        inner.hand_back_ready().await;
    }
    // Nobody waits for what follows.
    drop(running);
    let entries: Vec<_> =
        wishes.iter().map(|(handle, wish)| Entry { handle, wish: *wish }).collect();
    inner.link.ask_all(&entries).await;
}
