//! `sluicegate events query`.

use clap::{ArgMatches, Command};
use http::Method;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{all, filters, items, limit, position, rows};
use crate::client::{self, Client, Problem};
use crate::commands::views;
use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  sluicegate events query --tag order:7
  sluicegate events query --type OrderPlaced --type OrderPaid --after 120 --limit 1000 --json

With --json each event is a line of JSON, as it is in the server's answer.";

const PATH: &str = "/api/v1/events/query";
/// How many events are asked for together.
const PART: u64 = 500;
/// How many are shown unless it is said.
const USUAL: u64 = 100;

/// What the server answers.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
    next: Option<u64>,
}

pub(super) fn command() -> Command {
    let command = Command::new("query")
        .about("Events that are there, in order")
        .after_help(EXAMPLES)
        .arg(limit("How many at most; 100 unless told"))
        .arg(views::json_argument().help("Print JSON Lines"));
    client::arguments(filters(command))
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let items = items(all(given, "type"), all(given, "tag"));
    let is_json = given.get_flag("json");
    let mut left = given.get_one::<u64>("limit").copied().unwrap_or(USUAL);
    let mut after = position(given);
    loop {
        // Nothing is left to show: only whether there are more is asked for.
        let body = json!({ "items": items, "after": after, "limit": left.clamp(1, PART) });
        let answer = client.ask(Method::POST, PATH, Some(body.to_string().into())).await?;
        if !answer.status.is_success() {
            return Err(Problem::of(&answer).failure());
        }
        let part: Part<'_> = serde_json::from_slice(&answer.body).map_err(|_| client.stranger())?;
        if left == 0 {
            if !part.items.is_empty() {
                eprintln!("There are more: go on with --after {after}, or give a higher --limit.");
            }
            return Ok(());
        }
        for event in &part.items {
            if !rows::print(event, is_json)? {
                return Err(client.stranger());
            }
        }
        left = left.saturating_sub(part.items.len() as u64);
        let Some(next) = part.next else { return Ok(()) };
        after = next;
    }
}
