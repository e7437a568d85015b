//! The way from a plan to a broker that answers.

use std::io;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::plan::Plan;
use super::server::Servers;
use super::{Broker, Failed, Kind, StartError, handshake};

/// How long a broker may take from its start to its first answer. A quiet machine needs three
/// seconds for the slowest; the rest is for busy ones.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a start is tried on new ports when another process took one of them in between.
const TRIES: u32 = 3;

/// What one question to a starting broker gave.
pub(super) enum Answer {
    Ready,
    NotYet,
    /// It had all the time there is.
    Never(String),
    /// A server is gone.
    Ended,
}

impl Answer {
    pub(super) fn of(kind: Kind, plan: &Plan, servers: &Servers, begun: Instant) -> Answer {
        let answered = handshake::of(kind, plan.address);
        // Asked after the handshake: if ours still lives, then it was ours that answered.
        if servers.any_ended() {
            return Answer::Ended;
        }
        match answered {
            Ok(()) => Answer::Ready,
            Err(error) if begun.elapsed() > PATIENCE => {
                Answer::Never(format!("no answer in {} s: {error}", PATIENCE.as_secs()))
            }
            Err(_) => Answer::NotYet,
        }
    }
}

/// The place of one broker among several that start together.
pub(super) enum Slot {
    Waiting(Starting),
    Settled(Result<Broker, StartError>),
}

/// A broker that does not answer yet.
pub(super) struct Starting {
    kind: Kind,
    attempt: u32,
    begun: Instant,
    plan: Plan,
    // Declared in the order of their end: first the servers, then their folder.
    servers: Servers,
    folder: Folder,
}

impl Slot {
    pub(super) fn begin(kind: Kind, attempt: u32) -> Slot {
        if let Err(missing) = kind.installed() {
            return Slot::Settled(Err(StartError::Missing(missing)));
        }
        let failed = |e: io::Error| Failed { kind, why: e.to_string(), log: String::new() };
        Starting::begin(kind, attempt)
            .map_or_else(|e| Slot::Settled(Err(failed(e).into())), Slot::Waiting)
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Slot::Waiting(_))
    }

    /// Asks a waiting broker once.
    pub(super) fn advance(self) -> Slot {
        match self {
            Slot::Waiting(starting) => starting.advance(),
            settled @ Slot::Settled(_) => settled,
        }
    }

    pub(super) fn settled(self) -> Option<Result<Broker, StartError>> {
        match self {
            Slot::Waiting(_) => None,
            Slot::Settled(result) => Some(result),
        }
    }
}

impl Starting {
    fn begin(kind: Kind, attempt: u32) -> io::Result<Starting> {
        let begun = Instant::now();
        let folder = Folder::new(kind.name())?;
        let plan = Plan::of(kind, &folder)?;
        let mut servers = Servers::default();
        for spec in &plan.servers {
            servers.start(spec, &folder)?;
        }
        Ok(Starting { kind, attempt, begun, plan, servers, folder })
    }

    fn advance(self) -> Slot {
        match Answer::of(self.kind, &self.plan, &self.servers, self.begun) {
            Answer::Ready => Slot::Settled(Ok(self.into_broker())),
            Answer::NotYet => Slot::Waiting(self),
            Answer::Never(why) => self.give_up(why),
            // A server that ends at once has most often lost its port to another process.
            Answer::Ended if self.attempt < TRIES => {
                let (kind, next) = (self.kind, self.attempt + 1);
                drop(self);
                Slot::begin(kind, next)
            }
            Answer::Ended => self.give_up(format!("a server ended, {TRIES} times")),
        }
    }

    fn give_up(self, why: String) -> Slot {
        Slot::Settled(Err(Failed::new(self.kind, why, &self.folder).into()))
    }

    fn into_broker(self) -> Broker {
        Broker {
            kind: self.kind,
            ready_after: self.begun.elapsed(),
            plan: self.plan,
            servers: self.servers,
            folder: self.folder,
        }
    }
}
