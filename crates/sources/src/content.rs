//! What a source reads out of a body.

use std::sync::Arc;

use sluicegate_dispatch::{Envelope, Malformed, Message};

use crate::wire;

/// What can be read out of an [`Envelope`]: the router's [`Message`]s, or envelopes as they are, for
/// handlers written in Rust.
pub trait Content: Sized + Send + Sync + 'static {
    /// Reads it.
    ///
    /// # Errors
    /// Says what is wrong, and keeps the body.
    fn read(envelope: Envelope) -> Result<Self, Malformed>;

    /// The application's id of it, where it has one.
    fn id(&self) -> Option<&Arc<str>>;
}

impl Content for Message {
    fn read(envelope: Envelope) -> Result<Self, Malformed> {
        wire::parse(&envelope.body).map(|incoming| incoming.message)
    }

    fn id(&self) -> Option<&Arc<str>> {
        Some(&self.id)
    }
}

impl Content for Envelope {
    fn read(envelope: Envelope) -> Result<Self, Malformed> {
        Ok(envelope)
    }

    fn id(&self) -> Option<&Arc<str>> {
        self.id.as_ref()
    }
}
