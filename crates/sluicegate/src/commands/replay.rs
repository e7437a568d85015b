//! `sluicegate replay`: parked messages go back to their queues.

use bytes::Bytes;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use http::Method;
use serde_json::{Value, json};

use super::views;
use crate::client::{self, Client};
use crate::exit::Failure;
use crate::screen::{self, time};

const EXAMPLES: &str = "\
Examples:
  sluicegate replay 17 18
  sluicegate replay --pool ORDERS
  sluicegate replay --all

The ids are those of `sluicegate parked`.";

pub(super) fn command() -> Command {
    let command = Command::new("replay")
        .about("Give parked messages back to their queues")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("id")
                .value_name("ID")
                .action(ArgAction::Append)
                .num_args(1..)
                .help("The ids of parked messages"),
        )
        .arg(Arg::new("pool").long("pool").value_name("CODE").help("All of this pool"))
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("All there are"))
        .group(ArgGroup::new("which").args(["id", "pool", "all"]).required(true))
        .arg(views::json_argument());
    client::arguments(command)
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let which = if let Some(ids) = given.get_many::<String>("id") {
        json!({ "ids": ids.collect::<Vec<_>>() })
    } else if let Some(pool) = given.get_one::<String>("pool") {
        json!({ "pool": pool })
    } else {
        json!({ "all": true })
    };
    let body = Bytes::from(which.to_string());
    let answer = client.order(Method::POST, "/api/v1/parked/replay", Some(body)).await?;
    if given.get_flag("json") {
        return Ok(screen::line(answer)?);
    }
    screen::line(format_args!("replayed {}", number(&answer, "replayed")))?;
    if answer["left"].as_u64().is_some_and(|left| left > 0) {
        screen::line(format_args!(
            "left {}: not messages, or of other queues than the embedded ones",
            number(&answer, "left")
        ))?;
    }
    Ok(())
}

fn number(answer: &Value, name: &str) -> String {
    answer[name].as_u64().map_or_else(|| "some".to_owned(), time::count)
}
