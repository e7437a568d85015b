//! `--config`: which file, and what is in it.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, value_parser};
use sluicegate::server::settings::Settings;

use crate::exit::Failure;

/// What is read when nothing is named.
const USUAL: &str = "sluicegate.toml";

/// The argument.
pub(super) fn argument() -> Arg {
    Arg::new("config")
        .long("config")
        .short('c')
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("The configuration file")
}

/// The file that was named, or the usual one if it is there.
pub(super) fn file(given: &ArgMatches) -> Option<PathBuf> {
    let named = given.get_one::<PathBuf>("config").cloned();
    named.or_else(|| Path::new(USUAL).exists().then(|| PathBuf::from(USUAL)))
}

/// What it says; without a file, what holds without one.
pub(super) fn settings(file: Option<&Path>) -> Result<Settings, Failure> {
    match file {
        Some(file) => Settings::load(file).map_err(|problems| {
            let count = problems.list().len();
            let noun = if count == 1 { "problem" } else { "problems" };
            Failure::bad_input(format!("{count} {noun} in the configuration\n{problems}"))
        }),
        None => Ok(Settings::default()),
    }
}
