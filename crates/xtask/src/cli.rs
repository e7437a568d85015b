//! The command line.
//!
//! Built by hand, not derived: clap's derive writes `allow` attributes into the code, and those
//! clash with the bans that the workspace forbids to lift.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sluicegate_testkit::brokers::Kind;

use crate::brokers;
use crate::gate::{BenchOptions, CheckStoreOptions, SimOptions};
use crate::test;

/// What was asked for.
#[derive(Debug)]
pub(crate) enum Order {
    Test(test::Options),
    Ci,
    Sim(SimOptions),
    Bench(BenchOptions),
    CheckStore(CheckStoreOptions),
    Tidy,
    Brokers(brokers::Options),
    Docs,
}

/// Reads the process's arguments; ends the process with a message where they make no sense.
pub(crate) fn parse() -> Order {
    order(&command().get_matches())
}

fn command() -> Command {
    Command::new("cargo xtask")
        .bin_name("cargo xtask")
        .about("The developer's commands of Sluicegate")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            test_command(),
            Command::new("ci").about(
                "Everything the gate checks: fmt, clippy, tidy, lint, deny, docs, test, sim, \
                 and a smoke run of the benchmarks",
            ),
            sim_command(),
            bench_command(),
            check_store_command(),
            Command::new("tidy").about(
                "Check the project's own law over every file: sizes, names, arrows, rules, links",
            ),
            brokers_command(),
            Command::new("docs").about("Build the API documentation and print where it is"),
        ])
}

fn test_command() -> Command {
    Command::new("test")
        .about("Install what the tests need, then run all: tests, doctests, examples, models")
        .after_help(
            "With ARGS, only the tests step runs: `cargo xtask test -p sluicegate-schedule -- fair`",
        )
        .args([
            Arg::new("no-install")
                .long("no-install")
                .action(ArgAction::SetTrue)
                .help("Install nothing; only say what is missing"),
            Arg::new("package")
                .short('p')
                .long("package")
                .value_name("CRATE")
                .help("Test this package alone"),
            Arg::new("arguments")
                .value_name("ARGS")
                .num_args(0..)
                .last(true)
                .help("Passed to the test runner: names of tests, or its options"),
        ])
}

fn sim_command() -> Command {
    let number = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(u64));
    Command::new("sim").about("Run the deterministic simulation").args([
        number("seed").value_name("N").help("One run, with the seed that a failed run printed"),
        number("seeds").value_name("COUNT").help("How many seeds to run"),
    ])
}

fn bench_command() -> Command {
    Command::new("bench").about("Run benchmarks, each beside its baseline").args([
        Arg::new("name")
            .value_name("NAME")
            .help("The benchmark, such as `kernel`; all when left out"),
        Arg::new("quick")
            .long("quick")
            .action(ArgAction::SetTrue)
            .help("Small sizes: shows that it runs, measures nothing"),
        Arg::new("json")
            .long("json")
            .value_name("PATH")
            .help("Also write the figures to this file"),
    ])
}

fn check_store_command() -> Command {
    let number = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(u64));
    Command::new("check-store")
        .about("Race on the event store, and look for answers that no exact store gives")
        .args([
            number("rounds").value_name("N").help("Rounds of each scenario; 2000 when left out"),
            number("seed").value_name("S").help("Races with the numbers of this seed"),
            Arg::new("engine")
                .long("engine")
                .value_name("ENGINE")
                .value_parser(["memory", "sqlite", "postgres"])
                .help("Which engine; all when left out"),
            Arg::new("scenario")
                .long("scenario")
                .value_name("NAME")
                .help("Which scenario, such as `one-winner`; all when left out"),
        ])
}

fn brokers_command() -> Command {
    Command::new("brokers")
        .about("Start private brokers on loopback, print their URLs, stop them at Ctrl-C")
        .args([
            Arg::new("names")
                .value_name("NAME")
                .num_args(0..)
                .value_parser(Kind::ALL.map(Kind::name))
                .help("Which ones; all when left out"),
            Arg::new("until-eof")
                .long("until-eof")
                .action(ArgAction::SetTrue)
                .conflicts_with("check")
                .help("Stop also when standard input ends, for scripts"),
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .help("Stop as soon as all have answered"),
        ])
}

fn brokers_options(given: &ArgMatches) -> brokers::Options {
    let names = given.get_many::<String>("names").unwrap_or_default();
    let mut kinds: Vec<Kind> = names.filter_map(|name| Kind::named(name)).collect();
    if kinds.is_empty() {
        kinds = Kind::ALL.to_vec();
    }
    let end = match (given.get_flag("check"), given.get_flag("until-eof")) {
        (true, _) => brokers::End::AtOnce,
        (false, true) => brokers::End::Eof,
        (false, false) => brokers::End::Interrupt,
    };
    brokers::Options { kinds, end }
}

fn order(matches: &ArgMatches) -> Order {
    let text = |given: &ArgMatches, name| given.get_one::<String>(name).cloned();
    match matches.subcommand() {
        Some(("test", given)) => Order::Test(test::Options {
            no_install: given.get_flag("no-install"),
            package: text(given, "package"),
            arguments: given.get_many("arguments").unwrap_or_default().cloned().collect(),
        }),
        Some(("ci", _)) => Order::Ci,
        Some(("sim", given)) => Order::Sim(SimOptions {
            seed: given.get_one("seed").copied(),
            seeds: given.get_one("seeds").copied(),
        }),
        Some(("bench", given)) => Order::Bench(BenchOptions {
            name: text(given, "name"),
            quick: given.get_flag("quick"),
            json: text(given, "json"),
        }),
        Some(("check-store", given)) => Order::CheckStore(CheckStoreOptions {
            rounds: given.get_one("rounds").copied(),
            seed: given.get_one("seed").copied(),
            engine: text(given, "engine"),
            scenario: text(given, "scenario"),
        }),
        Some(("brokers", given)) => Order::Brokers(brokers_options(given)),
        Some(("docs", _)) => Order::Docs,
        _ => Order::Tidy,
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, command, order};

    fn parsed(line: &str) -> Order {
        let words = std::iter::once("cargo xtask").chain(line.split(' '));
        order(&command().try_get_matches_from(words).unwrap_or_else(|e| panic!("{line}: {e}")))
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_documented_form_is_understood() {
        let cases = [
            ("test", "Test(Options { no_install: false, package: None, arguments: [] })"),
            (
                "test --no-install -p a -- fair --exact",
                r#"Test(Options { no_install: true, package: Some("a"), arguments: ["fair", "--exact"] })"#,
            ),
            ("ci", "Ci"),
            ("sim --seed 7", "Sim(SimOptions { seed: Some(7), seeds: None })"),
            ("sim --seeds 100", "Sim(SimOptions { seed: None, seeds: Some(100) })"),
            ("bench", "Bench(BenchOptions { name: None, quick: false, json: None })"),
            (
                "bench kernel --quick --json f.json",
                r#"Bench(BenchOptions { name: Some("kernel"), quick: true, json: Some("f.json") })"#,
            ),
            (
                "check-store --rounds 9 --engine memory",
                "CheckStore(CheckStoreOptions { rounds: Some(9), seed: None, \
                 engine: Some(\"memory\"), scenario: None })",
            ),
            ("tidy", "Tidy"),
            ("brokers nats", "Brokers(Options { kinds: [Nats], end: Interrupt })"),
            (
                "brokers sqs rabbitmq --until-eof",
                "Brokers(Options { kinds: [Sqs, RabbitMq], end: Eof })",
            ),
            (
                "brokers --check",
                "Brokers(Options { kinds: [RabbitMq, ActiveMq, Postgres, Sqs, Nats], end: AtOnce })",
            ),
            ("docs", "Docs"),
        ];
        for (line, understood) in cases {
            assert_eq!(format!("{:?}", parsed(line)), understood);
        }
    }
}
