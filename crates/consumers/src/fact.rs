//! What happens in consumers, told once: a log line, and whoever else listens.

use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info, warn};

/// Something that happened. What happens for every message is only counted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact<'a> {
    /// A consumer began to receive.
    Started {
        /// Its name.
        consumer: &'a str,
        /// Its queue.
        queue: &'a str,
        /// How many handlers run at once.
        workers: u32,
        /// How many messages are here at once.
        prefetch: u32,
    },
    /// A consumer asked for more than it can have.
    Capped {
        /// Its name.
        consumer: &'a str,
        /// `workers` or `prefetch`.
        what: &'static str,
        /// What it asked for.
        asked: u32,
        /// What it has.
        given: u32,
    },
    /// An attempt failed and another one follows.
    Retrying {
        /// Whose.
        consumer: &'a str,
        /// The message, by its sender's id or its broker's.
        id: &'a str,
        /// Which worker ran it.
        worker: u32,
        /// Which attempt it was.
        attempt: u32,
        /// When the next one is.
        after: Duration,
        /// What happened.
        why: &'a str,
    },
    /// A message will not be tried again.
    Dead {
        /// Whose.
        consumer: &'a str,
        /// The message, by its sender's id or its broker's.
        id: &'a str,
        /// What happened.
        why: &'a str,
        /// Whether it never reached a handler.
        poison: bool,
        /// Whether it is kept with the dead letters; otherwise it is gone.
        kept: bool,
    },
    /// Settlements came too late: their connection was gone.
    Stale {
        /// Whose.
        consumer: &'a str,
        /// How many.
        count: usize,
    },
    /// A source did not do as it was asked. It is asked again.
    SourceFailed {
        /// Whose.
        consumer: &'a str,
        /// What it was asked for.
        doing: &'static str,
        /// What happened.
        cause: &'a str,
    },
    /// A message will soon have been here for longer than its broker allows.
    Overdue {
        /// Whose.
        consumer: &'a str,
        /// The message, by its broker's id.
        id: &'a str,
        /// How long it has been here.
        age: Duration,
        /// How long the broker allows.
        allowed: Duration,
    },
    /// A consumer has ended.
    Stopped {
        /// Its name.
        consumer: &'a str,
        /// How many messages were given back unhandled.
        handed_back: u64,
        /// How many handlers finished after it was told to stop.
        finished: u64,
        /// How many handlers were cut off at the deadline.
        aborted: u64,
        /// How many messages could not be settled: they come again.
        unsettled: u64,
    },
}

/// Hears of every [`Fact`]. It is called where the fact happens, so it must be quick.
pub type Observer = Arc<dyn Fn(&Fact<'_>) + Send + Sync>;

impl Fact<'_> {
    /// Writes it to the log.
    pub(crate) fn log(&self) {
        match *self {
            Fact::Started { consumer, queue, workers, prefetch } => {
                info!(consumer, queue, workers, prefetch, "the consumer has started");
            }
            Fact::Capped { consumer, what, asked, given } => {
                warn!(consumer, what, asked, given, "the consumer gets less than it asked for");
            }
            Fact::Retrying { consumer, id, worker, attempt, after, why } => {
                warn!(consumer, id, worker, attempt, ?after, why, "the attempt failed");
            }
            Fact::Dead { consumer, id, why, poison, kept: true } => {
                warn!(consumer, id, why, poison, "the message goes to the dead letters");
            }
            Fact::Dead { consumer, id, why, poison, kept: false } => {
                warn!(
                    consumer,
                    id, why, poison, "the message is dropped: no dead letters are kept"
                );
            }
            Fact::Stale { consumer, count } => {
                warn!(consumer, count, "settlements came too late, the messages come again");
            }
            Fact::SourceFailed { consumer, doing, cause } => {
                error!(consumer, doing, cause, "the source failed");
            }
            Fact::Overdue { consumer, id, age, allowed } => {
                warn!(consumer, id, ?age, ?allowed, "the broker will soon take the message back");
            }
            Fact::Stopped { consumer, handed_back, finished, aborted, unsettled } => {
                info!(
                    consumer,
                    handed_back, finished, aborted, unsettled, "the consumer has ended"
                );
            }
        }
    }
}
