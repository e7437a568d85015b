//! What the source and the task behind it share: the connection's state, under one lock.
//!
//! 1. The lock is never held over an await, and nobody who needs it is woken under it.
//! 2. A settlement does not depend on who asked for it: each receipt of the broker leads to the next
//!    step by itself, so the asker may go away at any moment.
//! 3. A message is acknowledged at most once on a connection: `Shelf::begin_settling` gives its place
//!    to one settlement only. A second ACK would end the connection.
//! 4. A copy is confirmed before its original is acknowledged.
//! 5. A source has two of them: one receives and acknowledges, one sends. A broker that does not take
//!    messages stops reading from the connection they come by; acknowledgements must not wait there.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    DEFAULT_GROUP, Depth, Message, Order, Receipt, Settle, Settled, Settlement, SourceError,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::connect::{Intent, subscription};
use super::frame::{Command, Frame};
use super::link::{End, Link, Owed};
use super::parcel::{Parcel, unix_millis};
use super::settings::StompSettings;
use super::shelf::{Lined, Taken};
use super::tally::{Asker, Publisher, Replies, Tally};
use crate::wire;

/// How long what could not be acknowledged for sure is remembered after the connection was lost.
const OWED_FOR: Duration = Duration::from_secs(300);
const MAX_OWED: usize = 10_000;
/// How much too early, by our clock, a message may come that the broker's scheduler has kept.
const MAX_EARLY: Duration = Duration::from_secs(1);
/// How many more messages than agreed a broker may send before it is taken for broken.
const MAX_BEYOND_PREFETCH: usize = 1_000;

/// What the source and its task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: StompSettings,
    state: Mutex<State>,
    /// Somebody who receives may find something.
    pub(crate) changed: Notify,
    /// There is something to write, or the end has come.
    pub(crate) outgoing: Notify,
    /// Whether bodies are the router's messages, of which pool and group are known.
    reads_messages: bool,
}

#[derive(Debug, Default)]
struct State {
    link: Option<Link>,
    /// Why there is no connection.
    cause: Option<String>,
    is_stopped: bool,
    /// Whether anybody has ever wanted to receive.
    is_wanted: bool,
    /// What was about to end when the connection was lost, by the broker's ids: if it comes again, it
    /// is ended and not handed out.
    owed: HashMap<Arc<str>, (Owed, Instant)>,
    /// How many messages were sent with a delay, by the second in which it ends.
    sent_away: BTreeMap<u64, u64>,
    /// What stays in order.
    order: Arc<Order>,
    /// Whether the broker's scheduler is off.
    ignores_delays: bool,
}

/// A message of which a copy is being sent, over another connection than its own.
struct Original {
    generation: u64,
    place: u64,
    message_id: Arc<str>,
    asker: Asker,
}

/// What a receiver finds.
pub(crate) enum Found {
    Taken(Vec<Taken>),
    /// Nothing before this, unless somebody calls.
    Nothing(Option<Instant>),
    /// There is no connection.
    Down(SourceError),
    Stopped,
}

impl Shared {
    pub(crate) fn new<M: 'static>(settings: StompSettings) -> Self {
        Self {
            settings,
            state: Mutex::default(),
            changed: Notify::new(),
            outgoing: Notify::new(),
            reads_messages: TypeId::of::<M>() == TypeId::of::<Message>(),
        }
    }

    pub(crate) const fn reads_messages(&self) -> bool {
        self.reads_messages
    }

    /// Changes the state, then tells those whom it concerns.
    fn change<R>(&self, change: impl FnOnce(&mut State, &mut Replies) -> R) -> R {
        let mut replies = Replies::default();
        let result = change(&mut self.state.lock(), &mut replies);
        replies.send();
        result
    }

    /// What the next connection is for.
    pub(crate) fn intent(&self) -> Intent {
        if self.state.lock().is_wanted { Intent::Receive } else { Intent::Publish }
    }

    /// Begins a connection's life.
    pub(crate) fn begin(&self, intent: Intent) {
        let mut state = self.state.lock();
        state.link = Some(Link::new(intent == Intent::Receive));
        state.cause = None;
    }

    /// Ends it, or says why there is none. Whether it was of any use.
    pub(crate) fn lose(&self, cause: String) -> bool {
        let was_useful = self.change(|state, replies| {
            let now = Instant::now();
            let was_useful = state.link.as_ref().is_some_and(|link| link.was_useful);
            state.owed.retain(|_, (_, since)| now.duration_since(*since) < OWED_FOR);
            if let Some(link) = state.link.take() {
                let room = MAX_OWED.saturating_sub(state.owed.len());
                let owed = link.lose(&SourceError::new(&cause), replies).into_iter().take(room);
                state.owed.extend(owed.map(|(id, owed)| (id, (owed, now))));
            }
            state.cause = Some(cause);
            was_useful
        });
        self.changed.notify_waiters();
        was_useful
    }

    /// Takes in what the broker says.
    ///
    /// # Errors
    /// Why the connection cannot go on.
    pub(crate) fn hear(&self, frame: Frame) -> Result<(), String> {
        match frame.command {
            Command::Message => self.hear_message(frame),
            Command::Receipt => {
                let number = frame.header("receipt-id").and_then(|number| number.parse().ok());
                self.hear_receipt(number.ok_or("the broker sent a receipt without a number")?);
                Ok(())
            }
            Command::Error => self.hear_error(&frame),
            _ => Ok(()),
        }
    }

    /// An error that names what was asked is the answer to that, and the connection goes on.
    fn hear_error(&self, frame: &Frame) -> Result<(), String> {
        let said = said_error(frame);
        let number = frame.header("receipt-id").and_then(|number| number.parse().ok());
        let (why, window) = (SourceError::new(&said), self.settings.visibility);
        let is_known = self.change(|state, replies| {
            let link = state.link.as_mut().zip(number);
            link.is_some_and(|(link, number)| link.refuse(number, &why, window, replies).is_ok())
        });
        if is_known { Ok(()) } else { Err(said) }
    }

    fn hear_message(&self, frame: Frame) -> Result<(), String> {
        let mut parcel = Parcel::new(frame).ok_or("the broker sent a message without its ids")?;
        let mut state = self.state.lock();
        let lined = self.lined(&state.order, &parcel);
        let (now, rest) = (Instant::now(), rest_of_delay(&parcel));
        if parcel.due.is_some() {
            state.ignores_delays = !parcel.was_scheduled;
        }
        let owed = state.owed.remove(&parcel.message_id);
        let Some(link) = &mut state.link else { return Ok(()) };
        if parcel.is_copy() && link.shelf.knows(&parcel.broker_id) {
            // Somebody else has copied it with all its headers.
            parcel.broker_id = Arc::clone(&parcel.message_id);
        }
        if link.shelf.len() > self.settings.prefetch as usize + MAX_BEYOND_PREFETCH {
            return Err("the broker sends more than it was asked for".to_owned());
        }
        if let Some((owed, _)) = owed {
            let place = link.shelf.put_settling(Arc::new(parcel));
            link.end(End { place, owed, asker: None });
            drop(state);
            self.outgoing.notify_one();
            return Ok(());
        }
        let until = (!rest.is_zero()).then(|| now + rest);
        link.shelf.put(Arc::new(parcel), lined, until);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    fn hear_receipt(&self, number: u64) {
        self.change(|state, replies| {
            let State { link: Some(link), sent_away, .. } = state else { return };
            for due in link.confirm(number, replies) {
                *sent_away.entry(due.div_ceil(1_000)).or_default() += 1;
            }
        });
        self.outgoing.notify_one();
        // The next one of a key may go now.
        self.changed.notify_waiters();
    }

    /// Where a message stands if it stays in order: a router's by its pool and group, any other by its
    /// group.
    fn lined(&self, order: &Order, parcel: &Parcel) -> Option<Lined> {
        if order.is_nothing() {
            return None;
        }
        let (pool, group, id) = if self.reads_messages {
            let Message { pool, group, id, .. } = self.read(parcel)?;
            (pool, group, Some(id))
        } else {
            ("".into(), parcel.group(), parcel.id())
        };
        let group = group.unwrap_or_else(|| DEFAULT_GROUP.into());
        order.keeps(&pool, &group).then_some(Lined { key: (pool, group), id })
    }

    /// The router's message, if it is one.
    fn read(&self, parcel: &Parcel) -> Option<Message> {
        let is_one = self.reads_messages && parcel.is_whole;
        is_one.then(|| wire::parse(&parcel.body).ok()).flatten().map(|incoming| incoming.message)
    }

    pub(crate) fn keep_order(&self, order: &Arc<Order>) {
        let mut state = self.state.lock();
        if state.order == *order {
            return;
        }
        state.order = Arc::clone(order);
        if let Some(link) = &mut state.link {
            link.shelf.line_up(|parcel| self.lined(order, parcel));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// What can be handed out now.
    pub(crate) fn look(&self, max: usize) -> Found {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Found::Stopped;
        }
        state.is_wanted = true;
        let window = self.settings.visibility;
        match state.link_or_cause() {
            Err(down) => Found::Down(down),
            Ok(link) => {
                if link.subscribe(|| subscription(&self.settings, Intent::Receive)) {
                    self.outgoing.notify_one();
                }
                let taken = link.shelf.take(Instant::now(), window, max);
                let is_empty = taken.is_empty();
                if is_empty { Found::Nothing(link.shelf.next_end()) } else { Found::Taken(taken) }
            }
        }
    }

    /// Begins to settle. The answer comes when all is confirmed, or the connection is lost. Copies go over
    /// the sender's connection: one that does not take them holds up nothing here.
    pub(crate) fn settle(
        self: &Arc<Self>,
        sender: &Self,
        settle: Vec<Settle>,
    ) -> oneshot::Receiver<Vec<Settled>> {
        let (tally, answer) = Tally::new(settle.len());
        let mut copies = Vec::new();
        self.change(|state, replies| {
            let Some(link) = &mut state.link else { return replies.all_stale(&tally) };
            for (at, Settle { receipt, settlement }) in settle.into_iter().enumerate() {
                let asker = (Arc::clone(&tally), at);
                match settlement {
                    Settlement::Ack => link.end_out(&receipt, Owed::Ack, asker, replies),
                    Settlement::Park => link.end_out(&receipt, Owed::Nack, asker, replies),
                    Settlement::Retry { after, attempts, .. } => {
                        let retry = (after, attempts);
                        copies.extend(self.bring_back(link, &receipt, retry, asker, replies));
                    }
                }
            }
        });
        self.outgoing.notify_one();
        self.changed.notify_waiters();
        // Neither lock is held while the other one is taken.
        for (original, copy) in copies {
            let shared = Arc::downgrade(self);
            let then = Publisher::new(move |sent| {
                if let Some(shared) = shared.upgrade() {
                    shared.copied(original, sent);
                }
            });
            sender.send(vec![copy], then);
        }
        answer
    }

    /// Sends a copy with its delay; or keeps the message as it is, unacknowledged and at its place,
    /// where that is enough or a copy would break the order.
    fn bring_back(
        &self,
        link: &mut Link,
        receipt: &Receipt,
        (after, attempts): (Duration, u32),
        asker: Asker,
        replies: &mut Replies,
    ) -> Option<(Original, Frame)> {
        let now = Instant::now();
        let begun = link.shelf.begin_settling(receipt, now);
        let known = begun.and_then(|place| Some((place, Arc::clone(link.shelf.parcel(place)?))));
        let Some((place, parcel)) = known else {
            replies.settled(asker, Settled::Stale);
            return None;
        };
        let is_plain = after.is_zero() && attempts <= parcel.attempts;
        if is_plain || !parcel.is_whole || link.shelf.is_ordered(place) {
            let until = (!after.is_zero()).then(|| now + after);
            link.shelf.put_back(place, until, attempts, &asker.0);
            replies.settled(asker, Settled::Done);
            return None;
        }
        let group = if parcel.has_group() { None } else { self.read(&parcel) };
        let group = group.and_then(|message| message.group);
        let copy = parcel.copied(&self.settings.destination(), after, attempts, group.as_deref());
        let (generation, message_id) = (link.generation(), Arc::clone(&parcel.message_id));
        Some((Original { generation, place, message_id, asker }, copy))
    }

    /// Goes on with a message whose copy was sent: acknowledges it, or has it out as before.
    fn copied(&self, original: Original, sent: Result<(), SourceError>) {
        let Original { generation, place, message_id, asker } = original;
        let until = Instant::now() + self.settings.visibility;
        self.change(|state, replies| {
            let link = state.link.as_mut().filter(|link| link.generation() == generation);
            match (link, sent) {
                (Some(link), Ok(())) => {
                    link.end(End { place, owed: Owed::Ack, asker: Some(asker) });
                }
                (Some(link), Err(why)) => {
                    link.shelf.end_settling(place, until);
                    replies.settled(asker, Settled::Failed(why));
                }
                // Its connection was lost meanwhile. If it comes again, it is not handed out.
                (None, Ok(())) => {
                    if state.owed.len() < MAX_OWED {
                        state.owed.insert(message_id, (Owed::Ack, Instant::now()));
                    }
                    replies.settled(asker, Settled::Stale);
                }
                (None, Err(_)) => replies.settled(asker, Settled::Stale),
            }
        });
        self.outgoing.notify_one();
        self.changed.notify_waiters();
    }

    /// Begins to send messages.
    pub(crate) fn publish(&self, frames: Vec<Frame>) -> oneshot::Receiver<Result<(), SourceError>> {
        let (asker, answer) = oneshot::channel();
        // Who went away does not hear of it.
        self.send(frames, Publisher::new(|sent| drop(asker.send(sent))));
        answer
    }

    fn send(&self, frames: Vec<Frame>, publisher: Publisher) {
        self.change(|state, replies| match state.link_or_cause() {
            Ok(link) => link.publish(frames, publisher),
            Err(why) => replies.published(publisher, Err(why)),
        });
        self.outgoing.notify_one();
    }

    /// How many messages that were sent with a delay still wait for its end.
    pub(crate) fn sent_away(&self) -> u64 {
        let mut state = self.state.lock();
        state.sent_away = state.sent_away.split_off(&(unix_millis() / 1_000 + 1));
        state.sent_away.values().sum()
    }

    pub(crate) fn extend(&self, receipts: &[Receipt]) -> Vec<Settled> {
        let mut state = self.state.lock();
        let (now, window) = (Instant::now(), self.settings.visibility);
        let extend = |receipt| {
            let link = state.link.as_mut();
            match link.is_some_and(|link| link.shelf.extend(receipt, now, window)) {
                true => Settled::Done,
                false => Settled::Stale,
            }
        };
        receipts.iter().map(extend).collect()
    }

    pub(crate) fn depth(&self, away: u64) -> Result<Depth, SourceError> {
        let mut state = self.state.lock();
        let (ready, delayed, out) = state.link_or_cause()?.shelf.count(Instant::now());
        // What is delayed here because the broker's scheduler is off was counted when it was sent.
        Ok(Depth { waiting: ready as u64, delayed: away.max(delayed as u64), out: out as u64 })
    }

    pub(crate) fn health(&self) -> Result<(), SourceError> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Ok(());
        }
        state.link_or_cause()?;
        match state.ignores_delays {
            false => Ok(()),
            true => Err(SourceError::new(
                "the broker's scheduler is off, so delayed messages are held here and take up the \
                 prefetch: set schedulerSupport=\"true\" on its <broker> element",
            )),
        }
    }

    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_waiters();
        self.outgoing.notify_one();
    }

    /// Whether it was stopped and nobody has anything to settle: then the connection can end, and what
    /// was sent ahead is free for others.
    pub(crate) fn is_over(&self) -> bool {
        let mut state = self.state.lock();
        state.is_stopped && !state.link.as_mut().is_some_and(Link::is_busy)
    }

    /// What is to be written.
    pub(crate) fn take_outbox(&self) -> VecDeque<Frame> {
        self.state.lock().link.as_mut().map(Link::take_outbox).unwrap_or_default()
    }

    /// Since when the oldest question is the next to be answered.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.state.lock().link.as_ref().and_then(Link::waiting_since)
    }
}

impl State {
    fn link_or_cause(&mut self) -> Result<&mut Link, SourceError> {
        let cause = self.cause.as_deref().unwrap_or("it is not connected yet");
        self.link.as_mut().ok_or_else(|| SourceError::new(cause))
    }
}

/// How much longer a message must wait that has come before its time: the broker's scheduler is off,
/// or the clocks differ a little.
fn rest_of_delay(parcel: &Parcel) -> Duration {
    let rest = parcel.due.map_or(0, |due| due.saturating_sub(unix_millis()));
    let rest = Duration::from_millis(rest);
    if parcel.was_scheduled { rest.min(MAX_EARLY) } else { rest }
}

/// What an ERROR frame says, on one line.
pub(crate) fn said_error(frame: &Frame) -> String {
    let said = frame.header("message").unwrap_or("an error without a reason");
    said.lines().next().unwrap_or_default().chars().take(300).collect()
}
