//! The simulation's own proof: seeds hold, and the same seed gives the same trace, to the byte.

use sluicegate_sim::run::{run_seeds, run_twice};
use sluicegate_sim::scenarios::ALL;
use sluicegate_sim::trace::Trace;

#[test]
fn seeds_hold() {
    for scenario in &ALL {
        let report = run_seeds(scenario, 1..=60).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(report.seeds, 60);
        // Shares can be told only where nothing else happens.
        let is_faulty = scenario.name != "router-fair";
        assert!(report.admitted > 1_000 && report.refused > 0, "{report}");
        assert_eq!(report.faults > 100, is_faulty, "{}: {report}", scenario.name);
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
        assert!(trace(1).lines().count() > 100);
        assert_ne!(trace(1), trace(2), "different seeds differ");
    }
}
