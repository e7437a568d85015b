//! `sluicegate events query`.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command};
use http::Method;
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

/// How many events are asked for together.
const PART: u64 = 500;
/// How many are shown unless it is said.
const USUAL: u64 = 100;

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
        let body = json!({ "items": items, "after": after, "limit": left.min(PART) });
        let body = Some(body.to_string().into());
        let answer = client.ask(Method::POST, "/api/v1/events/query", body).await?;
        if !answer.status.is_success() {
            return Err(Problem::of(&answer).failure());
        }
        let mut part: BTreeMap<&str, &RawValue> =
            serde_json::from_slice(&answer.body).map_err(|_| client.stranger())?;
        let events = part.remove("items").ok_or_else(|| client.stranger())?;
        let events: Vec<&RawValue> =
            serde_json::from_str(events.get()).map_err(|_| client.stranger())?;
        for event in &events {
            rows::print(event, is_json)?;
        }
        left = left.saturating_sub(events.len() as u64);
        match part.remove("next").and_then(|next| next.get().parse().ok()) {
            Some(next) if left > 0 => after = next,
            _ => return Ok(()),
        }
    }
}
