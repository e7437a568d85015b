//! A message as its sender wrote it, before anyone has read its body.

use std::sync::Arc;

use bytes::Bytes;

/// A body with what its broker says of it: what sources read messages out of, and what handlers
/// written in Rust are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The body.
    pub body: Bytes,
    /// The sender's id of the message, where the broker carries one.
    pub id: Option<Arc<str>>,
    /// What kind of event it is, where the broker carries that.
    pub event_type: Option<Arc<str>>,
    /// What it was sent by: a routing key, a subject, the name of a queue.
    pub routing_key: Option<Arc<str>>,
    /// What it stays in order with, where the broker knows: a message group.
    pub group: Option<Arc<str>>,
    /// The sender's headers. A name may come more than once; the first one counts.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
}

impl Envelope {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}
