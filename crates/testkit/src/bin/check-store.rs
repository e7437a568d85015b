//! `check-store`: races on the engines of the event store, and says what no exact store would have answered.
//!
//! It ends with 0 if there was no violation, with 1 if there was one, with 2 if an engine could not be had.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use sluicegate_testkit::checker::{Report, SCENARIOS, Scenario, check};
use sluicegate_testkit::conformance::events::Rig;
use sluicegate_testkit::engines;

/// How often each scenario is run unless it is said.
const ROUNDS: &str = "2000";

fn command() -> Command {
    let number = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(u64));
    let scenarios = SCENARIOS.iter().map(|scenario| scenario.name).collect::<Vec<_>>();
    Command::new("check-store")
        .about("Races on the event store, and looks for answers that no exact store gives")
        .args([
            number("rounds").value_name("N").default_value(ROUNDS).help("Rounds of each scenario"),
            number("seed").value_name("S").default_value("1").help("Where the numbers come from"),
            Arg::new("engine")
                .long("engine")
                .value_parser(engines::NAMES.to_vec())
                .help("Which engine; all when left out"),
            Arg::new("scenario")
                .long("scenario")
                .value_parser(scenarios)
                .help("Which scenario; all when left out"),
        ])
}

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> ExitCode {
    if engines::append_for_another().await {
        return ExitCode::SUCCESS;
    }
    let given = command().get_matches();
    let chosen = given.get_one::<String>("engine");
    let (mut violations, mut missing) = (0, false);
    for name in engines::NAMES.iter().filter(|name| chosen.is_none_or(|chosen| chosen == *name)) {
        match engines::rig(name, Some(&[])) {
            Ok(rig) => violations += race(name, &*rig, &given).await,
            Err(why) => {
                println!("{name}: not checked: {why}");
                missing = true;
            }
        }
    }
    println!("\n{violations} violations");
    match (violations, missing) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}

/// Runs the scenarios on an engine; answers with the violations.
async fn race(engine: &str, rig: &dyn Rig, given: &ArgMatches) -> u64 {
    let number = |name| given.get_one::<u64>(name).copied().unwrap_or_default();
    let (rounds, seed) = (number("rounds"), number("seed"));
    let chosen = given.get_one::<String>("scenario");
    println!("\n{engine}, {rounds} rounds of each, seed {seed}");
    println!("scenario            rounds  appended   refused  violations  seconds");
    let mut violations = 0;
    let wanted = |s: &&Scenario| chosen.is_none_or(|chosen| chosen == s.name);
    for scenario in SCENARIOS.iter().filter(wanted) {
        let progress = |round, found| tell(scenario.name, round, rounds, found);
        let report = check(rig, scenario, rounds, seed, &progress).await;
        print(&report);
        violations += report.violations;
    }
    violations
}

/// How far it is, where somebody watches.
fn tell(scenario: &str, round: u64, rounds: u64, violations: u64) {
    let mut out = std::io::stdout();
    if round.is_multiple_of(50) && out.is_terminal() {
        let line = format!("\r{scenario:<17} {round:>8} of {rounds}, {violations} violations ");
        // Nobody to tell is no reason to stop.
        drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
    }
}

fn print(report: &Report) {
    let Report { scenario, rounds, appended, refused, violations, took, .. } = report;
    let begin = if std::io::stdout().is_terminal() { "\r" } else { "" };
    if let Some(why) = report.skipped {
        println!("{begin}{scenario:<17} skipped: {why:<40}");
        return;
    }
    let seconds = took.as_secs_f64();
    println!(
        "{begin}{scenario:<17} {rounds:>8} {appended:>9} {refused:>9} {violations:>11} {seconds:>8.1}"
    );
    report.examples.iter().for_each(|example| println!("    {example}"));
}
