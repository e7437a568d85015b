//! The simulation's own proof: seeds hold, and the same seed gives the same trace, to the byte.

use sluicegate_sim::run::{run_seeds, run_twice};
use sluicegate_sim::scenarios::ALL;
use sluicegate_sim::trace::Trace;

#[test]
fn seeds_hold() {
    for scenario in &ALL {
        let seeds = if scenario.name == "kernel" { 60 } else { 20 };
        let report = run_seeds(scenario, 1..=seeds).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(report.seeds, seeds);
        // What finds no room mostly waits in its window, in strict order always.
        let is_rare = ["router-strict", "router-fair"].contains(&scenario.name);
        let is_refused = report.refused > 0 || is_rare;
        assert!(report.admitted > 1_000 && is_refused, "{}: {report}", scenario.name);
        // Where tenants are measured nothing else happens to them.
        let is_fair = scenario.name == "router-fair";
        assert!(is_fair || report.faults > 2 * seeds, "{}: {report}", scenario.name);
        assert!(!is_fair || report.widest > 0, "{report}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for scenario in &ALL {
        for seed in [1, 2, 3, 99, 12_345, u64::MAX] {
            run_twice(scenario, seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        }
        let trace = |seed| {
            let mut trace = Trace::kept();
            (scenario.run)(seed, &mut trace).unwrap_or_else(|broken| panic!("{broken}"));
            trace.text().to_owned()
        };
        assert!(trace(1).lines().count() > 100, "{}", scenario.name);
        assert_ne!(trace(1), trace(2), "different seeds differ");
    }
}
