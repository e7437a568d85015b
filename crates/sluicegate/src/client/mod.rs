//! The server from outside: `--server`, `--token`, and its answers.

mod list;
mod problem;

use std::time::Duration;

use bytes::Bytes;
use clap::{Arg, ArgMatches, Command};
use http::Method;
use serde_json::Value;
use sluicegate::server::fetch::{Ask, Fetch, FetchError, Fetched, Followed};
use sluicegate::server::settings::HttpUrl;

pub(crate) use problem::Problem;

use crate::exit::Failure;

/// A server.
#[derive(Debug)]
pub(crate) struct Client {
    fetch: Fetch,
    /// Its address, without a slash at the end.
    base: String,
    token: Option<String>,
}

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read: a page of a thousand parked messages of a quarter megabyte.
const MOST_BYTES: usize = 256 * 1024 * 1024;

/// Adds `--server` and `--token` to a command.
pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("server")
                .long("server")
                .short('s')
                .env("SLUICEGATE_URL")
                .value_name("URL")
                .default_value("http://127.0.0.1:8080")
                .help_heading("Server")
                .help("The server to ask"),
        )
        .arg(
            Arg::new("token")
                .long("token")
                .env("SLUICEGATE_TOKEN")
                .hide_env_values(true)
                .value_name("TOKEN")
                .help_heading("Server")
                .help("Its token; the variable is seen by fewer than an argument"),
        )
}

impl Client {
    /// The server that was named.
    pub(crate) fn of(given: &ArgMatches) -> Result<Self, Failure> {
        let text = |name| given.get_one::<String>(name).map(String::as_str).unwrap_or_default();
        let url = HttpUrl::parse(text("server"))
            .map_err(|invalid| Failure::bad_input(format!("--server {invalid}")))?;
        let base = url.expose().split(['?', '#']).next().unwrap_or_default();
        let authority = base.split('/').nth(2).unwrap_or_default();
        if authority.contains('@') {
            let message = "--server must not carry a user or password; there is --token";
            return Err(Failure::bad_input(message));
        }
        let token = Some(text("token")).filter(|token| !token.is_empty()).map(str::to_owned);
        Ok(Self { fetch: Fetch::new(), base: base.trim_end_matches('/').to_owned(), token })
    }

    /// Its address.
    pub(crate) fn address(&self) -> &str {
        &self.base
    }

    /// Asks, and takes whatever is answered. `path` begins with a slash.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Fetched, Failure> {
        self.ask_within(method, path, body, TIMEOUT).await
    }

    /// The same, for what may take longer or less long.
    pub(crate) async fn ask_within(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        timeout: Duration,
    ) -> Result<Fetched, Failure> {
        let token = self.token.clone();
        let ask = Ask { method, token, body, timeout, most_bytes: MOST_BYTES };
        let asked = self.fetch.ask(&format!("{}{path}", self.base), ask).await;
        asked.map_err(|error| self.unanswered(&error))
    }

    /// Follows what goes on and on; `silence` is how long it may say nothing.
    pub(crate) async fn follow(&self, path: &str, silence: Duration) -> Result<Followed, Failure> {
        let ask = Ask { token: self.token.clone(), ..Ask::get(silence, MOST_BYTES) };
        let followed = self.fetch.follow(&format!("{}{path}", self.base), ask).await;
        followed.map_err(|error| self.unanswered(&error))
    }

    /// Asks for something that is there; anything but success is a failure.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, Failure> {
        let fetched = self.ask(Method::GET, path, None).await?;
        if fetched.status.is_success() {
            return Ok(fetched.body);
        }
        Err(Problem::of(&fetched).failure())
    }

    /// The same, as JSON.
    pub(crate) async fn json(&self, path: &str) -> Result<Value, Failure> {
        let body = self.get(path).await?;
        serde_json::from_slice(&body).map_err(|_| self.stranger())
    }

    /// Has something done, and takes the answer as JSON; null where there is none.
    pub(crate) async fn order(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Value, Failure> {
        let fetched = self.ask(method, path, body).await?;
        if !fetched.status.is_success() {
            return Err(Problem::of(&fetched).failure());
        }
        if fetched.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&fetched.body).map_err(|_| self.stranger())
    }

    /// What answers there does not speak like a server of ours.
    pub(crate) fn stranger(&self) -> Failure {
        Failure::failed(format!(
            "{} answered something else than a sluicegate server does; is --server right?",
            self.base
        ))
    }

    fn unanswered(&self, error: &FetchError) -> Failure {
        let base = &self.base;
        match error {
            FetchError::Unreachable(why) => Failure::unreachable(format!(
                "{base} could not be reached: {why}\n\
                 Start a server with `sluicegate serve`, or name another with --server or \
                 SLUICEGATE_URL."
            )),
            FetchError::TimedOut(_) => Failure::unreachable(format!(
                "{base} {error}\nIt may be overloaded, or something else listens there."
            )),
            FetchError::BadRequest(_) => Failure::bad_input(format!("{base} {error}")),
            _ => Failure::failed(format!("{base}: {error}")),
        }
    }
}

/// A text as a part of a path or a query.
pub(crate) fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            // A dot may stand for a folder where it is alone.
            b'.' if text.len() > 2 => escaped.push('.'),
            _ => write!(escaped, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn what_would_end_a_part_of_a_path_is_escaped() {
        let cases = [
            ("m-1_2~3.x", "m-1_2~3.x"),
            ("..", "%2E%2E"),
            ("a/b?c#d%e f", "a%2Fb%3Fc%23d%25e%20f"),
            ("é", "%C3%A9"),
        ];
        for (text, expected) in cases {
            assert_eq!(escaped(text), expected, "{text}");
        }
    }
}
