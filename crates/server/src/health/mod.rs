//! Whether the daemon works, is ready, and is there at all.
//!
//! Unhealthy is a router that has work and completes none. Having no work is healthy; so is work
//! that waits for a moment, for a person or for a rate, and a call that takes as long as it may.

mod outages;
mod pulse;
mod rests;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::Severity;

use crate::warnings::{Code, Raised};

pub use outages::{Change, Outages, StateChange, StateFile};
pub use pulse::{PoolSeen, Pulse, QueueSeen, Seen, Stall, longest_attempt};
pub use rests::Rests;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// How it is on the whole.
    Overall,
    /// Whether it is there, or should be started anew.
    Live,
    /// Whether it can be given work.
    Ready,
    /// Whether its start is over.
    Startup,
}

/// What the answers come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Whether the first configuration has been applied.
    pub started: bool,
    /// Whether it is shutting down.
    pub ending: bool,
    /// How long ago its loop last came round; `None` before it first did.
    pub last_beat: Option<Duration>,
    /// Its queues.
    pub queues: Vec<QueueState>,
    /// The event store, where it is on another machine.
    pub events: Option<QueueState>,
    /// Work that does not get on.
    pub stalls: Vec<Stall>,
    /// More messages than there can be, if so.
    pub leak: Option<Leak>,
    /// Why the state file cannot be written, if so.
    pub state: Option<String>,
    /// What else a person should look at, and goes on.
    pub incidents: Vec<String>,
}

/// A queue, as far as health goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it has ever been connected.
    pub connected: bool,
    /// What keeps it from working now.
    pub trouble: Option<String>,
}

/// More messages in flight than the pools can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// How many are in flight.
    pub in_flight: u64,
    /// How many there is room for.
    pub room: u64,
}

/// How it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Well.
    #[default]
    Up,
    /// It works, and something does not.
    Degraded,
    /// It does not.
    Down,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// How it is.
    pub status: Status,
    /// What is wrong, a sentence each.
    pub issues: Vec<String>,
}

/// A loop that has not come round for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// How many incidents are named.
const MOST_INCIDENTS: usize = 10;

/// Answers a question.
#[must_use]
pub fn assess(probe: Probe, inputs: &Inputs) -> Health {
    let mut health = Health::default();
    match probe {
        Probe::Startup => health.started(inputs),
        Probe::Live => health.lives(inputs),
        Probe::Ready => {
            health.started(inputs);
            health.stays(inputs);
            health.keeps(inputs);
            health.connected(inputs, Status::Down);
        }
        Probe::Overall => {
            health.started(inputs);
            health.stays(inputs);
            health.lives(inputs);
            health.keeps(inputs);
            health.gets_on(inputs);
            health.connected(inputs, Status::Degraded);
            health.works(inputs);
        }
    }
    health
}

/// More messages in flight than the pools can hold, waiting and running: some are never settled.
#[must_use]
pub fn leak(in_flight: usize, room: u64) -> Option<Leak> {
    let in_flight = in_flight as u64;
    (in_flight > room).then_some(Leak { in_flight, room })
}

impl Leak {
    /// What to warn of.
    #[must_use]
    pub fn warning(self) -> Raised {
        Raised::new(Code::PipelineMapLeak, Severity::Warning, "router", self.to_string())
    }
}

impl Health {
    /// Whether the answer is 200 rather than 503.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status < Status::Down
    }

    /// It as people and programs see it.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "status": self.status.label(), "issues": self.issues })
    }

    fn note(&mut self, status: Status, issue: impl Into<String>) {
        self.status = self.status.max(status);
        self.issues.push(issue.into());
    }

    fn started(&mut self, inputs: &Inputs) {
        if !inputs.started {
            self.note(Status::Down, "the configuration has not been applied yet");
        }
    }

    fn stays(&mut self, inputs: &Inputs) {
        if inputs.ending {
            self.note(Status::Down, "it is shutting down");
        }
    }

    fn keeps(&mut self, inputs: &Inputs) {
        if let Some(trouble) = &inputs.state {
            self.note(Status::Down, format!("the state file cannot be written: {trouble}"));
        }
    }

    fn lives(&mut self, inputs: &Inputs) {
        if let Some(ago) = inputs.last_beat.filter(|ago| *ago > STUCK_AFTER) {
            self.note(Status::Down, format!("nothing has moved for {} s", ago.as_secs()));
        }
    }

    fn gets_on(&mut self, inputs: &Inputs) {
        for stall in &inputs.stalls {
            self.note(Status::Down, stall.to_string());
        }
    }

    fn connected(&mut self, inputs: &Inputs, as_bad_as: Status) {
        if let Some(QueueState { connected: false, trouble, .. }) = &inputs.events {
            let why = trouble.as_ref().map_or(String::new(), |trouble| format!(": {trouble}"));
            self.note(as_bad_as, format!("the event store has not connected yet{why}"));
        }
        for QueueState { name, connected, trouble } in &inputs.queues {
            match (connected, trouble) {
                (true, _) => {}
                (false, None) => {
                    self.note(as_bad_as, format!("queue {name} has not connected yet"));
                }
                (false, Some(trouble)) => {
                    self.note(as_bad_as, format!("queue {name} has not connected yet: {trouble}"));
                }
            }
        }
    }

    fn works(&mut self, inputs: &Inputs) {
        if let Some(QueueState { connected: true, trouble: Some(trouble), .. }) = &inputs.events {
            self.note(Status::Degraded, format!("the event store: {trouble}"));
        }
        for QueueState { name, connected, trouble } in &inputs.queues {
            if let Some(trouble) = trouble.as_ref().filter(|_| *connected) {
                self.note(Status::Degraded, format!("queue {name}: {trouble}"));
            }
        }
        if let Some(leak) = inputs.leak {
            self.note(Status::Degraded, leak.to_string());
        }
        let (said, rest) = inputs.incidents.split_at(inputs.incidents.len().min(MOST_INCIDENTS));
        for incident in said {
            self.note(Status::Degraded, incident);
        }
        if !rest.is_empty() {
            self.note(Status::Degraded, format!("and {} more: see the warnings", rest.len()));
        }
    }
}

impl Status {
    /// Its one spelling.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Up => "UP",
            Self::Degraded => "DEGRADED",
            Self::Down => "DOWN",
        }
    }
}

impl std::fmt::Display for Leak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { in_flight, room } = self;
        write!(f, "{in_flight} messages are in flight, and the pools can hold {room}")
    }
}
