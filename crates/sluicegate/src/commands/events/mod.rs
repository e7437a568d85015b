//! `sluicegate events`: the event store of a server.

mod append;
mod project;
mod query;
mod rows;
mod tail;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  sluicegate events append --type OrderPlaced --tag order:7 --data '{\"total\":120}'
  sluicegate events query --tag order:7
  sluicegate events tail --type OrderPlaced --after 120
  sluicegate events project --fold count --type OrderPlaced";

pub(super) fn command() -> Command {
    Command::new("events")
        .about("The event store: append, query, follow, project")
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(append::command())
        .subcommand(query::command())
        .subcommand(tail::command())
        .subcommand(project::command())
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    match given.subcommand() {
        Some(("append", given)) => append::run(given).await,
        Some(("query", given)) => query::run(given).await,
        Some(("tail", given)) => tail::run(given).await,
        Some(("project", given)) => project::run(given).await,
        _ => unreachable!("clap knows only these commands"),
    }
}

/// `--type`, `--tag` and `--after`: which events.
fn filters(command: Command) -> Command {
    command
        .arg(many("type", "TYPE", "Only events of this type; again for others"))
        .arg(many("tag", "KEY:VALUE", "Only events with this tag; again for those that have all"))
        .arg(after("Only events after this position"))
}

/// An option that may come again.
fn many(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).action(ArgAction::Append).help(help)
}

fn after(help: &'static str) -> Arg {
    let position = value_parser!(u64);
    Arg::new("after").long("after").value_name("POSITION").value_parser(position).help(help)
}

/// How many events at most.
fn limit(help: &'static str) -> Arg {
    let number = value_parser!(u64).range(1..);
    Arg::new("limit").long("limit").value_name("N").value_parser(number).help(help)
}

/// What was given for an option that may come again.
fn all(given: &ArgMatches, name: &str) -> Vec<String> {
    given.get_many::<String>(name).map_or(Vec::new(), |texts| texts.cloned().collect())
}

/// The items of a query: one, of any of the types and with all of the tags; or none, for every event.
fn items(types: Vec<String>, tags: Vec<String>) -> Value {
    if types.is_empty() && tags.is_empty() {
        return json!([]);
    }
    json!([{ "types": types, "tags": tags }])
}

/// After which position.
fn position(given: &ArgMatches) -> u64 {
    given.get_one::<u64>("after").copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_asks_for_every_event() {
        assert_eq!(items(vec![], vec![]), json!([]));
        let some = items(vec!["A".to_owned()], vec!["k:v".to_owned()]);
        assert_eq!(some, json!([{ "types": ["A"], "tags": ["k:v"] }]));
    }
}
