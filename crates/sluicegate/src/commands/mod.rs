//! The commands, one module each: what it is called with, and what it does.

mod ack;
mod ask;
mod check;
mod configuration;
pub(crate) mod demo;
mod discard;
mod events;
mod front;
mod parked;
mod pauses;
mod publish;
mod replay;
mod serve;
mod signals;
mod views;
mod why;
mod workers;

use clap::{ArgMatches, Command};

use crate::exit::Failure;

const ABOUT: &str = "Bounded, fair, ordered delivery of messages";
const EXAMPLES: &str = "\
Try it, without any set-up:
  sluicegate demo
  sluicegate demo --agents

Run it:
  sluicegate check --config sluicegate.toml
  sluicegate serve --config sluicegate.toml
  sluicegate publish orders.jsonl
  sluicegate status

Ask an agent, where it runs some:
  sluicegate ask --tenant telegram:42 'Which orders are late?'

Exit codes: 0 done, 1 failed, 2 bad input or configuration, 3 could not reach the server.";

/// All of them. Built by hand: clap's derive emits `#[allow]`s, which this workspace forbids.
pub(crate) fn command() -> Command {
    Command::new("sluicegate")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(EXAMPLES)
        .disable_help_subcommand(true)
        .subcommand(demo::command())
        .subcommand(serve::command())
        .subcommand(check::command())
        .subcommand(publish::command())
        .subcommand(ask::command())
        .subcommand(views::status::command())
        .subcommands(views::VIEWS.map(|view| view.command()))
        .mut_subcommand("pauses", pauses::arguments)
        .mut_subcommand("workers", workers::arguments)
        .mut_subcommand("parked", |command| {
            command.args_conflicts_with_subcommands(true).subcommands(parked::commands())
        })
        .subcommand(why::command())
        .subcommand(ack::command())
        .subcommand(replay::command())
        .subcommand(discard::command())
        .subcommand(events::command())
}

/// Runs the one that was asked for.
pub(crate) async fn run(name: &str, given: &ArgMatches) -> Result<(), Failure> {
    match name {
        "demo" => demo::run(given).await,
        "serve" => serve::run(given).await,
        "check" => check::run(given).await,
        "publish" => publish::run(given).await,
        "ask" => ask::run(given).await,
        "status" => views::status::run(given).await,
        "why" => why::run(given).await,
        "ack" => ack::run(given).await,
        "replay" => replay::run(given).await,
        "discard" => discard::run(given).await,
        "events" => events::run(given).await,
        "pauses" => pauses::run(given).await,
        "workers" => workers::run(given).await,
        name => match (given.subcommand(), views::VIEWS.iter().find(|view| view.name() == name)) {
            (Some((name, given)), _) => parked::run(name, given).await,
            (None, Some(view)) => view.run(given).await,
            (None, None) => unreachable!("clap knows only these commands"),
        },
    }
}
