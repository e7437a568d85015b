//! Private brokers: real servers on loopback, each in a temporary folder, for one test or session.
//!
//! 1. A server is one child process in a process group of its own; only groups started here are
//!    ever signalled.
//! 2. Ready means that the broker's protocol answered, and that our own process is the one alive.
//! 3. Dropping a [`Broker`] stops its servers, waits for their end, then removes the folder.
//! 4. Should the starting process die first, the kernel ends the servers: it sends them a signal
//!    when the *thread* that started them ends. So start a broker that several tests share from a
//!    thread that lives as long as they do; the main thread of `cargo xtask brokers` is one.
//!
//! A server that is not installed is a typed error, [`Missing`]. For a person that is a printed
//! skip; on CI, where `cargo xtask test` installs everything, it is a failure: [`start_or_skip`].

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::needs::{NEEDS, User};

mod activemq;
mod folder;
mod handshake;
mod lent;
mod nats;
mod plan;
mod postgres;
mod rabbitmq;
mod server;
mod sqs;
mod starting;

use folder::Folder;
use plan::Plan;
use server::Servers;
use starting::{Answer, Slot};

pub use lent::{Lent, lend, lending};

/// A kind of broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// RabbitMQ with its management plugin.
    RabbitMq,
    /// NATS with JetStream.
    Nats,
    /// PostgreSQL, one fresh cluster, trusting everybody on loopback.
    Postgres,
    /// ActiveMQ Classic over STOMP, with its scheduler on.
    ActiveMq,
    /// An emulation of SQS that keeps its state in memory.
    Sqs,
}

impl Kind {
    /// All of them, the slowest to start first.
    pub const ALL: [Kind; 5] =
        [Kind::RabbitMq, Kind::ActiveMq, Kind::Postgres, Kind::Sqs, Kind::Nats];

    /// The name used on the command line and in [`crate::needs`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::RabbitMq => "rabbitmq",
            Kind::Nats => "nats",
            Kind::Postgres => "postgres",
            Kind::ActiveMq => "activemq",
            Kind::Sqs => "sqs",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What has to be installed before it can start.
    pub fn installed(self) -> Result<(), Missing> {
        let user = User::Broker(self.name());
        let mut missing = NEEDS.iter().filter(|n| n.users.contains(&user) && !n.is_met());
        missing.next().map_or(Ok(()), |need| {
            Err(Missing { what: need.name, install: need.install_command() })
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that a broker needs is not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The name of it, a row of [`crate::needs::NEEDS`].
    pub what: &'static str,
    /// The command that installs it.
    pub install: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not installed: {}", self.what, self.install)
    }
}

/// A broker did not start.
#[derive(Debug)]
pub struct Failed {
    /// Which one.
    pub kind: Kind,
    /// What went wrong.
    pub why: String,
    /// The last lines of its logs.
    pub log: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} did not start: {}", self.kind, self.why)?;
        if !self.log.is_empty() {
            write!(f, "\nthe end of its log:\n{}", self.log)?;
        }
        Ok(())
    }
}

/// Why there is no broker.
#[derive(Debug)]
pub enum StartError {
    /// It is not installed.
    Missing(Missing),
    /// It is installed, and failed.
    Failed(Failed),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Missing(missing) => missing.fmt(f),
            StartError::Failed(failed) => failed.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl From<Failed> for StartError {
    fn from(failed: Failed) -> StartError {
        StartError::Failed(failed)
    }
}

/// A running broker; stopped and removed when dropped.
#[derive(Debug)]
pub struct Broker {
    kind: Kind,
    ready_after: Duration,
    plan: Plan,
    // Declared in the order of their end: first the servers, then their folder.
    servers: Servers,
    folder: Folder,
}

/// How often a broker that does not answer yet is asked.
const POLL: Duration = Duration::from_millis(10);
/// How long what a crashed server leaves behind may take to end.
const REMAINS: Duration = Duration::from_secs(10);

/// Starts one broker and waits until it answers.
pub fn start(kind: Kind) -> Result<Broker, StartError> {
    let mut started = start_all(&[kind]);
    started.pop().unwrap_or_else(|| unreachable!("one kind gives one result"))
}

/// Starts several at once; the results are in the order of the kinds.
pub fn start_all(kinds: &[Kind]) -> Vec<Result<Broker, StartError>> {
    folder::sweep();
    let mut slots: Vec<Slot> = kinds.iter().map(|kind| Slot::begin(*kind, 1)).collect();
    while slots.iter().any(Slot::is_waiting) {
        std::thread::sleep(POLL);
        slots = slots.into_iter().map(Slot::advance).collect();
    }
    slots.into_iter().filter_map(Slot::settled).collect()
}

/// Starts one for a test; without it the test passes over, except on CI.
///
/// # Panics
///
/// When the broker is there but does not start, and on CI also when it is not there.
#[must_use]
pub fn start_or_skip(kind: Kind) -> Option<Broker> {
    match start(kind) {
        Ok(broker) => Some(broker),
        Err(StartError::Missing(missing)) if !on_ci() => {
            println!("skipped: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether a missing broker is a failure.
#[must_use]
pub fn on_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

impl Broker {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.plan.url
    }

    /// The same as an address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.plan.address
    }

    /// Where its HTTP management is, if it has one: RabbitMQ and NATS.
    #[must_use]
    pub fn management_url(&self) -> Option<&str> {
        self.plan.management_url.as_deref()
    }

    /// The process id of the server itself.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.servers.main().map_or(0, server::Server::pid)
    }

    /// From its start to its first answer.
    #[must_use]
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Its folder; nothing of it remains after the drop.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Ends the server as a power cut would: no goodbye, no flush. Its data stay.
    pub fn crash(&mut self) {
        self.servers.kill_main();
    }

    /// Ends the server as its keeper would, with time to write down what it has, and starts it again.
    pub fn bounce(&mut self) -> Result<(), StartError> {
        self.bounce_with(|_| {})
    }

    /// The same. While it is down, something may be done to the files in its folder.
    pub fn bounce_with(
        &mut self,
        meanwhile: impl FnOnce(&std::path::Path),
    ) -> Result<(), StartError> {
        self.servers.dismiss_main();
        meanwhile(self.folder.path());
        self.start_again()
    }

    /// Starts it again after [`Broker::crash`], with the same data on the same ports.
    pub fn restart(&mut self) -> Result<(), StartError> {
        self.crash();
        self.start_again()
    }

    fn start_again(&mut self) -> Result<(), StartError> {
        let begun = Instant::now();
        self.start_main()?;
        loop {
            match Answer::of(self.kind, &self.plan, &self.servers, begun) {
                Answer::Ready => break,
                Answer::NotYet => std::thread::sleep(POLL),
                Answer::Never(why) => return Err(Failed::new(self.kind, why, &self.folder).into()),
                // Children of the one that crashed may still be ending, and hold what it held.
                Answer::Ended if begun.elapsed() < REMAINS => {
                    self.crash();
                    std::thread::sleep(POLL);
                    self.start_main()?;
                }
                Answer::Ended => {
                    let why = "the server ended".to_owned();
                    return Err(Failed::new(self.kind, why, &self.folder).into());
                }
            }
        }
        self.ready_after = begun.elapsed();
        Ok(())
    }

    fn start_main(&mut self) -> Result<(), Failed> {
        let failed = |e: std::io::Error| Failed::new(self.kind, e.to_string(), &self.folder);
        match self.plan.servers.last() {
            Some(spec) => self.servers.start(spec, &self.folder).map_err(failed),
            None => Ok(()),
        }
    }

    /// Stops the server in its tracks: connections stay open and nobody answers.
    pub fn pause(&self) {
        self.servers.main().inspect(|server| server.pause());
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.servers.main().inspect(|server| server.resume());
    }
}

impl Failed {
    fn new(kind: Kind, why: String, folder: &Folder) -> Failed {
        let log = folder.log_tail();
        Failed { kind, why, log }
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;
    use crate::needs::{NEEDS, User};

    #[test]
    fn every_kind_is_named_once_and_has_needs() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
            let user = User::Broker(kind.name());
            assert!(NEEDS.iter().any(|need| need.users.contains(&user)), "{kind}");
        }
        assert_eq!(Kind::named("kafka"), None);
    }
}
