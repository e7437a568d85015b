//! `sluicegate ack`: a message is given up as done.

use clap::{Arg, ArgMatches, Command};
use http::Method;

use crate::client::{self, Client, Problem, escaped};
use crate::exit::Failure;
use crate::screen;

const EXAMPLES: &str = "\
Examples:
  sluicegate groups --pool ORDERS
  sluicegate ack order-4711

The id is the message's own, as in `sluicegate inflight`. Its queue is told that it was delivered, though it was
not: it is neither tried again nor parked, and the next of its group goes on. This is how a group goes on whose head
is blocked (on_exhausted = \"block\") or fails for ever. A message that runs cannot be given up: try again when it
waits. One that still waits in its queue is taken out of it, if that is in SQLite or PostgreSQL; other brokers cannot
do that: there it can be given up once it was received. A parked message is given up with `sluicegate discard`.";

pub(super) fn command() -> Command {
    let command = Command::new("ack")
        .about("Give a message up as done, so that its group goes on")
        .after_help(EXAMPLES)
        .arg(Arg::new("id").value_name("ID").required(true).help("The message's id"));
    client::arguments(command)
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let id = given.get_one::<String>("id").map(String::as_str).unwrap_or_default();
    let path = format!("/api/v1/inflight/{}/ack", escaped(id));
    let fetched = Client::of(given)?.ask(Method::POST, &path, None).await?;
    if !fetched.status.is_success() {
        return Err(Problem::of(&fetched).failure());
    }
    if fetched.status == http::StatusCode::ACCEPTED {
        let told: serde_json::Value = serde_json::from_slice(&fetched.body).unwrap_or_default();
        let detail = told["detail"].as_str().unwrap_or_default();
        let (id, detail) = (screen::plain(id), screen::plain(detail));
        return Ok(screen::line(format_args!("{id} is not called any more: {detail}"))?);
    }
    Ok(screen::line(format_args!("{} was given up as done", screen::plain(id)))?)
}
