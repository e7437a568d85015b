//! The `sluicegate` command.

mod demo;

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};

const BAD_INPUT: u8 = 2;

/// Built by hand: the derive would emit `#[allow]`s, which this workspace forbids.
fn command() -> Command {
    let count = |name: &'static str, default: &'static str, most: i64| {
        let number = value_parser!(u32).range(1..=most);
        Arg::new(name).long(name).value_name("N").default_value(default).value_parser(number)
    };
    Command::new("sluicegate")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Bounded, fair, ordered dispatch of work")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("demo")
                .about("Messages in groups through a bounded, fair pool, with failures; no set-up")
                .arg(count("messages", "2000", 1_000_000).help("How many messages"))
                .arg(
                    count("groups", "100", 100_000).help("In how many groups, each kept in order"),
                ),
        )
}

fn number(given: &ArgMatches, name: &str) -> u32 {
    given.get_one(name).copied().unwrap_or(1)
}

fn main() -> ExitCode {
    let given = command().get_matches();
    let ran = match given.subcommand() {
        Some(("demo", given)) => demo::run(number(given, "messages"), number(given, "groups")),
        _ => return ExitCode::from(BAD_INPUT),
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sluicegate: {error}");
            ExitCode::FAILURE
        }
    }
}
