//! `sluicegate events append`.

use std::collections::BTreeMap;

use clap::{Arg, ArgGroup, ArgMatches, Command};
use http::Method;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{after, all, items, many, position};
use crate::client::{self, Client};
use crate::commands::views;
use crate::exit::Failure;
use crate::screen;

const EXAMPLES: &str = "\
Examples:
  sluicegate events append --type OrderPlaced --tag order:7 --tag customer:3 --data '{\"total\":120}'
  sluicegate events append --file events.jsonl
  sluicegate events append --type SeatTaken --tag course:c1 --fail-if-type SeatTaken --fail-if-tag course:c1 --after 17

A file has events as JSON, a JSON array or JSON Lines, each {\"type\",\"tags\",\"data\"}; - is standard input. All of them are
appended, or none. With --fail-if-type or --fail-if-tag nothing is appended if such an event stands after the position of
--after, or at all without it: exit code 1.";

/// The largest file that is read: a server takes no more.
const MOST: u64 = 16 * 1024 * 1024;

pub(super) fn command() -> Command {
    let command = Command::new("append")
        .about("Append events, all or none")
        .after_help(EXAMPLES)
        .arg(Arg::new("type").long("type").value_name("TYPE").requires("tag").help("Its type"))
        .arg(many("tag", "KEY:VALUE", "A tag of it; at least one").requires("type"))
        .arg(
            Arg::new("data")
                .long("data")
                .value_name("JSON")
                .requires("type")
                .help("Its data; {} without it"),
        )
        .arg(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .help("A file with events; - for standard input"),
        )
        .group(ArgGroup::new("events").args(["type", "file"]).required(true))
        .arg(many(
            "fail-if-type",
            "TYPE",
            "Append nothing if there is an event of this type; again for others",
        ))
        .arg(many(
            "fail-if-tag",
            "KEY:VALUE",
            "Append nothing if there is an event with this tag; again for those that have all",
        ))
        .group(ArgGroup::new("condition").args(["fail-if-type", "fail-if-tag"]).multiple(true))
        .arg(after("Only events after this position count for the condition").requires("condition"))
        .arg(views::json_argument());
    client::arguments(command)
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let events = match given.get_one::<String>("file") {
        Some(file) => read(file).await?,
        None => vec![one(given)?],
    };
    let count = events.len();
    let mut body: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    body.insert("events", raw(&events)?);
    let condition = items(all(given, "fail-if-type"), all(given, "fail-if-tag"));
    if condition != json!([]) {
        let condition =
            json!({ "failIfEventsMatch": { "items": condition }, "after": position(given) });
        body.insert("condition", raw(&condition)?);
    }
    let body = serde_json::to_vec(&body).map_err(Failure::failed)?;
    let answer = client.order(Method::POST, "/api/v1/events", Some(body.into())).await?;
    if given.get_flag("json") {
        return Ok(screen::line(&answer)?);
    }
    let Some(position) = answer["position"].as_u64() else { return Err(client.stranger()) };
    let noun = if count == 1 { "event" } else { "events" };
    Ok(screen::line(format_args!("appended {count} {noun}, up to position {position}"))?)
}

fn raw(value: &impl serde::Serialize) -> Result<Box<RawValue>, Failure> {
    serde_json::value::to_raw_value(value).map_err(Failure::failed)
}

/// The event of the arguments.
fn one(given: &ArgMatches) -> Result<Box<RawValue>, Failure> {
    let data = given.get_one::<String>("data").map(String::as_str).unwrap_or("{}");
    let data: Box<RawValue> = serde_json::from_str(data)
        .map_err(|error| Failure::bad_input(format!("--data is no JSON: {error}")))?;
    let mut event: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    event.insert("type", raw(&given.get_one::<String>("type"))?);
    event.insert("tags", raw(&all(given, "tag"))?);
    event.insert("data", data);
    raw(&event)
}

async fn read(name: &str) -> Result<Vec<Box<RawValue>>, Failure> {
    let unreadable = |error| Failure::bad_input(format!("{name} cannot be read: {error}"));
    let text = match name {
        "-" => whole(tokio::io::stdin()).await,
        file => whole(tokio::fs::File::open(file).await.map_err(unreadable)?).await,
    };
    let text = text.map_err(unreadable)?;
    if text.len() as u64 > MOST {
        return Err(Failure::bad_input(format!("{name} has more than {MOST} bytes")));
    }
    let events = parsed(&text);
    let events =
        events.map_err(|error| Failure::bad_input(format!("{name} is no JSON: {error}")))?;
    if events.is_empty() {
        return Err(Failure::bad_input(format!("there is no event in {name}")));
    }
    Ok(events)
}

async fn whole(from: impl AsyncRead + Unpin) -> std::io::Result<String> {
    let mut text = String::new();
    from.take(MOST + 1).read_to_string(&mut text).await?;
    Ok(text)
}

/// An array of events, or one after the other.
fn parsed(text: &str) -> serde_json::Result<Vec<Box<RawValue>>> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text);
    }
    serde_json::Deserializer::from_str(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_events_in_any_of_three_forms_and_as_they_are() {
        let one = r#"{"type":"A","data":1.00}"#;
        let cases = [
            (one.to_owned(), 1),
            (format!("{one}\n{one}\n\n{one}"), 3),
            (format!(" [{one},\n{one}]"), 2),
            (String::new(), 0),
        ];
        for (text, count) in cases {
            let events = parsed(&text).unwrap();
            assert_eq!(events.len(), count, "{text}");
            assert!(events.iter().all(|event| event.get() == one), "{text}");
        }
        assert!(parsed("{\"type\"").is_err());
    }
}
