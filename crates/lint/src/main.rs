//! The command: `cargo sluicegate-lint`, or `cargo-sluicegate-lint` by itself.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use sluicegate_lint::report::{self, Format};
use sluicegate_lint::{Date, Options, run};

const FINDINGS: u8 = 1;
const CANNOT_CHECK: u8 = 2;

/// Checks Rust source for naked spawns, leaky permits, nested pools and dropped contexts.
///
/// Reads source only: nothing is built. Test code is not checked. Exceptions live in
/// sluicegate-lint.toml at the workspace's root, each with path, rule, reason, owner and expiry.
///
/// Exit status: 0 clean, 1 findings, 2 could not check.
#[derive(Parser)]
#[command(
    name = "cargo-sluicegate-lint",
    bin_name = "cargo sluicegate-lint",
    version
)]
struct Arguments {
    /// Files and folders to check [default: the current folder]
    paths: Vec<PathBuf>,

    /// How to print what was found
    #[arg(long, value_enum, default_value = "human")]
    format: Print,

    /// The file of exemptions [default: sluicegate-lint.toml at the workspace's root]
    #[arg(long, value_name = "FILE")]
    exemptions: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Print {
    /// Source lines with carets
    Human,
    /// One JSON object
    Json,
    /// SARIF 2.1.0
    Sarif,
    /// GitHub annotations
    Github,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(own_arguments(std::env::args_os()));
    let folder = match std::env::current_dir() {
        Ok(folder) => folder,
        Err(error) => return cannot(&format!("there is no current folder: {error}")),
    };
    let options = Options {
        paths: arguments.paths,
        exemptions: arguments.exemptions,
        today: Date::today(),
        folder,
    };
    let report = match run(&options) {
        Ok(report) => report,
        Err(error) => return cannot(&error.to_string()),
    };
    let text = report::render(&report, format_of(arguments.format));
    if let Err(error) = io::stdout().write_all(text.as_bytes())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return cannot(&format!("cannot write the report: {error}"));
    }
    ExitCode::from(if report.findings.is_empty() {
        0
    } else {
        FINDINGS
    })
}

/// Without the `sluicegate-lint` that cargo puts first.
fn own_arguments(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments
        .get(1)
        .is_some_and(|first| first == "sluicegate-lint")
    {
        arguments.remove(1);
    }
    arguments
}

fn format_of(print: Print) -> Format {
    match print {
        Print::Human => Format::Human {
            colour: io::stdout().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        },
        Print::Json => Format::Json,
        Print::Sarif => Format::Sarif,
        Print::Github => Format::Github,
    }
}

fn cannot(reason: &str) -> ExitCode {
    let _told = writeln!(io::stderr(), "sluicegate-lint: {reason}");
    ExitCode::from(CANNOT_CHECK)
}
