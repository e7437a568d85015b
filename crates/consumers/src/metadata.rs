//! What a handler is told about the message it is given.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sluicegate_dispatch::Envelope;

/// A message that was taken in, as long as anybody here needs it.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) broker_id: Arc<str>,
    /// Which taking in it is; a message that is taken in again has another.
    pub(crate) number: u64,
    pub(crate) envelope: Envelope,
}

/// What is known of a message beside its payload. Cheap to clone.
#[derive(Clone)]
pub struct Metadata {
    pub(crate) letter: Arc<Letter>,
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
        self.letter.envelope.id.as_deref()
    }

    /// The broker's id of the message, the same at every delivery of it.
    #[must_use]
    pub fn broker_id(&self) -> &str {
        &self.letter.broker_id
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.letter.envelope.header(name)
    }

    /// All headers, as they came.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.letter.envelope.headers.iter().map(|(name, value)| (&**name, &**value))
    }

    /// What kind of event it is, where the sender said so.
    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        self.letter.envelope.event_type.as_deref()
    }

    /// What it was sent by.
    #[must_use]
    pub fn routing_key(&self) -> Option<&str> {
        self.letter.envelope.routing_key.as_deref()
    }

    /// Its message group, where the broker knows one.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.letter.envelope.group.as_deref()
    }

    /// Whether it may have been delivered before.
    #[must_use]
    pub fn redelivered(&self) -> bool {
        self.letter.envelope.redelivered
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
        &self.letter.envelope.body
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
