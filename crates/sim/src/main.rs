//! `sluicegate-sim`: runs the simulation's seeds.

use std::process::ExitCode;

use clap::{Arg, ArgAction, Command, value_parser};
use sluicegate_sim::run::{Failure, run_seeds};
use sluicegate_sim::scenarios::{ALL, Report, Scenario};
use sluicegate_sim::trace::Trace;

struct Arguments {
    seed: Option<u64>,
    seeds: u64,
    scenario: Option<String>,
    trace: bool,
}

/// Built, not derived: what clap derives allows lints that this workspace forbids to allow.
fn command() -> Command {
    let number = || value_parser!(u64);
    Command::new("sluicegate-sim")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs scenarios in simulated time, seed after seed, under the eyes of oracles")
        .args([
            Arg::new("seed").long("seed").value_parser(number()).help("Run this seed only"),
            Arg::new("seeds")
                .long("seeds")
                .value_parser(number())
                .default_value("1000")
                .help("Run the seeds from 1 to this"),
            Arg::new("scenario").long("scenario").help("Run this scenario only"),
            Arg::new("trace")
                .long("trace")
                .action(ArgAction::SetTrue)
                .requires("seed")
                .help("Print what happens"),
        ])
}

impl Arguments {
    fn parse() -> Self {
        let matches = command().get_matches();
        Self {
            seed: matches.get_one("seed").copied(),
            seeds: matches.get_one("seeds").copied().unwrap_or(1000),
            scenario: matches.get_one("scenario").cloned(),
            trace: matches.get_flag("trace"),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen: Vec<&Scenario> = ALL
        .iter()
        .filter(|scenario| arguments.scenario.as_deref().is_none_or(|name| name == scenario.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        eprintln!("no such scenario; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    for scenario in chosen {
        match run(&arguments, scenario) {
            Ok(report) => println!("{}: {report}, nothing broken", scenario.name),
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn run(arguments: &Arguments, scenario: &Scenario) -> Result<Report, Box<Failure>> {
    match arguments.seed {
        Some(seed) if arguments.trace => {
            let mut trace = Trace::kept();
            let result = (scenario.run)(seed, &mut trace);
            print!("{}", trace.text());
            result.map_err(|broken| Box::new(Failure { scenario: scenario.name, seed, broken }))
        }
        Some(seed) => run_seeds(scenario, std::iter::once(seed)),
        None => run_seeds(scenario, 1..=arguments.seeds),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }
}
