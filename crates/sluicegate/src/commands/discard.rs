//! `sluicegate discard`: parked messages are thrown away.

use clap::{Arg, ArgAction, ArgMatches, Command};
use http::{Method, StatusCode};

use crate::client::{self, Client, Problem, escaped};
use crate::exit::Failure;
use crate::screen;

const EXAMPLES: &str = "\
Examples:
  sluicegate discard 17
  sluicegate parked --pool TEST --json | jq -r '.items[].id' | xargs sluicegate discard

The ids are those of `sluicegate parked`. What is discarded is gone for good.";

pub(super) fn command() -> Command {
    let command =
        Command::new("discard").about("Throw parked messages away").after_help(EXAMPLES).arg(
            Arg::new("id")
                .value_name("ID")
                .action(ArgAction::Append)
                .num_args(1..)
                .required(true)
                .help("The ids of parked messages"),
        );
    client::arguments(command)
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let (mut discarded, mut missing) = (0_u64, 0_u64);
    for id in given.get_many::<String>("id").into_iter().flatten() {
        let path = format!("/api/v1/parked/{}", escaped(id));
        let fetched = client.ask(Method::DELETE, &path, None).await?;
        if fetched.status.is_success() {
            discarded += 1;
            continue;
        }
        let problem = Problem::of(&fetched);
        if problem.status != StatusCode::NOT_FOUND {
            screen::line(format_args!("discarded {discarded}"))?;
            return Err(problem.failure());
        }
        eprintln!("{id}: {}", problem.words());
        missing += 1;
    }
    screen::line(format_args!("discarded {discarded}"))?;
    match missing {
        0 => Ok(()),
        1 => Err(Failure::failed("one was not there")),
        _ => Err(Failure::failed(format!("{missing} were not there"))),
    }
}
