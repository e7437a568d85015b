//! `sluicegate pauses`: which hosts are left alone, and that they need not be any more.

use clap::{Arg, ArgMatches, Command};
use http::Method;

use super::views;
use crate::client::{Client, Problem, escaped};
use crate::exit::Failure;
use crate::screen;

/// What can be said beside the view's own arguments.
pub(super) fn arguments(command: Command) -> Command {
    let lift = Arg::new("lift").long("lift").value_name("HOST");
    let pool = Arg::new("pool").long("pool").value_name("CODE").requires("lift");
    command.arg(lift.help("Let this host be called again")).arg(pool.help("By this pool only"))
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let Some(host) = given.get_one::<String>("lift") else {
        return views::PAUSES.run(given).await;
    };
    let pool = given.get_one::<String>("pool").map(|pool| format!("?pool={}", escaped(pool)));
    let path = format!("/api/v1/pauses/{}{}", escaped(host), pool.unwrap_or_default());
    let fetched = Client::of(given)?.ask(Method::DELETE, &path, None).await?;
    if !fetched.status.is_success() {
        return Err(Problem::of(&fetched).failure());
    }
    Ok(screen::line(format_args!("{host} is called again"))?)
}
