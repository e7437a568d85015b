//! `sluicegate check`: everything that is wrong with a configuration, before it is used.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::configuration;
use crate::exit::Failure;

pub(super) fn command() -> Command {
    Command::new("check").about("Validate a configuration file").arg(configuration::argument()).arg(
        Arg::new("offline")
            .long("offline")
            .action(ArgAction::SetTrue)
            .help("Ask nobody: do not fetch synced configuration"),
    )
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let file = configuration::file(given);
    configuration::settings(file.as_deref()).map(drop)
}
