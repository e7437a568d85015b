//! The list of messages that a person must look at.

use std::sync::Arc;

use crate::{BoxFuture, LastError, Message, SourceError};

/// A message put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The queue it came from.
    pub queue: Arc<str>,
    /// The source's id of it: parked twice, it is listed once.
    pub broker_id: Arc<str>,
    /// The pool it was in; `None` if it never came that far.
    pub pool: Option<Arc<str>>,
    /// Why it is here, as a word.
    pub code: ParkedCode,
    /// Why it is here, in words.
    pub reason: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How many attempts were made.
    pub attempts: u32,
    /// Whether its key is parked with it: what comes later must not overtake it.
    pub holds_key: bool,
    /// How its last attempt failed.
    pub last_error: Option<Arc<LastError>>,
    /// The message, or the raw text of what is none.
    pub message: Result<Message, String>,
}

/// Why a message was put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParkedCode {
    /// It is no message.
    Malformed,
    /// Its endpoint said that it will never work.
    Rejected,
    /// All attempts were used up.
    Exhausted,
    /// An earlier message of its key is parked with its tail.
    KeyParked,
    /// Its pool does not exist.
    UnknownPool,
}

/// Where parked messages are kept.
pub trait ParkedStore: Send + Sync + 'static {
    /// Keeps messages, durably, all or none, in this order. Those that are there already stay as they are, and
    /// one that was replayed from here comes back to its place.
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>>;

    /// Whether a key was parked with its tail and has messages here: then what comes later must not
    /// overtake them. A key is a group of the pool that its messages were published for, whichever pool serves them.
    /// Cheap, and known from the start on.
    fn holds_key(&self, queue: &str, pool: &str, group: &str) -> bool;

    /// Whether a message, by the application's id, was replayed from here and nothing of its key that is here
    /// or was replayed comes before it: then the hold on its key is not for it. Asked when it starts: it holds its key
    /// no more. Cheap, and known from the start on.
    fn lets_pass(&self, queue: &str, message: &str) -> bool {
        let _ = (queue, message);
        false
    }

    /// The same for whoever only wants to know: nothing follows from it.
    fn may_pass(&self, queue: &str, message: &str) -> bool {
        let _ = (queue, message);
        false
    }

    /// Whether a message was replayed from here and is not [over](ParkedStore::replay_over). Cheap.
    fn is_replayed(&self, queue: &str, message: &str) -> bool {
        let _ = (queue, message);
        false
    }

    /// Notes, durably, that messages which were replayed from here are over. It is called before their source
    /// is told, so that a crash leaves no key held by a message that is gone. Told twice, it changes nothing.
    fn replay_over(
        &self,
        queue: &str,
        messages: Vec<Arc<str>>,
    ) -> BoxFuture<'_, Result<(), SourceError>> {
        let _ = (queue, messages);
        Box::pin(async { Ok(()) })
    }
}

impl ParkedCode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Malformed, Self::Rejected, Self::Exhausted, Self::KeyParked, Self::UnknownPool];

    /// Its name where it is stored or shown.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Rejected => "rejected",
            Self::Exhausted => "exhausted",
            Self::KeyParked => "key_parked",
            Self::UnknownPool => "unknown_pool",
        }
    }

    /// The code of that name.
    #[must_use]
    pub fn of_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.label() == label)
    }
}
