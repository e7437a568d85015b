//! `sluicegate replay`: parked messages go back to their queues.
//!
//! The server replays for a while and says where to go on; so no request takes long, and a person sees how far it
//! is.

use std::io::IsTerminal;
use std::time::Duration;

use bytes::Bytes;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use super::parked::{FILTERS, filter_arguments, filters};
use super::views;
use crate::client::{self, Client, Problem};
use crate::exit::Failure;
use crate::screen::{self, time};

const EXAMPLES: &str = "\
Examples:
  sluicegate replay 17 18
  sluicegate replay --pool ORDERS
  sluicegate replay --host api.example.com --code exhausted --after 2h --dry-run
  sluicegate replay --all --rate 50

The ids are those of `sluicegate parked`: of these all are replayed, or none. Of all others those that can be are, in
their order, and the messages of a group never before an earlier one of it that stays parked. Where nothing of what was
asked for can be replayed, the exit code is 1.";

/// How many messages one request replays, so that somebody who watches sees it go on.
const AT_ONCE: u64 = 500;
/// How many of those that were refused are named.
const NAMED: usize = 5;

pub(super) fn command() -> Command {
    let command = Command::new("replay")
        .about("Give parked messages back to their queues")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("id")
                .value_name("ID")
                .action(ArgAction::Append)
                .num_args(1..)
                .conflicts_with_all(FILTERS)
                .conflicts_with("all")
                .help("The ids of parked messages"),
        )
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("All there are"));
    let command = filter_arguments(command)
        .group(
            ArgGroup::new("which").args(["id", "all"]).args(FILTERS).required(true).multiple(true),
        )
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Say what would be replayed, and change nothing"),
        )
        .arg(
            Arg::new("rate")
                .long("rate")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=1_000_000))
                .conflicts_with("id")
                .help("At most so many a second"),
        )
        .arg(views::json_argument());
    client::arguments(command)
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let mut replaying = Replaying {
        client,
        is_dry: given.get_flag("dry-run"),
        sum: Sum::default(),
        progress: progress(given.get_flag("json")),
    };
    let done = replaying.all(given).await;
    replaying.progress.finish_and_clear();
    let sum = &replaying.sum;
    let is_cut_off = done.is_err();
    if given.get_flag("json") {
        screen::line(sum.to_json(replaying.is_dry, is_cut_off))?;
        done?;
        return sum.judged().map_err(Failure::told);
    }
    sum.say(replaying.is_dry, is_cut_off)?;
    done?;
    sum.judged()
}

struct Replaying {
    client: Client,
    is_dry: bool,
    sum: Sum,
    progress: ProgressBar,
}

impl Replaying {
    /// Asks until there is nothing left to ask for.
    async fn all(&mut self, given: &ArgMatches) -> Result<(), Failure> {
        let mut asked = Map::new();
        match given.get_many::<String>("id") {
            Some(ids) => drop(asked.insert("ids".to_owned(), json!(ids.collect::<Vec<_>>()))),
            None => {
                let named = filters(given);
                asked.extend(named.map(|(name, value)| (name.to_owned(), json!(value))));
                if asked.is_empty() {
                    asked.insert("all".to_owned(), json!(true));
                }
                let rate = given.get_one::<u64>("rate").copied();
                asked.extend(rate.map(|rate| ("rate".to_owned(), json!(rate))));
                // A few seconds' worth.
                let most = rate.map_or(AT_ONCE, |rate| AT_ONCE.min(rate.saturating_mul(2)));
                asked.insert("limit".to_owned(), json!(most));
            }
        }
        asked.insert("dryRun".to_owned(), json!(self.is_dry));
        loop {
            let body = Bytes::from(Value::from(asked.clone()).to_string());
            let path = "/api/v1/parked/replay";
            let answer = self.ask(path, body).await?;
            self.sum.add(&answer);
            self.progress.set_message(self.sum.so_far(self.is_dry));
            let Some(next) = answer["next"].as_str() else { return Ok(()) };
            asked.insert("cursor".to_owned(), json!(next));
        }
    }
}

impl Replaying {
    /// What one request became; what it had replayed before it failed counts.
    async fn ask(&mut self, path: &str, body: Bytes) -> Result<Value, Failure> {
        let fetched = self.client.ask(Method::POST, path, Some(body)).await;
        let fetched = fetched.inspect_err(|_| self.sum.is_unknown = true)?;
        if !fetched.status.is_success() {
            let problem = Problem::of(&fetched);
            self.sum.replayed += problem.body["replayed"].as_u64().unwrap_or_default();
            return Err(problem.failure());
        }
        serde_json::from_slice(&fetched.body).map_err(|_| self.client.stranger())
    }
}

/// What became of it so far.
#[derive(Debug, Default)]
struct Sum {
    replayed: u64,
    would: u64,
    ids: Vec<Value>,
    left: u64,
    refused: Vec<Value>,
    /// The answer to the last request did not come.
    is_unknown: bool,
}

impl Sum {
    fn add(&mut self, answer: &Value) {
        let number = |name: &str| answer[name].as_u64().unwrap_or_default();
        self.replayed += number("replayed");
        self.would += number("wouldReplay");
        self.left += number("left");
        let some = |name: &str, most: usize| {
            answer[name].as_array().into_iter().flatten().take(most).cloned().collect::<Vec<_>>()
        };
        self.ids.extend(some("ids", 1_000_usize.saturating_sub(self.ids.len())));
        self.refused.extend(some("refused", 20_usize.saturating_sub(self.refused.len())));
    }

    fn so_far(&self, is_dry: bool) -> String {
        let (word, count) =
            if is_dry { ("would replay", self.would) } else { ("replayed", self.replayed) };
        format!("{word} {}, left {}", time::count(count), time::count(self.left))
    }

    fn say(&self, is_dry: bool, is_cut_off: bool) -> Result<(), Failure> {
        if is_dry {
            let ids: Vec<&str> = self.ids.iter().filter_map(Value::as_str).collect();
            let more = if self.would > ids.len() as u64 { ", …" } else { "" };
            let words =
                if ids.is_empty() { String::new() } else { format!(": {}{more}", ids.join(" ")) };
            screen::line(format_args!("would replay {}{words}", time::count(self.would)))?;
        } else {
            screen::line(self.told(is_cut_off))?;
        }
        if self.left == 0 {
            return Ok(());
        }
        screen::line(format_args!("left {}", time::count(self.left)))?;
        for refused in self.refused.iter().take(NAMED) {
            let word = |name: &str| refused[name].as_str().unwrap_or_default().to_owned();
            eprintln!("{}", screen::plain(&format!("{}: {}", word("code"), word("detail"))));
        }
        let unnamed = self.left.saturating_sub(self.refused.len().min(NAMED) as u64);
        if unnamed > 0 {
            eprintln!("and {} more", time::count(unnamed));
        }
        Ok(())
    }

    /// How many were replayed, as far as it is known.
    fn told(&self, is_cut_off: bool) -> String {
        let count = time::count(self.replayed);
        match (is_cut_off, self.is_unknown) {
            (false, _) => format!("replayed {count}"),
            (true, false) => format!("replayed {count} before it failed"),
            (true, true) => format!(
                "replayed at least {count}: the last request had no answer, and what it replayed is not \
                 counted; `sluicegate parked` lists what is left"
            ),
        }
    }

    /// Nothing of what was asked for is a failure; nothing to do is none.
    fn judged(&self) -> Result<(), Failure> {
        if self.left == 0 || self.replayed > 0 || self.would > 0 {
            return Ok(());
        }
        let why = self.refused.first().and_then(|refused| refused["detail"].as_str());
        let why = why.map(|why| format!(": {}", screen::plain(why))).unwrap_or_default();
        Err(Failure::failed(format!("none of {} was replayed{why}", time::count(self.left))))
    }

    fn to_json(&self, is_dry: bool, is_cut_off: bool) -> Value {
        let mut json = json!({
            "replayed": self.replayed, "left": self.left, "refused": self.refused,
        });
        if is_cut_off {
            json["complete"] = false.into();
        }
        if is_dry {
            json["dryRun"] = true.into();
            json["wouldReplay"] = self.would.into();
            json["ids"] = self.ids.clone().into();
        }
        json
    }
}

/// How far it is, if somebody watches.
fn progress(is_quiet: bool) -> ProgressBar {
    if is_quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
