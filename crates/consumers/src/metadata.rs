//! What a handler is told about the message it is given.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sluicegate_dispatch::Envelope;
use sluicegate_dispatch::intake::{Entry, Tracked};
use sluicegate_tasks::ItemId;

/// What a consumer keeps of a message while it is in flight.
#[derive(Debug)]
pub(crate) struct Consumed {
    pub(crate) envelope: Envelope,
    /// What it stays in order with.
    pub(crate) key: Option<Arc<str>>,
    /// Whether nobody here wanted it.
    pub(crate) is_ignored: AtomicBool,
    /// Where it waits, once it was let in.
    pub(crate) item: OnceLock<ItemId>,
}

impl Entry for Consumed {
    /// A message of the same id is another message: its sender may well mean it.
    fn id(&self) -> Option<&Arc<str>> {
        None
    }

    fn is_ordered(&self) -> bool {
        self.key.is_some()
    }

    fn same_key(&self, other: &Self) -> bool {
        self.key.is_some() && self.key == other.key
    }
}

/// What is known of a message beside its payload. Cheap to clone.
#[derive(Clone)]
pub struct Metadata {
    pub(crate) tracked: Arc<Tracked<Consumed>>,
    pub(crate) whose: Arc<Whose>,
    pub(crate) attempt: u32,
    pub(crate) worker: u32,
}

/// The names of a consumer.
#[derive(Debug)]
pub(crate) struct Whose {
    pub(crate) name: Arc<str>,
    pub(crate) queue: Arc<str>,
}

impl Metadata {
    /// The sender's id of the message, where the broker carries one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.tracked.entry.envelope.id.as_deref()
    }

    /// The broker's id of the message, the same at every delivery of it.
    #[must_use]
    pub fn broker_id(&self) -> &str {
        &self.tracked.broker_id
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.tracked.entry.envelope.header(name)
    }

    /// All headers, as they came.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tracked.entry.envelope.headers.iter().map(|(name, value)| (&**name, &**value))
    }

    /// What kind of event it is, where the sender said so.
    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        self.tracked.entry.envelope.event_type.as_deref()
    }

    /// What it was sent by.
    #[must_use]
    pub fn routing_key(&self) -> Option<&str> {
        self.tracked.entry.envelope.routing_key.as_deref()
    }

    /// Its message group, where the broker knows one.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.tracked.entry.envelope.group.as_deref()
    }

    /// Whether it may have been delivered before.
    #[must_use]
    pub fn redelivered(&self) -> bool {
        self.tracked.entry.envelope.redelivered
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Which of the consumer's workers runs it, from 0.
    #[must_use]
    pub const fn worker(&self) -> u32 {
        self.worker
    }

    /// The consumer's name.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.whose.name
    }

    /// The queue it came from.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.whose.queue
    }

    /// The body as it came.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.tracked.entry.envelope.body
    }
}

/// Without the body and the headers, which may hold what no log should.
impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("consumer", &self.consumer())
            .field("id", &self.id())
            .field("broker_id", &self.broker_id())
            .field("event_type", &self.event_type())
            .field("attempt", &self.attempt)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}
