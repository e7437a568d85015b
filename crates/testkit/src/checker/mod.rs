//! A checker of exactness, for any engine of the event store.
//!
//! Scenarios race on a store, round after round, and write down what they asked and what was answered; after each round an
//! oracle that knows nothing of engines judges it by the log that is left. One violation is one too many.
//!
//! | scenario | is about |
//! |---|---|
//! | `one-winner` | staggered racers on one decision, and stale ones after them |
//! | `old-transaction` | the same, while a transaction that has nothing to do with it stays open |
//! | `overlapping` | different conditions that overlap |
//! | `or-rings` | conditions of several items, each racer in the way of the next |
//! | `plain` | plain appends against conditional ones |
//! | `several-engines` | racers on several engines on the same events |
//! | `several-processes` | the same, each engine in a process of its own |
//! | `histories` | random appends, reads and appends that nobody waits for |
//! | `tails` | readers that go on while large and small batches are appended |

mod faulty;
mod history;
mod oracle;
mod rng;
mod round;
mod scenarios;

use std::time::{Duration, Instant};

use crate::conformance::events::Rig;

pub use faulty::{Fault, FaultyEngine};
pub use scenarios::SCENARIOS;

use rng::Rng;
use round::Arena;

/// A way to race on a store.
pub struct Scenario {
    /// Its name, as it is printed.
    pub name: &'static str,
    needs: Needs,
    run: scenarios::Run,
}

/// What a store must be able to do for a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    SeveralEngines,
    SeveralProcesses,
    UnrelatedTransaction,
}

/// How a scenario went.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub scenario: &'static str,
    /// How many rounds were run.
    pub rounds: u64,
    /// Why none was, if that is so.
    pub skipped: Option<&'static str>,
    /// How many appends went through.
    pub appended: u64,
    /// How many were refused.
    pub refused: u64,
    /// How many of them, and of the reads, no exact store could have answered like that.
    pub violations: u64,
    /// The first of them, in words, with the number of the round.
    pub examples: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// How many violations are told in words.
const EXAMPLES: usize = 10;

/// Runs so many rounds of a scenario. `progress` is told the number of each round that is done, and the violations so far.
///
/// # Panics
/// The engine cannot be read at all.
pub async fn check(
    rig: &dyn Rig,
    scenario: &Scenario,
    rounds: u64,
    seed: u64,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Report {
    let begun = Instant::now();
    let mut report = Report::of(scenario.name);
    let subject = rig.store().await;
    let arena = Arena::new(&*subject, scenario.needs).await;
    let mut held = None;
    match scenario.needs {
        Needs::SeveralEngines if arena.engines().len() < 2 => {
            report.skipped = Some("there is one engine only");
            return report;
        }
        Needs::SeveralProcesses if arena.engines().len() < 2 => {
            report.skipped = Some("there is one process only");
            return report;
        }
        Needs::UnrelatedTransaction => {
            held = subject.unrelated_transaction().await;
            if held.is_none() {
                report.skipped = Some("there are no other transactions");
                return report;
            }
        }
        _ => {}
    }
    let mut rng = Rng::new(seed);
    for round in 1..=rounds {
        let ended = arena.round(round, rng.split(), scenario.run).await;
        report.add(round, ended);
        progress(round, report.violations);
    }
    drop(held);
    report.took = begun.elapsed();
    report
}

impl Report {
    fn of(scenario: &'static str) -> Self {
        let (rounds, appended, refused, violations) = (0, 0, 0, 0);
        let (skipped, examples, took) = (None, Vec::new(), Duration::ZERO);
        Self { scenario, rounds, skipped, appended, refused, violations, examples, took }
    }

    fn add(&mut self, round: u64, ended: round::Ended) {
        self.rounds = round;
        self.appended += ended.appended;
        self.refused += ended.refused;
        self.violations += ended.wrong.len() as u64;
        let room = EXAMPLES.saturating_sub(self.examples.len());
        let told =
            ended.wrong.into_iter().take(room).map(|wrong| format!("round {round}: {wrong}"));
        self.examples.extend(told);
    }
}
