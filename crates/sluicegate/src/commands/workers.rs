//! `sluicegate workers`: what runs agents, and that one of them is to end.

use clap::{Arg, ArgMatches, Command};
use http::Method;

use super::views;
use crate::client::{Client, Problem, escaped};
use crate::exit::Failure;
use crate::screen::{self, plain};

/// What can be said beside the view's own arguments.
pub(super) fn arguments(command: Command) -> Command {
    let kill = Arg::new("kill").long("kill").value_name("ID");
    command.arg(kill.help("Kill this worker, with all its processes and the request it runs"))
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let Some(worker) = given.get_one::<String>("kill") else {
        return views::WORKERS.run(given).await;
    };
    let path = format!("/api/v1/workers/{}", escaped(worker));
    let fetched = Client::of(given)?.ask(Method::DELETE, &path, None).await?;
    if !fetched.status.is_success() {
        return Err(Problem::of(&fetched).failure());
    }
    Ok(screen::line(format_args!("{} is gone", plain(worker)))?)
}
