//! What happens at the ends of a router, and how a trace says so.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Outcome, ParkedCode, PoolSettings, Settled, Settlement};
use sluicegate_schedule::Moment;

/// A key that is parked: queue, pool, group.
pub type KeyName = (Arc<str>, Arc<str>, Arc<str>);

/// A message, or what should have been one, as it was published.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Its number in the whole run.
    pub serial: usize,
    /// Its queue, by number.
    pub queue: usize,
    /// Its queue, by name.
    pub queue_name: Arc<str>,
    /// Its number in its queue.
    pub number: u64,
    /// The application's id; a copy has that of its twin.
    pub id: Arc<str>,
    /// The pool it asks for.
    pub pool: Arc<str>,
    /// Its group.
    pub group: Option<Arc<str>>,
    /// Its tenant.
    pub tenant: Option<Arc<str>>,
    /// Whether it goes before the regular ones.
    pub is_high: bool,
    /// Where it is delivered.
    pub host: Arc<str>,
    /// It is no message.
    pub is_malformed: bool,
    /// How long its first delivery waits.
    pub delay: Duration,
}

/// One delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The message's number in its queue.
    pub number: u64,
    /// Which delivery of it.
    pub generation: u64,
    /// How many attempts the source knows of.
    pub attempts: u32,
}

/// What a settlement did at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is done.
    Done,
    /// Nothing: the receipt was not valid any more.
    Stale,
    /// Nothing, though the source says that it is done.
    Lost,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A message was published.
    Published(Letter),
    /// A router begins to live; the one before it, if any, is dead.
    Begun,
    /// The router is being shut down.
    Stopping,
    /// It is shut down.
    Stopped {
        /// What it says that it left unsettled.
        unsettled: u64,
        /// Whether it says that somebody did not stop in time.
        is_stuck: bool,
        /// What is still in flight.
        in_flight: usize,
        /// Whether nothing kept it from settling everything.
        is_healthy: bool,
    },
    /// A pool is made or changed.
    PoolSet(PoolSettings),
    /// A pool is removed.
    PoolRemoved(Arc<str>),
    /// A queue is removed, or its source replaced.
    QueueStopped {
        /// Which.
        queue: usize,
    },
    /// A source is disturbed: it may hand out again what was handed out by then.
    Disturbed {
        /// Which.
        queue: usize,
        /// Until when.
        until: Moment,
    },
    /// A source hands a batch over.
    HandedOver {
        /// The queue.
        queue: usize,
        /// How often the router opened it before.
        opening: u64,
        /// When the source took them out.
        taken: Moment,
        /// The batch, in order.
        batch: Vec<Handed>,
    },
    /// A pool lets a message in.
    Admitted {
        /// The pool.
        pool: Arc<str>,
        /// The message.
        serial: usize,
    },
    /// A pool has no room for so many.
    Refused {
        /// The pool.
        pool: Arc<str>,
        /// How many.
        count: usize,
    },
    /// An attempt begins.
    Started {
        /// The message.
        serial: usize,
        /// The settings it runs under.
        settings: Arc<PoolSettings>,
        /// Which attempt.
        attempt: u32,
    },
    /// An attempt ends.
    Ended {
        /// The message.
        serial: usize,
        /// How; `None` if it was cut off. A panic is a failure without a wish.
        outcome: Option<Outcome>,
    },
    /// A source is told what became of a delivery.
    Told {
        /// The queue.
        queue: usize,
        /// The message's number there.
        number: u64,
        /// Which delivery.
        generation: u64,
        /// What it is told.
        settlement: Settlement,
        /// What that does.
        effect: Effect,
    },
    /// A source notes how often a message that stays out was tried.
    Rested {
        /// The queue.
        queue: usize,
        /// The message's number there.
        number: u64,
        /// How many attempts were made.
        attempts: u32,
    },
    /// The router hears what became of that.
    Answered {
        /// The queue.
        queue: usize,
        /// The message's number there.
        number: u64,
        /// Which delivery.
        generation: u64,
        /// What it hears.
        settled: Settled,
    },
    /// A message is on the parked list, durably.
    Parked {
        /// The queue.
        queue: Arc<str>,
        /// The message's number there.
        number: u64,
        /// Why.
        code: ParkedCode,
        /// The key that is parked with it.
        key: Option<KeyName>,
    },
    /// Somebody freed a parked key.
    Freed(KeyName),
    /// A message was acknowledged by hand.
    Acked {
        /// Its id.
        id: Arc<str>,
    },
    /// What a pool shows.
    Gauges {
        /// The pool.
        pool: Arc<str>,
        /// How many wait.
        queued: u32,
        /// How many run.
        running: u32,
    },
    /// Everything went well for hours, and there is still something left.
    Stuck,
    /// The end.
    Over {
        /// How many wait in pools.
        queued: u32,
        /// How many run.
        running: u32,
        /// How many are left in sources.
        left: usize,
    },
}

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{} ({}/{} {}", self.serial, self.queue_name, self.number, self.pool)?;
        let parts = [("/", &self.group), (" of ", &self.tenant)];
        for (before, part) in parts {
            if let Some(part) = part {
                write!(f, "{before}{part}")?;
            }
        }
        if self.is_high {
            f.write_str(" high")?;
        }
        if self.is_malformed {
            f.write_str(" malformed")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(letter) if letter.delay.is_zero() => {
                write!(f, "published {letter} as {} to {}", letter.id, letter.host)
            }
            Self::Published(letter) => {
                let Letter { id, host, delay, .. } = letter;
                write!(f, "published {letter} as {id} to {host}, for {delay:?} later")
            }
            Self::HandedOver { queue, batch, .. } => {
                write!(f, "q{} hands over", queue + 1)?;
                batch.iter().try_for_each(|Handed { number, generation, attempts }| {
                    write!(f, " {number}@{generation}+{attempts}")
                })
            }
            Self::Admitted { pool, serial } => write!(f, "  m{serial} waits in {pool}"),
            Self::Started { serial, settings, attempt } => {
                write!(f, "  m{serial} starts in {}, attempt {attempt}", settings.code)
            }
            Self::Ended { serial, outcome: Some(outcome) } => {
                write!(f, "  m{serial} ends: {outcome:?}")
            }
            Self::Ended { serial, outcome: None } => write!(f, "  m{serial} is cut off"),
            Self::Told { queue, number, generation, settlement, effect } => {
                let queue = queue + 1;
                write!(f, "q{queue} is told of {number}@{generation}: ")?;
                match settlement {
                    Settlement::Ack => write!(f, "gone")?,
                    Settlement::Park => write!(f, "parked")?,
                    Settlement::Retry { after, attempts, reason } => {
                        let reason = reason.label();
                        write!(f, "again after {after:?}, {reason}, {attempts} attempts")?;
                    }
                }
                write!(f, ": {effect:?}")
            }
            Self::Answered { queue, number, generation, settled } => {
                write!(f, "  heard from q{} of {number}@{generation}: {settled:?}", queue + 1)
            }
            other => write!(f, "{other:?}"),
        }
    }
}
