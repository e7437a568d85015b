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

The ids are those of `sluicegate parked`. Where nothing of what was asked for can be replayed, the exit code is 1.";

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
        screen::line(&answer)?;
        return judged(&answer).map_err(Failure::told);
    }
    screen::line(format_args!("replayed {}", number(&answer, "replayed")))?;
    judged(&answer)?;
    if left(&answer) > 0 {
        screen::line(format_args!(
            "left {}: not messages, or of other queues than the embedded ones",
            number(&answer, "left")
        ))?;
    }
    Ok(())
}

/// Nothing of what was asked for is a failure; nothing to do is none.
fn judged(answer: &Value) -> Result<(), Failure> {
    if left(answer) == 0 || answer["replayed"].as_u64() != Some(0) {
        return Ok(());
    }
    let why = answer["why"].as_str().map(|why| format!(": {}", screen::plain(why)));
    let count = number(answer, "left");
    Err(Failure::failed(format!("none of {count} was replayed{}", why.unwrap_or_default())))
}

fn left(answer: &Value) -> u64 {
    answer["left"].as_u64().unwrap_or_default()
}

fn number(answer: &Value, name: &str) -> String {
    answer[name].as_u64().map_or_else(|| "some".to_owned(), time::count)
}
