//! One hand-over of a message by a source.

use std::sync::Arc;

use crate::Message;

/// A message as a source handed it over, to be settled once by its receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<M = Message> {
    /// The source's own id of the message, the same at every delivery of it.
    pub broker_id: Arc<str>,
    /// What this delivery is settled with.
    pub receipt: Receipt,
    /// How many attempts were made before, as far as the source can tell.
    pub attempts: u32,
    /// The message, or why it is none.
    pub message: Result<M, Malformed>,
}

/// What one delivery is settled with. Only the source that gave it understands it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// A number of the source's choice, such as a delivery tag.
    pub tag: u64,
    /// Which life of the message or of the connection it belongs to.
    pub generation: u64,
    /// A text of the source's choice, such as a receipt handle.
    pub handle: Option<Arc<str>>,
}

/// A body that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong, with the field's name where there is one.
    pub why: String,
    /// The body as it came, at most 1 MiB of it.
    pub raw: String,
}
