//! Running seeds, and saying what came of it.

use std::fmt;

use crate::oracles::Broken;
use crate::scenarios::{Report, Scenario};
use crate::trace::Trace;

/// Of so many seeds one is run twice, to see that it gives the same trace.
const TWICE: u64 = 50;

/// A seed that found a fault.
#[derive(Debug)]
pub struct Failure {
    /// The scenario.
    pub scenario: &'static str,
    /// The seed.
    pub seed: u64,
    /// What was found.
    pub broken: Broken,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, seed, broken } = self;
        writeln!(f, "{scenario}, seed {seed}: {broken}")?;
        writeln!(f, "replay: cargo xtask sim --seed {seed}")?;
        write!(f, "trace:  cargo run -p sluicegate-sim --release -- ")?;
        write!(f, "--scenario {scenario} --seed {seed} --trace")
    }
}

/// Runs a scenario with each of the seeds.
///
/// # Errors
/// The first seed that found a fault.
pub fn run_seeds(
    scenario: &Scenario,
    seeds: impl Iterator<Item = u64>,
) -> Result<Report, Box<Failure>> {
    let mut total = Report::default();
    for seed in seeds {
        let failed = |broken| Box::new(Failure { scenario: scenario.name, seed, broken });
        let report = if seed % TWICE == 0 {
            run_twice(scenario, seed)
        } else {
            (scenario.run)(seed, &mut Trace::dropped())
        };
        total.add(report.map_err(failed)?);
    }
    Ok(total)
}

/// Runs one seed twice and compares the traces.
///
/// # Errors
/// What the oracles found, or that the traces differ.
pub fn run_twice(scenario: &Scenario, seed: u64) -> Result<Report, Broken> {
    let (mut first, mut second) = (Trace::kept(), Trace::kept());
    let report = (scenario.run)(seed, &mut first)?;
    (scenario.run)(seed, &mut second)?;
    if first.text() != second.text() {
        let differs = first.text().lines().zip(second.text().lines()).find(|(a, b)| a != b);
        return Err(Broken::new("trace", format!("the same seed differs: {differs:?}")));
    }
    Ok(report)
}
