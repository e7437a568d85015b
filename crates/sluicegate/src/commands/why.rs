//! `sluicegate why`: what a message or a request waits for, in a sentence.

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
        .about("What a message or a request waits for, and since when")
        .after_help(EXAMPLES)
        .arg(Arg::new("id").value_name("ID").required(true).help("The message's or request's id"))
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
    let (message, now) = (client.json(&path).await?, Timestamp::now());
    if message["state"] == "done" && is_request(&message) {
        // A request that is over is kept for a while, with what came of it.
        let request = client.json(&format!("/api/v1/requests/{}", escaped(id))).await;
        if let Ok(request) = request {
            return Ok(screen::line(over(&request))?);
        }
    }
    screen::line(sentence(&message, now))?;
    match last_error(&message, now) {
        Some(words) => Ok(screen::line(words)?),
        None => Ok(()),
    }
}

/// Whether it is a request to agents, and no message of a queue.
fn is_request(message: &Value) -> bool {
    message["kind"] == "request"
}

/// Says what came of a request: `request 0199… failed: worker_crash: An internal error occurred.`
fn over(request: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let (id, state, error) =
        (text(&request["requestId"]), text(&request["state"]), &request["error"]);
    if !error.is_object() {
        return plain(&format!("request {id} {state}"));
    }
    plain(&format!("request {id} {state}: {}: {}", text(&error["code"]), text(&error["detail"])))
}

/// How much of a reply fits a screen.
const REPLY: usize = 300;

/// Says how its last attempt failed: `it failed 3 s ago: http://… answered 500; the reply: out of paper`.
fn last_error(message: &Value, now: Timestamp) -> Option<String> {
    let last = &message["lastError"];
    let error = last["error"].as_str()?;
    let ago = last["at"].as_str().and_then(|at| time::since(at, now)).map(time::span);
    let ago = ago.map(|ago| format!(" {ago} ago")).unwrap_or_default();
    let said = last["body"].as_str().map(|body| {
        let words = body.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut: String = words.chars().take(REPLY).collect();
        let more = if cut.len() < words.len() { "…" } else { "" };
        format!("; the reply: {cut}{more}")
    });
    let missing = |text: &String| !error.contains(text.as_str());
    let target = last["target"].as_str().map(str::to_owned).filter(missing);
    let target = target.map(|target| format!("{target}: ")).unwrap_or_default();
    let status = last["status"].as_u64().map(|status| status.to_string()).filter(missing);
    let status = status.map(|status| format!(" (HTTP {status})")).unwrap_or_default();
    Some(plain(&format!("it failed{ago}: {target}{error}{status}{}", said.unwrap_or_default())))
}

/// Says it: `m42 waits in pool ORDERS: group head m1 retries in 12 s (since 3 s, attempt 2)`.
fn sentence(message: &Value, now: Timestamp) -> String {
    let text = |name: &str| message[name].as_str().filter(|text| !text.is_empty());
    let place = match (text("pool"), text("queue")) {
        _ if is_request(message) => match text("state") {
            Some("waiting") => " for an agent".to_owned(),
            _ => String::new(),
        },
        (Some(pool), _) => format!(" in pool {pool}"),
        (None, Some(queue)) => format!(" in queue {queue}"),
        (None, None) => String::new(),
    };
    let verb = match text("state").unwrap_or_default() {
        "running" => "runs",
        "delayed" => "is delayed",
        "parked" => "is parked",
        "done" if is_request(message) => "is over",
        "done" => "is being settled",
        _ => "waits",
    };
    let id = text("id").unwrap_or("it");
    let reason = reason(message, now).map(|reason| format!(": {reason}")).unwrap_or_default();
    let hint = hint(message);
    let what = if is_request(message) { "request " } else { "" };
    plain(&format!("{what}{id} {verb}{place}{reason}{}{hint}", since(message, now)))
}

/// What the server says can be done about it.
fn hint(message: &Value) -> String {
    message["why"]["hint"].as_str().map(|hint| format!("; {hint}")).unwrap_or_default()
}

/// What holds it up, and for how long.
fn reason(message: &Value, now: Timestamp) -> Option<String> {
    let parked = &message["parked"];
    if let (Some(id), Some(reason)) = (parked["id"].as_str(), parked["reason"].as_str()) {
        let status = parked["status"].as_u64().map(|status| format!(" (HTTP {status})"));
        let place = parked["place"].as_u64().filter(|place| *place > 1);
        let place = place.map(|place| format!(", number {place} of its group's parked messages"));
        let code = parked["code"].as_str().unwrap_or("parked");
        let back = match (parked["hint"].as_str(), parked["follows"].as_bool()) {
            (Some(hint), _) => hint.to_owned(),
            (_, Some(true)) => {
                "it goes back to its queue by itself, after those before it".to_owned()
            }
            _ => format!("`sluicegate replay {id}` gives it back to its queue"),
        };
        return Some(format!(
            "{code}{}: {reason}{}; {back}",
            status.unwrap_or_default(),
            place.unwrap_or_default()
        ));
    }
    let why = &message["why"];
    let detail = why["detail"].as_str().filter(|detail| !detail.is_empty())?;
    let Some(until) = why["until"].as_str() else { return Some(detail.to_owned()) };
    let Some(rest) = time::until(until, now).map(time::span) else {
        return Some(detail.to_owned());
    };
    // Its time is told in words instead.
    let moment = |word: &str| detail.strip_suffix(until)?.trim_end().strip_suffix(word);
    Some(match (moment(" at"), moment(" until")) {
        (Some(detail), _) => format!("{detail} in {rest}"),
        (_, Some(detail)) => format!("{detail}, for another {rest}"),
        _ => format!("{detail}, for another {rest}"),
    })
}

/// Since when, and how often it was tried.
fn since(message: &Value, now: Timestamp) -> String {
    let span = match message["runningMs"].as_u64() {
        Some(millis) => Some(Duration::from_millis(millis)),
        None => message["since"].as_str().and_then(|since| time::since(since, now)),
    };
    let attempt = match message["attempt"].as_u64() {
        // What a host's pause or an open breaker ended is no attempt.
        Some(0) if message["lastError"].is_object() => Some("no attempt counted".to_owned()),
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
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{last_error, sentence};

    #[test]
    fn every_state_is_a_sentence() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let (then, soon) = ("2026-01-02T03:04:02Z", "2026-01-02T03:04:17Z");
        let cases = [
            (
                json!({"id": "m42", "pool": "ORDERS", "state": "waiting", "since": then, "attempt": 2,
                    "why": {"reason": "group_retrying", "detail": format!("group head m1 retries at {soon}"), "until": soon}}),
                "m42 waits in pool ORDERS: group head m1 retries in 12 s (since 3.0 s, attempt 2)",
            ),
            (
                json!({"id": "m1", "pool": "ORDERS", "state": "delayed", "since": then, "attempt": 1,
                    "why": {"reason": "delayed", "detail": format!("an attempt failed until {soon}"), "until": soon}}),
                "m1 is delayed in pool ORDERS: an attempt failed, for another 12 s \
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
            (
                json!({"id": "m1", "pool": "P", "state": "parked", "since": then, "attempt": 3,
                    "why": null, "parked": {"id": "17", "code": "rejected", "reason": "no such thing",
                    "status": 404, "place": null}}),
                "m1 is parked in pool P: rejected (HTTP 404): no such thing; `sluicegate replay 17` gives \
                 it back to its queue (since 3.0 s, attempt 3)",
            ),
            (
                json!({"id": "m2", "pool": "P", "state": "parked", "since": then, "attempt": 0,
                    "why": null, "parked": {"id": "18", "code": "key_parked", "reason": "behind m1",
                    "status": null, "place": 2}}),
                "m2 is parked in pool P: key_parked: behind m1, number 2 of its group's parked messages; \
                 `sluicegate replay 18` gives it back to its queue (since 3.0 s, not tried yet)",
            ),
            (
                json!({"id": "r1", "kind": "request", "pool": null, "queue": "agents", "state": "waiting",
                    "since": then, "attempt": 0, "why": {"reason": "no_worker", "until": null,
                    "detail": "1 of 1 workers have requests", "hint": "`sluicegate workers` shows them"}}),
                "request r1 waits for an agent: 1 of 1 workers have requests (since 3.0 s, not tried yet); \
                 `sluicegate workers` shows them",
            ),
            (
                json!({"id": "r1", "kind": "request", "pool": null, "queue": "agents", "state": "running",
                    "since": then, "attempt": 1, "why": null}),
                "request r1 runs (since 3.0 s, attempt 1)",
            ),
            (json!({"id": "m\u{1b}[2J", "state": "parked"}), "m\u{fffd}[2J is parked"),
        ];
        for (message, expected) in cases {
            assert_eq!(sentence(&message, now), expected);
        }
    }

    #[test]
    fn what_can_be_done_is_said() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let cases = [
            (
                json!({"id": "m3", "pool": "P", "state": "parked", "attempt": 0,
                    "parked": {"id": "35", "code": "key_parked", "reason": "behind m1", "follows": true}}),
                "m3 is parked in pool P: key_parked: behind m1; it goes back to its queue by itself, \
                 after those before it (not tried yet)",
            ),
            (
                json!({"id": "m1", "pool": "P", "state": "waiting", "attempt": 5,
                    "why": {"reason": "group_blocked", "detail": "its attempts are used up",
                    "hint": "`sluicegate ack m1` gives it up as done, and its group goes on"}}),
                "m1 waits in pool P: its attempts are used up (attempt 5); `sluicegate ack m1` gives it \
                 up as done, and its group goes on",
            ),
            (
                json!({"id": "m2", "pool": "P", "state": "parked", "attempt": 0,
                    "parked": {"id": "18", "code": "key_parked", "reason": "behind m1", "place": 2,
                    "hint": "`sluicegate replay --pool P --group g` gives its group back, 17 (m1) first"}}),
                "m2 is parked in pool P: key_parked: behind m1, number 2 of its group's parked messages; \
                 `sluicegate replay --pool P --group g` gives its group back, 17 (m1) first (not tried yet)",
            ),
            (
                json!({"id": "m1", "pool": "P", "state": "waiting", "attempt": 0,
                    "why": {"reason": "rate_limited", "detail": "a.test asked pool P for a pause",
                    "hint": "`sluicegate pauses --lift a.test --pool P` ends it"}}),
                "m1 waits in pool P: a.test asked pool P for a pause (not tried yet); \
                 `sluicegate pauses --lift a.test --pool P` ends it",
            ),
            (
                json!({"id": "m1", "pool": "P", "state": "done", "attempt": 1,
                    "why": {"reason": "settling", "detail": "its settlement is not durable yet: locked"}}),
                "m1 is being settled in pool P: its settlement is not durable yet: locked (attempt 1)",
            ),
        ];
        for (message, expected) in cases {
            assert_eq!(sentence(&message, now), expected);
        }
    }

    #[test]
    fn the_last_error_is_a_line_of_its_own() {
        let now: Timestamp = "2026-01-02T03:04:08Z".parse().unwrap();
        let at = "2026-01-02T03:04:05Z";
        let last = |body: Value| {
            let error = "http://a.test/in answered 500";
            let target = "http://a.test/in";
            let last =
                json!({"at": at, "status": 500, "error": error, "target": target, "body": body});
            last_error(&json!({ "lastError": last }), now)
        };
        let cases = [
            (json!(null), "it failed 3.0 s ago: http://a.test/in answered 500".to_owned()),
            (
                json!("{\n  \"error\": \"no \u{1b}[2Jpaper\"\n}\n"),
                "it failed 3.0 s ago: http://a.test/in answered 500; the reply: \
                 { \"error\": \"no \u{fffd}[2Jpaper\" }"
                    .to_owned(),
            ),
            (
                json!("x".repeat(1_024)),
                format!(
                    "it failed 3.0 s ago: http://a.test/in answered 500; the reply: {}…",
                    "x".repeat(300)
                ),
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(last(body), Some(expected));
        }
        let bare =
            json!({"at": at, "status": 429, "error": "a pause", "target": "http://a.test/in"});
        let words = "it failed 3.0 s ago: http://a.test/in: a pause (HTTP 429)";
        assert_eq!(last_error(&json!({ "lastError": bare }), now).as_deref(), Some(words));
        assert_eq!(last_error(&json!({ "lastError": null }), now), None);
        assert_eq!(last_error(&json!({}), now), None);
    }
}
