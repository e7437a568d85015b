//! `sluicegate ask`: one request to an agent, and its reply.
//!
//! The request is let in first and then followed, so that whoever gives up knows what to cancel.

use std::io::IsTerminal;
use std::time::Duration;

use bytes::Bytes;
use clap::{Arg, ArgMatches, Command, value_parser};
use http::Method;
use serde_json::{Map, Value, json};
use sluicegate::server::fetch::Fetched;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout};

use super::signals::Signals;
use super::views;
use crate::client::{self, Client, Problem, escaped};
use crate::exit::Failure;
use crate::screen::{self, plain};

const EXAMPLES: &str = "\
Examples:
  sluicegate ask --tenant telegram:42 'Which orders are late?'
  git diff | sluicegate ask --tenant ci:main --priority LOW --timeout 5m -
  sluicegate ask --tenant telegram:42 --session 6f9c… 'And why?'

The request's id is printed on standard error; without --session a new one is made, and its id is printed, too: give it
to go on. Ctrl-C cancels the request at the server. A connection that is lost is tried again for a minute, since the
request goes on.

Exit codes: 0 replied, 1 failed, 2 bad input, 3 could not reach the server, 10 the tenant's queue is full, 11 the queue
is full, 12 rate limited, 13 waited too long, 14 ran too long, 15 the agent crashed, 16 the server is shutting down.";

/// The longest message that a server takes.
const MOST: u64 = 1024 * 1024;
/// A server that is silent for longer is asked whether it is there.
const LOOK: Duration = Duration::from_secs(60);
/// How long to wait before it is asked again, where it cannot be followed.
const PAUSE: Duration = Duration::from_millis(250);
/// For how long a server that does not answer is asked again: the request may run on there.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest pause between two questions to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the server has to say which request it is that is cancelled.
const LAST_ANSWER: Duration = Duration::from_secs(5);

pub(super) fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let command = Command::new("ask")
        .about("Ask an agent, and print its reply")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("text")
                .value_name("TEXT")
                .default_value("-")
                .help("What to ask; - for standard input"),
        )
        .arg(
            option("tenant", "PLATFORM:USER", "Who asks, as in telegram:42")
                .short('t')
                .required(true),
        )
        .arg(option("chat", "ID", "The chat it is asked in; its sessions belong to all in it"))
        .arg(option("session", "ID", "The session to go on with; else a new one"))
        .arg(option("priority", "NAME", "SYSTEM, ADMIN, NORMAL or LOW"))
        .arg(
            option("timeout", "TIME", "How long it may take, waiting and running, as in 90s or 5m")
                .value_parser(duration),
        )
        .arg(
            Arg::new("idempotent")
                .long("idempotent")
                .action(clap::ArgAction::SetTrue)
                .value_parser(value_parser!(bool))
                .help("It may be tried once more if its agent crashes before it says anything"),
        )
        .arg(views::json_argument().help("Print the whole answer as JSON, also of what failed"));
    client::arguments(command)
}

/// `250ms`, `30s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    let found = number.filter(|millis| *millis > 0).map(Duration::from_millis);
    found.ok_or_else(|| "must be a duration such as 250ms, 30s, 5m or 1h".to_owned())
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let mut signals = Signals::new()?;
    let message = tokio::select! {
        message = message(given) => message?,
        name = signals.leave() => return Err(Failure::failed(format!("{name}: nothing was asked"))),
    };
    let is_json = given.get_flag("json");
    let asked = submit(&client, body(given, message), &mut signals).await?;
    if !asked.answer.status.is_success() {
        return Err(refused(&asked.answer, is_json));
    }
    let ticket: Value = serde_json::from_slice(&asked.answer.body).unwrap_or_default();
    let Some(id) = ticket["requestId"].as_str() else { return Err(client.stranger()) };
    if let (false, Some(session)) = (given.contains_id("session"), ticket["sessionId"].as_str()) {
        eprintln!("session {}", plain(session));
    }
    eprintln!("request {}", plain(id));
    let ended = match asked.given_up {
        Some(name) => cancel(&client, id, name).await,
        None => tokio::select! {
            ended = follow(&client, id) => ended,
            name = signals.leave() => cancel(&client, id, name).await,
        },
    };
    told(&ended?, is_json)
}

async fn message(given: &ArgMatches) -> Result<String, Failure> {
    let text = given.get_one::<String>("text").map(String::as_str).unwrap_or("-");
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut bytes = Vec::new();
    tokio::io::stdin().take(MOST + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MOST {
        return Err(Failure::bad_input(format!("the message is longer than {MOST} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Failure::bad_input("the message is no UTF-8 text"))
}

fn body(given: &ArgMatches, message: String) -> Bytes {
    let text = |name| given.get_one::<String>(name).cloned();
    let tenant = text("tenant").unwrap_or_default();
    let tenant = match (text("chat"), tenant.split_once(':')) {
        (Some(chat), Some((platform, user))) => {
            json!({"platform": platform, "userId": user, "chatId": chat})
        }
        // What is no tenant is named by the server.
        _ => tenant.into(),
    };
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        value.map(|value| body.insert(name.to_owned(), value));
    };
    put("tenant", Some(tenant));
    put("message", Some(message.into()));
    put("wait", Some(false.into()));
    put("sessionId", text("session").map(Into::into));
    put("priority", text("priority").map(Into::into));
    let millis = given.get_one::<Duration>("timeout").map(|timeout| timeout.as_millis() as u64);
    put("timeoutMs", millis.map(Into::into));
    put("idempotent", given.get_flag("idempotent").then_some(true.into()));
    Value::Object(body).to_string().into()
}

/// What came of asking; and by what signal it was given up meanwhile.
struct Asked {
    answer: Fetched,
    given_up: Option<&'static str>,
}

async fn submit(client: &Client, body: Bytes, signals: &mut Signals) -> Result<Asked, Failure> {
    let mut asking = std::pin::pin!(client.ask(Method::POST, "/api/v1/requests", Some(body)));
    let name = tokio::select! {
        answer = &mut asking => return Ok(Asked { answer: answer?, given_up: None }),
        name = signals.leave() => name,
    };
    match timeout(LAST_ANSWER, asking).await {
        Ok(answer) => Ok(Asked { answer: answer?, given_up: Some(name) }),
        // The server cancels what nobody has waited for until it was let in.
        Err(_) => Err(Failure::failed(format!("{name}: given up before the server answered"))),
    }
}

/// Waits until it is over, for as long as that takes, and as the server is not lost for too long.
async fn follow(client: &Client, id: &str) -> Result<Value, Failure> {
    let path = format!("/api/v1/requests/{}", escaped(id));
    let mut lost: Option<Instant> = None;
    let mut pause = PAUSE;
    loop {
        let stream = format!("{path}/stream");
        // Whatever goes wrong with it, the next question shows how the request stands.
        if let Ok(followed) = client.ask_within(Method::GET, &stream, None, LOOK).await
            && let Some(outcome) = outcome(&followed.body)
        {
            return Ok(outcome);
        }
        match look(client, &path).await {
            Ok(found) if !matches!(found["state"].as_str(), Some("queued" | "running")) => {
                return Ok(found);
            }
            Ok(_) => (lost, pause) = (None, PAUSE),
            Err(Unseen { why, for_now }) => {
                let since = *lost.get_or_insert_with(Instant::now);
                if !for_now || since.elapsed() >= PATIENCE {
                    let words = format!("request {} may go on: {}", plain(id), why.words());
                    return Err(Failure::failed(words));
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        sleep(pause).await;
    }
}

/// Why it could not be seen how a request stands.
struct Unseen {
    why: Failure,
    /// Whether it may be seen a little later.
    for_now: bool,
}

async fn look(client: &Client, path: &str) -> Result<Value, Unseen> {
    let answer = client.ask(Method::GET, path, None).await;
    let answer = answer.map_err(|why| Unseen { why, for_now: true })?;
    if !answer.status.is_success() {
        let for_now = matches!(answer.status.as_u16(), 429 | 502..=504);
        return Err(Unseen { why: Problem::of(&answer).failure(), for_now });
    }
    serde_json::from_slice(&answer.body)
        .map_err(|_| Unseen { why: client.stranger(), for_now: false })
}

/// The last event of a stream that has come to its end.
fn outcome(stream: &[u8]) -> Option<Value> {
    let stream = std::str::from_utf8(stream).ok()?;
    let (_, data) = stream.rsplit_once("event: outcome\ndata: ")?;
    serde_json::from_str(data.strip_suffix("\n\n")?).ok()
}

/// Cancels it; what was faster is told as it is.
async fn cancel(client: &Client, id: &str, name: &str) -> Result<Value, Failure> {
    let path = format!("/api/v1/requests/{}", escaped(id));
    let ended = client.order(Method::DELETE, &path, None).await.map_err(|failure| {
        Failure::failed(format!("{name}: request {id} may go on: {}", failure.words()))
    })?;
    if ended["state"] == "cancelled" {
        return Err(Failure::failed(format!("{name}: request {id} is cancelled")));
    }
    Ok(ended)
}

/// It was not let in.
fn refused(answer: &Fetched, is_json: bool) -> Failure {
    let problem = Problem::of(answer);
    let said = if is_json { screen::line(&problem.body) } else { Ok(()) };
    match (said, problem.code.as_deref().and_then(Failure::code_of_request)) {
        (Err(error), _) => error.into(),
        (Ok(()), Some(code)) => Failure::with_code(code, words(&problem.body)),
        (Ok(()), None) if problem.code.as_deref() == Some("session_forbidden") => {
            Failure::failed(words(&problem.body))
        }
        (Ok(()), None) => problem.failure(),
    }
}

/// Prints what came of it.
fn told(ended: &Value, is_json: bool) -> Result<(), Failure> {
    if is_json {
        screen::line(ended)?;
    }
    if ended["state"] == "completed" {
        return if is_json { Ok(()) } else { Ok(screen::line(shown(ended))?) };
    }
    let error = &ended["error"];
    let code = error["code"].as_str().and_then(Failure::code_of_request);
    Err(match code {
        Some(code) => Failure::with_code(code, words(error)),
        None => Failure::failed(words(error)),
    })
}

/// The agent's words: as they are for a program, without what a terminal would obey for a person.
fn shown(ended: &Value) -> String {
    let text = ended["text"].as_str().unwrap_or_default();
    if !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
}

/// `code: what the user is told`, and what an operator wants to know.
fn words(error: &Value) -> String {
    let text = |name: &str| error[name].as_str().filter(|text| !text.is_empty());
    let mut words = plain(text("detail").unwrap_or("the request failed"));
    if let Some(code) = text("code") {
        words = format!("{code}: {words}");
    }
    let facts = [
        error["exitCode"].as_i64().map(|code| format!("it ended with code {code}")),
        text("signal").map(|signal| format!("it was ended by {}", plain(signal))),
        text("message").map(plain),
        text("stderr").map(|said| format!("it said: {}", plain(&last(said)))),
    ];
    let advice = text("code").and_then(advice).map(ToOwned::to_owned);
    for fact in facts.into_iter().chain([advice]).flatten() {
        words = format!("{words}\n  {fact}");
    }
    words
}

/// What to do about a failure whose words do not say it.
fn advice(code: &str) -> Option<&'static str> {
    match code {
        "output_limit" => Some(
            "the agent wrote more than 2 MiB in one turn, which no setting raises; it was not run again: ask for less, \
             or have it write to a file and name that",
        ),
        "interrupted" => Some(
            "the daemon ended while it waited or ran; it was not run again, and does not run by itself: ask again, with \
             the same --session, if it may have been done in part",
        ),
        _ => None,
    }
}

/// The end of what it said fits a screen.
fn last(said: &str) -> String {
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = words.chars().count().saturating_sub(500);
    words.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        let cases = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("30", None),
            ("0s", None),
            ("s", None),
            ("-1s", None),
            ("99999999999999999999h", None),
        ];
        for (text, millis) in cases {
            assert_eq!(duration(text).ok(), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn a_stream_ends_with_the_outcome() {
        let whole = "event: stage\ndata: {\"state\":\"running\"}\n\n: still here\n\n\
                     event: line\ndata: {\"line\":\"event: outcome\\ndata: {}\"}\n\n\
                     event: outcome\ndata: {\"state\":\"completed\",\"text\":\"hi\"}\n\n";
        let ended = outcome(whole.as_bytes()).unwrap();
        assert_eq!(ended, json!({"state": "completed", "text": "hi"}));
        assert_eq!(outcome(&whole.as_bytes()[..whole.len() - 3]), None);
        assert_eq!(outcome(b"event: stage\ndata: {}\n\n"), None);
    }

    #[test]
    fn an_error_says_what_happened() {
        let crash = json!({"code": "worker_crash", "detail": "An internal error occurred.",
            "exitCode": 3, "signal": null, "stderr": "no\n key\u{1b}[2J"});
        let words = words(&crash);
        let expected =
            "worker_crash: An internal error occurred.\n  it ended with code 3\n  it said: no key";
        assert!(words.starts_with(expected) && !words.contains('\u{1b}'), "{words}");
    }

    #[test]
    fn a_failure_without_facts_says_what_to_do() {
        for (code, expected) in [
            ("output_limit", ["no setting raises", "was not run again"]),
            ("interrupted", ["was not run again", "ask again"]),
        ] {
            let words = words(&json!({"code": code, "detail": "An unexpected error occurred."}));
            assert!(expected.into_iter().all(|part| words.contains(part)), "{words}");
        }
    }
}
