//! `sluicegate events tail`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{ArgMatches, Command};
use http::StatusCode;
use serde_json::value::RawValue;
use sluicegate::server::fetch::{Fetched, Followed};
use tokio::time::sleep;

use super::{all, filters, limit, position, rows};
use crate::client::{self, Client, Problem, escaped};
use crate::commands::signals::Signals;
use crate::commands::views;
use crate::exit::Failure;

const EXAMPLES: &str = "\
Examples:
  sluicegate events tail
  sluicegate events tail --type OrderPlaced --after 120 --json
  sluicegate events tail --limit 1

Events after --after (0 unless told), and those that come, until Ctrl-C. A connection that is lost is made again, and goes
on where it was: each event is printed once.";

/// A server says something at least so often.
const SILENCE: Duration = Duration::from_secs(60);
/// How soon a connection is made again, at first and at the latest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// The longest line that is taken: an event with all that it may have.
const MOST: usize = 16 * 1024 * 1024;

pub(super) fn command() -> Command {
    let command = Command::new("tail")
        .about("Events that are there, and those that come")
        .after_help(EXAMPLES)
        .arg(limit("End after so many"))
        .arg(views::json_argument().help("Print JSON Lines"));
    client::arguments(filters(command))
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let mut signals = Signals::new()?;
    let tail = Tail {
        client,
        filters: filter(&all(given, "type"), &all(given, "tag")),
        after: position(given),
        left: given.get_one::<u64>("limit").copied().unwrap_or(u64::MAX),
        is_json: given.get_flag("json"),
    };
    tokio::select! {
        ended = tail.follow() => ended,
        _ = signals.leave() => Ok(()),
    }
}

/// The filters as parameters.
fn filter(types: &[String], tags: &[String]) -> String {
    let types = types.iter().map(|of| format!("&type={}", escaped(of)));
    types.chain(tags.iter().map(|tag| format!("&tag={}", escaped(tag)))).collect()
}

/// Where it is, whatever becomes of the connection.
struct Tail {
    client: Client,
    filters: String,
    after: u64,
    left: u64,
    is_json: bool,
}

/// Why a connection is over.
enum Over {
    /// There were enough events.
    Enough,
    /// It was lost.
    Lost(String),
}

impl Tail {
    async fn follow(mut self) -> Result<(), Failure> {
        let (first, longest) = AGAIN;
        let mut pause = first;
        let mut connected = false;
        loop {
            let before = self.after;
            let why = match self.open().await {
                Ok(events) => {
                    connected = true;
                    match self.print(events).await? {
                        Over::Enough => return Ok(()),
                        Over::Lost(why) => why,
                    }
                }
                Err(NotOpened { failure, for_now }) if connected && for_now => {
                    failure.words().lines().next().unwrap_or_default().to_owned()
                }
                Err(NotOpened { failure, .. }) => return Err(failure),
            };
            eprintln!("{why}; trying again, after position {}", self.after);
            pause = if self.after > before { first } else { (pause * 2).min(longest) };
            sleep(pause).await;
        }
    }

    async fn open(&self) -> Result<Followed, NotOpened> {
        let path = format!("/api/v1/events/stream?after={}{}", self.after, self.filters);
        let followed = self.client.follow(&path, SILENCE).await;
        let mut events = followed.map_err(|failure| NotOpened { failure, for_now: true })?;
        if events.status.is_success() {
            return Ok(events);
        }
        let for_now = matches!(events.status, StatusCode::TOO_MANY_REQUESTS)
            || events.status.is_server_error();
        let mut body = Vec::new();
        while let Ok(Some(part)) = events.next().await {
            body.extend_from_slice(&part);
        }
        let (status, headers) = (events.status, events.headers.clone());
        let failure = Problem::of(&Fetched { status, headers, body: body.into() }).failure();
        Err(NotOpened { failure, for_now })
    }

    /// Prints events until the connection is over.
    async fn print(&mut self, mut events: Followed) -> Result<Over, Failure> {
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let part = match events.next().await {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(Over::Lost("the server ended the stream".to_owned())),
                Err(error) => return Ok(Over::Lost(format!("the server's answer: {error}"))),
            };
            rest.extend_from_slice(&part);
            let mut read = 0;
            while let Some(end) = rest[read..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&rest[read..read + end]).into_owned();
                read += end + 1;
                if self.line(&line)? {
                    return Ok(Over::Enough);
                }
            }
            rest.drain(..read);
            if rest.len() > MOST {
                return Err(self.client.stranger());
            }
        }
    }

    /// Takes a line; answers whether there were enough events.
    fn line(&mut self, line: &str) -> Result<bool, Failure> {
        let Some(data) = line.strip_prefix("data: ") else { return Ok(false) };
        let event: Box<RawValue> =
            serde_json::from_str(data).map_err(|_| self.client.stranger())?;
        let fields: BTreeMap<&str, &RawValue> =
            serde_json::from_str(event.get()).map_err(|_| self.client.stranger())?;
        let position = fields.get("position").and_then(|position| position.get().parse().ok());
        // What is no event is a problem, after which the stream ends.
        let Some(position) = position else { return Ok(false) };
        if !rows::print(&event, self.is_json)? {
            return Err(self.client.stranger());
        }
        self.after = position;
        self.left -= 1;
        Ok(self.left == 0)
    }
}

/// Why there is no stream.
struct NotOpened {
    failure: Failure,
    /// Whether there may be one a little later.
    for_now: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_parameters() {
        let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(filter(&[], &[]), "");
        let some = filter(&text(&["A B", "C"]), &text(&["k:v&w"]));
        assert_eq!(some, "&type=A%20B&type=C&tag=k%3Av%26w");
    }
}
