//! `sluicegate why`: what a message waits for, in a sentence.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use jiff::Timestamp;
use serde_json::Value;

use super::views;
use crate::client::{self, Client, escaped};
use crate::exit::Failure;
use crate::screen::{self, plain, time};

const EXAMPLES: &str = "\
Examples:
  sluicegate why order-4711
  sluicegate why order-4711 --json | jq .why.reason";

pub(super) fn command() -> Command {
    let command = Command::new("why")
        .about("What a message waits for, and since when")
        .after_help(EXAMPLES)
        .arg(Arg::new("id").value_name("ID").required(true).help("The message's id"))
        .arg(views::json_argument());
    client::arguments(command)
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let id = given.get_one::<String>("id").map(String::as_str).unwrap_or_default();
    let path = format!("/api/v1/messages/{}", escaped(id));
    if given.get_flag("json") {
        let body = client.get(&path).await?;
        return Ok(screen::line(String::from_utf8_lossy(&body).trim_end())?);
    }
    let message = client.json(&path).await?;
    Ok(screen::line(sentence(&message, Timestamp::now()))?)
}

/// Says it: `m42 waits in pool ORDERS: group head m1 retries in 12 s (since 3 s, attempt 2)`.
fn sentence(message: &Value, now: Timestamp) -> String {
    let text = |name: &str| message[name].as_str().filter(|text| !text.is_empty());
    let why = &message["why"];
    let detail = why["detail"].as_str().unwrap_or_default();
    let rest = why["until"].as_str().and_then(|until| time::until(until, now));
    let place = match (text("pool"), text("queue")) {
        (Some(pool), _) => format!(" in pool {pool}"),
        (None, Some(queue)) => format!(" in queue {queue}"),
        (None, None) => String::new(),
    };
    let verb = match text("state").unwrap_or_default() {
        "running" => "runs",
        "delayed" => "is delayed",
        "parked" => "is parked",
        "done" => "is delivered",
        _ => "waits",
    };
    let mut words =
        format!("{}{verb}{place}", text("id").map_or(String::new(), |id| format!("{id} ")));
    match (detail.is_empty(), rest) {
        (true, None) => {}
        (true, Some(rest)) => words.push_str(&format!(" for {}", time::span(rest))),
        (false, None) => words.push_str(&format!(": {detail}")),
        (false, Some(rest)) => words.push_str(&format!(": {detail}{}", clause(detail, rest))),
    }
    words.push_str(&since(message, now));
    plain(&words)
}

/// When what holds it up is over.
fn clause(detail: &str, rest: Duration) -> String {
    let rest = time::span(rest);
    if detail.ends_with("retries") {
        format!(" in {rest}")
    } else {
        format!("; at the earliest in {rest}")
    }
}

/// Since when, and how often it was tried.
fn since(message: &Value, now: Timestamp) -> String {
    let span = match message["runningMs"].as_u64() {
        Some(millis) => Some(Duration::from_millis(millis)),
        None => message["since"].as_str().and_then(|since| time::since(since, now)),
    };
    let attempt = match message["attempt"].as_u64() {
        Some(0) => Some("not tried yet".to_owned()),
        Some(attempt) => Some(format!("attempt {attempt}")),
        None => None,
    };
    let parts: Vec<String> =
        span.map(|span| format!("since {}", time::span(span))).into_iter().chain(attempt).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::sentence;

    #[test]
    fn every_state_is_a_sentence() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let (then, soon) = ("2026-01-02T03:04:02Z", "2026-01-02T03:04:17Z");
        let cases = [
            (
                json!({"id": "m42", "pool": "ORDERS", "state": "waiting", "since": then, "attempt": 2,
                    "why": {"reason": "group_retrying", "detail": "group head m1 retries", "until": soon}}),
                "m42 waits in pool ORDERS: group head m1 retries in 12 s (since 3.0 s, attempt 2)",
            ),
            (
                json!({"id": "m1", "pool": "ORDERS", "state": "delayed", "since": then, "attempt": 1,
                    "why": {"reason": "delayed", "detail": "an attempt failed", "until": soon}}),
                "m1 is delayed in pool ORDERS: an attempt failed; at the earliest in 12 s \
                 (since 3.0 s, attempt 1)",
            ),
            (
                json!({"id": "m1", "pool": "P", "state": "running", "since": then, "runningMs": 250,
                    "attempt": 1, "why": null}),
                "m1 runs in pool P (since 250 ms, attempt 1)",
            ),
            (
                json!({"id": "m1", "pool": null, "queue": "q", "state": "waiting", "attempt": 0,
                    "why": {"reason": "ready", "detail": "it is next", "until": null}}),
                "m1 waits in queue q: it is next (not tried yet)",
            ),
            (json!({"id": "m\u{1b}[2J", "state": "parked"}), "m\u{fffd}[2J is parked"),
        ];
        for (message, expected) in cases {
            assert_eq!(sentence(&message, now), expected);
        }
    }
}
