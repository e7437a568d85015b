//! The command: `cargo sluicegate-lint`, or `cargo-sluicegate-lint` by itself.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, Command, value_parser};
use sluicegate_lint::report::{self, Format};
use sluicegate_lint::{Date, Options, run};

const FINDINGS: u8 = 1;
const CANNOT_CHECK: u8 = 2;

const ABOUT: &str = "Checks Rust source for naked spawns, leaky permits, nested pools, dropped \
                     contexts and unbounded queues.";
const MORE: &str = "\
Rules:
  naked-spawn      tasks and threads are started by a task group only
  leaky-permit     a permit is held by a named value and comes back when it drops
  nested-pool      work in a pool never submits to that pool again
  context-dropped  a task uses the context it was given, and no fresh one
  unbounded-queue  a channel or queue between tasks has a bound

Reads source only: nothing is built. Test code is not checked. Exceptions live in
sluicegate-lint.toml at the workspace's root, each with path, rule, reason, owner and an
expiry at most a year ahead.

Exit status: 0 clean, 1 findings, 2 could not check.";

/// Built by hand: the derive would emit `#[allow]`s, which this workspace forbids.
fn command() -> Command {
    let paths = Arg::new("PATHS")
        .help("Files and folders to check [default: the current folder]")
        .value_parser(value_parser!(PathBuf))
        .num_args(0..);
    let format = Arg::new("format")
        .long("format")
        .help("How to print what was found")
        .value_parser(["human", "json", "sarif", "github"])
        .default_value("human");
    let exemptions = Arg::new("exemptions")
        .long("exemptions")
        .value_name("FILE")
        .help("The file of exemptions [default: sluicegate-lint.toml at the workspace's root]")
        .value_parser(value_parser!(PathBuf));
    Command::new("cargo-sluicegate-lint")
        .bin_name("cargo sluicegate-lint")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(MORE)
        .args([paths, format, exemptions])
}

fn main() -> ExitCode {
    let arguments = command().get_matches_from(own_arguments(std::env::args_os()));
    let folder = match std::env::current_dir() {
        Ok(folder) => folder,
        Err(error) => return cannot(&format!("there is no current folder: {error}")),
    };
    let options = Options {
        paths: arguments.get_many("PATHS").into_iter().flatten().cloned().collect(),
        exemptions: arguments.get_one("exemptions").cloned(),
        today: Date::today(),
        folder,
    };
    let report = match run(&options) {
        Ok(report) => report,
        Err(error) => return cannot(&error.to_string()),
    };
    let format = arguments.get_one::<String>("format").map_or("human", String::as_str);
    let text = report::render(&report, format_of(format));
    if let Err(error) = io::stdout().write_all(text.as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return cannot(&format!("cannot write the report: {error}"));
    }
    ExitCode::from(if report.findings.is_empty() { 0 } else { FINDINGS })
}

/// Without the `sluicegate-lint` that cargo puts first.
fn own_arguments(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_some_and(|first| first == "sluicegate-lint") {
        arguments.remove(1);
    }
    arguments
}

fn format_of(name: &str) -> Format {
    match name {
        "json" => Format::Json,
        "sarif" => Format::Sarif,
        "github" => Format::Github,
        _ => Format::Human {
            colour: io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        },
    }
}

fn cannot(reason: &str) -> ExitCode {
    let _told = writeln!(io::stderr(), "sluicegate-lint: {reason}");
    ExitCode::from(CANNOT_CHECK)
}
