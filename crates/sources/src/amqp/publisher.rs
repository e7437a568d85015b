//! Publishing: what is to be published waits in line, and one task sends it.
//!
//! 1. It has a connection of its own. A broker short of memory or disk stops reading from those who
//!    publish; acks must not be stuck behind that.
//! 2. Every message is answered by itself and once, whatever happens: whoever waits for a copy before an
//!    ack is told, not left.
//! 3. While the broker takes nothing the line stays as it is, however long that takes: what is on its way
//!    would be stored again if it were sent again.
//! 4. Who gives up while their message is still in line takes it along: the line is as long as those
//!    who wait have put in.

mod blame;
mod line;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::ShortString;
use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::address::AmqpAddress;
use super::delay_queues::{DelayStep, RENEW};
use super::topology::short;
use line::Line;
use session::Session;

/// How long it waits after it could not connect.
const PAUSE: Duration = Duration::from_millis(200);

/// A message on its way out. Dropped, it answers that it was broken off.
pub(crate) struct Outgoing {
    to: Destination,
    body: Bytes,
    properties: BasicProperties,
    /// How often it was sent.
    tries: u8,
    answer: Option<Answer>,
}

/// Told once, with what became of a message.
pub(crate) type Answer = Box<dyn FnOnce(Result<(), SourceError>) + Send + Sync>;

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Destination {
    /// Into a queue.
    Queue(Arc<str>),
    /// Into a queue, after a delay.
    Later(Arc<str>, DelayStep),
    /// To an exchange.
    Exchange(Arc<str>, Arc<str>),
}

impl Destination {
    fn route(&self) -> (ShortString, ShortString) {
        match self {
            Self::Queue(queue) => ("".into(), short(queue)),
            Self::Later(queue, step) => ("".into(), step.queue(queue)),
            Self::Exchange(exchange, key) => (short(exchange), short(key)),
        }
    }

    /// Whether its exchange may be missing, which ends the channel.
    fn is_to_exchange(&self) -> bool {
        matches!(self, Self::Exchange(exchange, _) if !exchange.is_empty())
    }
}

impl Outgoing {
    pub(crate) fn new(
        to: Destination,
        body: Bytes,
        properties: BasicProperties,
        answer: impl FnOnce(Result<(), SourceError>) + Send + Sync + 'static,
    ) -> Self {
        Self { to, body, properties, tries: 0, answer: Some(Box::new(answer)) }
    }

    fn conclude(mut self, answer: Result<(), SourceError>) {
        if let Some(tell) = self.answer.take() {
            tell(answer);
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(tell) = self.answer.take() {
            tell(Err(SourceError::new("publishing was broken off")));
        }
    }
}

/// A message's place in line. Dropped, it takes the message out of the line without an answer, unless it
/// was sent already.
pub(crate) struct Queued {
    publisher: Weak<Publisher>,
    number: u64,
}

impl Drop for Queued {
    fn drop(&mut self) {
        let Some(publisher) = self.publisher.upgrade() else { return };
        let given_up = publisher.waiting.lock().messages.remove(&self.number);
        if let Some(mut message) = given_up {
            // Nobody wants to know, and whoever drops this may hold the locks that telling takes.
            message.answer = None;
        }
    }
}

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Queued").field(&self.number).finish()
    }
}

/// What is to be published, and which delay queues there are.
#[derive(Default)]
pub(crate) struct Publisher {
    waiting: Mutex<Waiting>,
    wake: Notify,
    is_closed: AtomicBool,
    closing: Notify,
    /// The delay queues that were declared, and when that was.
    delay_queues: Mutex<HashMap<(Arc<str>, DelayStep), Instant>>,
}

/// Messages in line, by their numbers.
#[derive(Default)]
struct Waiting {
    last: u64,
    messages: BTreeMap<u64, Outgoing>,
}

impl Publisher {
    /// Puts messages in line. They leave it when they are sent, or their places are dropped.
    pub(crate) fn send(
        self: &Arc<Self>,
        messages: impl IntoIterator<Item = Outgoing>,
    ) -> Vec<Queued> {
        let mut waiting = self.waiting.lock();
        let mut places = Vec::new();
        for message in messages {
            waiting.last += 1;
            let number = waiting.last;
            waiting.messages.insert(number, message);
            places.push(Queued { publisher: Arc::downgrade(self), number });
        }
        drop(waiting);
        self.wake.notify_one();
        // Closed before they were in line, nobody else would answer them.
        if self.is_closed() {
            self.fail_waiting(&SourceError::new("the connection is closed"));
        }
        places
    }

    /// The delays for which this queue has delay queues, as far as they were declared here.
    pub(crate) fn delay_steps(&self, queue: &str) -> Vec<DelayStep> {
        let declared = self.delay_queues.lock();
        declared.keys().filter(|(of, _)| **of == *queue).map(|(_, step)| *step).collect()
    }

    /// A delay queue is gone.
    pub(crate) fn forget(&self, queue: &Arc<str>, step: DelayStep) {
        self.delay_queues.lock().remove(&(Arc::clone(queue), step));
    }

    /// Publishes until it is closed or dropped.
    pub(crate) async fn run(self: Arc<Self>, address: AmqpAddress) {
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        tokio::select! {
            () = self.publish(&address) => {}
            () = closing => {}
        }
    }

    async fn publish(&self, address: &AmqpAddress) {
        while !self.is_closed() {
            if self.waiting.lock().messages.is_empty() {
                self.wake.notified().await;
                continue;
            }
            match Line::open(address).await {
                Ok(line) => Session::new(self, line).run().await,
                Err(error) => {
                    self.fail_waiting(&error);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Publishes nothing more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        self.fail_waiting(&SourceError::new("the connection is closed"));
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn next(&self) -> Option<(u64, Outgoing)> {
        self.waiting.lock().messages.pop_first()
    }

    /// Puts messages back in line at their places.
    fn put_back(&self, messages: impl Iterator<Item = (u64, Outgoing)>) {
        self.waiting.lock().messages.extend(messages);
        if self.is_closed() {
            self.fail_waiting(&SourceError::new("the connection is closed"));
        }
    }

    /// Answers whoever waits in line.
    fn fail_waiting(&self, error: &SourceError) {
        let waiting = std::mem::take(&mut self.waiting.lock().messages);
        for message in waiting.into_values() {
            message.conclude(Err(error.clone()));
        }
    }

    /// Whether a delay queue stands, and will for a while.
    fn stands(&self, key: &(Arc<str>, DelayStep)) -> bool {
        self.delay_queues.lock().get(key).is_some_and(|at| at.elapsed() < RENEW)
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.waiting.lock().messages.len();
        f.debug_struct("Publisher").field("waiting", &waiting).finish_non_exhaustive()
    }
}
