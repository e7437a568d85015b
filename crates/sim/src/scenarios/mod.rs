//! What is simulated.

use std::fmt;

use crate::oracles::Broken;
use crate::trace::Trace;

pub mod agents;
pub mod kernel;
pub mod router;
pub mod sluice;

/// Something that can be run from a seed.
#[derive(Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(seed: u64, trace: &mut Trace) -> Result<Report, Broken>,
}

/// All scenarios.
pub const ALL: [Scenario; 9] = [
    Scenario { name: "kernel", run: kernel::run },
    Scenario { name: "sluice", run: sluice::run },
    Scenario { name: "router", run: router::run },
    Scenario { name: "router-batch", run: router::run_batch },
    Scenario { name: "router-strict", run: router::run_strict },
    Scenario { name: "router-none", run: router::run_none },
    Scenario { name: "router-crash", run: router::run_crash },
    Scenario { name: "router-fair", run: router::run_fair },
    Scenario { name: "agents", run: agents::run },
];

/// What a run went through, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Seeds run.
    pub seeds: u64,
    /// Items let in.
    pub admitted: u64,
    /// Items refused.
    pub refused: u64,
    /// Starts.
    pub started: u64,
    /// Items cancelled, retried, revoked or panicked, and limits changed.
    pub faults: u64,
    /// The widest that two tenants were apart, in units of cost at weight 1.
    pub widest: u64,
}

impl Report {
    /// Counts another run in.
    pub fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.started += other.started;
        self.faults += other.faults;
        self.widest = self.widest.max(other.widest);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, admitted, refused, started, faults, widest } = self;
        write!(f, "{seeds} seeds, {admitted} items, {refused} refused, {started} starts, ")?;
        write!(f, "{faults} faults, tenants at most {widest} apart")
    }
}
