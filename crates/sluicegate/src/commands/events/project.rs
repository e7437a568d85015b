//! `sluicegate events project`.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command};
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{all, filters, items, many, position};
use crate::client::{self, Client, Problem};
use crate::commands::views;
use crate::exit::Failure;
use crate::screen::{self, Align, Cell, Table};

const EXAMPLES: &str = "\
Examples:
  sluicegate events project --fold count --type OrderPlaced
  sluicegate events project --fold merge --fold last --tag order:7 --json

count: how many events there are; exists: whether there is one; last: the data of the last one; merge: their data as one
object. With --json the condition to append under comes with the states.";

/// What the server answers. A state is any JSON, also such as no value of ours could hold.
#[derive(Deserialize)]
struct Projected<'a> {
    #[serde(borrow)]
    states: BTreeMap<String, &'a RawValue>,
    condition: Condition,
}

#[derive(Deserialize)]
struct Condition {
    after: u64,
}

pub(super) fn command() -> Command {
    let fold = many("fold", "FOLD", "What to fold them into; again for others")
        .required(true)
        .value_parser(["count", "exists", "last", "merge"]);
    let command = Command::new("project")
        .about("Fold events into states")
        .after_help(EXAMPLES)
        .arg(fold)
        .arg(views::json_argument());
    client::arguments(filters(command))
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let mut folds = all(given, "fold");
    folds.sort_unstable();
    folds.dedup();
    let items = items(all(given, "type"), all(given, "tag"));
    let projector = |fold: &String| json!({ "id": fold, "items": items, "fold": fold });
    let projectors: Vec<Value> = folds.iter().map(projector).collect();
    let body = json!({ "projectors": projectors, "after": position(given) });
    let path = "/api/v1/events/project";
    let answer = client.ask(Method::POST, path, Some(body.to_string().into())).await?;
    if !answer.status.is_success() {
        return Err(Problem::of(&answer).failure());
    }
    let text = std::str::from_utf8(&answer.body).map_err(|_| client.stranger())?;
    let projected: Projected<'_> = serde_json::from_str(text).map_err(|_| client.stranger())?;
    if given.get_flag("json") {
        return Ok(screen::line(text)?);
    }
    let mut table = Table::new([("fold", Align::Left), ("state", Align::Left)]);
    for fold in &folds {
        let state = projected.states.get(fold).ok_or_else(|| client.stranger())?;
        table.row([Cell::new(fold), Cell::new(state)]);
    }
    screen::line(&table)?;
    let after = projected.condition.after;
    Ok(screen::line(format_args!("to append if nothing came meanwhile: --after {after}"))?)
}
