//! `sluicegate publish`: messages from a file or a pipe into a queue.

mod parser;
mod pools;
mod progress;
mod sink;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, value_parser};
use sluicegate::dispatch::Publication;
use sluicegate::server::settings::{QueueUri, Settings};
use sluicegate::sources::sqlite::Store;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use parser::{Entry, Parser, Place};
use pools::{Pools, Unknown};
use progress::Progress;
use sink::{Batch, Sink, Taken};

use super::configuration;
use crate::client::{self, Client};
use crate::exit::Failure;
use crate::screen::{self, plain};

const EXAMPLES: &str = "\
Examples:
  sluicegate publish orders.jsonl
  echo '{\"id\":\"1\",\"mediationTarget\":\"http://localhost:9000/\"}' | sluicegate publish
  sluicegate publish --queue orders --config sluicegate.toml orders.json

A message is a JSON object: id and mediationTarget are needed; poolCode, messageGroupId, authToken,
highPriority, payload, tenant and delaySeconds may be there. Good messages are accepted; each refused
one is printed as `line N: …`, and then the exit code is 2. With --config a pool that the file does
not name is told of, or refused where router.unknown_pool = \"refuse\".

With --config it writes into the embedded queue's file itself, also while a daemon serves it.";

/// How many messages are published at once, and how many bytes of them.
const MOST: usize = 500;
const MOST_BYTES: usize = 4 << 20;
/// How long a batch that is not full waits for more.
const LINGER: Duration = Duration::from_millis(10);

pub(super) fn command() -> Command {
    let command = Command::new("publish")
        .about("Publish messages: a JSON object, an array, or JSON Lines")
        .after_help(EXAMPLES)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .default_value("-")
                .value_parser(value_parser!(PathBuf))
                .help("What to read; - for standard input"),
        )
        .arg(
            Arg::new("queue")
                .long("queue")
                .short('q')
                .value_name("NAME")
                .help("The queue; else the only one, or `default`"),
        )
        .arg(
            configuration::argument()
                .help("Publish straight into the embedded queue that this file configures"),
        );
    client::arguments(command)
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let (sink, pools) = sink(given).await?;
    let file = given.get_one::<PathBuf>("file").map_or(Path::new("-"), PathBuf::as_path);
    let mut publishing = Publishing {
        sink,
        pools,
        batch: Batch::new(),
        refused: Vec::new(),
        bytes: 0,
        counts: Counts::default(),
        progress: Progress::hidden(),
    };
    let read = if file == Path::new("-") {
        if std::io::stdin().is_terminal() {
            eprintln!("reading messages from the terminal, one on each line; Ctrl-D ends them");
        }
        publishing.progress = Progress::new(None);
        publishing.all_of(tokio::io::stdin()).await
    } else {
        let unreadable = |error| Failure::bad_input(format!("{}: {error}", file.display()));
        let opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
        let length = opened.metadata().await.map_err(unreadable)?.len();
        publishing.progress = Progress::new(Some(length));
        publishing.all_of(opened).await
    };
    publishing.progress.end();
    publishing.counts.say()?;
    read?;
    match publishing.counts.refused {
        0 => Ok(()),
        refused => Err(Failure::bad_input(format!("{refused} refused"))),
    }
}

/// What is published, and what became of it so far.
struct Publishing {
    sink: Sink,
    /// Where that is known from here.
    pools: Option<Pools>,
    batch: Batch,
    /// What was refused since the last batch.
    refused: Vec<(Place, String)>,
    /// How many bytes the batch has.
    bytes: usize,
    counts: Counts,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: u64,
    duplicates: u64,
    refused: u64,
}

impl Publishing {
    /// Reads to the end, and publishes as it reads: what waits is a batch at most.
    async fn all_of(&mut self, mut input: impl AsyncRead + Unpin) -> Result<(), Failure> {
        let mut parser = Parser::default();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            // A read that is dropped here has taken nothing from the input.
            let read = match timeout(LINGER, input.read(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => {
                    self.flush().await?;
                    input.read(&mut buffer).await
                }
            };
            let read = read.map_err(|error| Failure::failed(format!("cannot be read: {error}")))?;
            for entry in parser.feed(&buffer[..read]) {
                self.add(entry).await?;
            }
            self.progress.read(read);
            if read == 0 {
                break;
            }
        }
        for entry in parser.finish() {
            self.add(entry).await?;
        }
        self.flush().await
    }

    async fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        match entry.message {
            Err(why) => self.refused.push((entry.place, why)),
            Ok(message) => {
                let pools = self.pools.as_mut();
                match pools.and_then(|pools| pools.look(&message.message.pool)) {
                    Some(Unknown::Refuse(why)) => self.refused.push((entry.place, why)),
                    unknown => {
                        if let Some(Unknown::Tell(words)) = unknown {
                            let place = entry.place;
                            self.progress.say(format_args!("warning: {place}: {}", plain(&words)));
                        }
                        self.bytes += message.body.len();
                        self.batch.push((entry.place, message));
                    }
                }
            }
        }
        if self.batch.len() + self.refused.len() >= MOST || self.bytes >= MOST_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Publishes what waits, and says what was refused, in the order of the lines.
    async fn flush(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let mut refused = std::mem::take(&mut self.refused);
        let taken = match ends(&batch) {
            Some(ends) => self.take(batch, ends).await,
            None => Ok(Taken::default()),
        };
        if let Ok(taken) = &taken {
            self.counts.accepted += taken.accepted;
            self.counts.duplicates += taken.duplicates;
            refused.extend(taken.refused.iter().cloned());
            refused.sort_by_key(|(place, _)| (place.line, place.number));
        }
        self.counts.refused += refused.len() as u64;
        for (place, why) in refused {
            self.progress.say(format_args!("{place}: {}", plain(&why)));
        }
        self.progress.accepted(self.counts.accepted);
        taken.map(drop)
    }

    async fn take(&self, batch: Batch, (first, last): (Place, Place)) -> Result<Taken, Failure> {
        self.sink.take(batch).await.inspect_err(|failure| {
            let fate = if failure.is_unreachable() {
                "may or may not have been accepted; publishing them again within 5 minutes does \
                 no harm"
            } else {
                "were not accepted as a whole"
            };
            self.progress
                .say(format_args!("{first} to {last} {fate}; nothing behind them was sent"));
        })
    }
}

impl Counts {
    fn say(self) -> Result<(), Failure> {
        screen::line(format_args!("accepted {}", self.accepted))?;
        if self.duplicates > 0 {
            screen::line(format_args!("duplicates {}", self.duplicates))?;
        }
        Ok(())
    }
}

fn ends(batch: &[(Place, Publication)]) -> Option<(Place, Place)> {
    Some((batch.first()?.0, batch.last()?.0))
}

/// Where they go, and the pools that are known there.
async fn sink(given: &ArgMatches) -> Result<(Sink, Option<Pools>), Failure> {
    let queue = given.get_one::<String>("queue").map(String::as_str);
    let Some(file) = given.get_one::<PathBuf>("config") else {
        let client = Client::of(given)?;
        let (client, queue) = (Box::new(client), queue.map(str::to_owned));
        return Ok((Sink::Server { client, queue }, None));
    };
    // The variable may be set for other commands: only the argument is a contradiction.
    if given.value_source("server") == Some(ValueSource::CommandLine) {
        return Err(Failure::bad_input("--config and --server name two places: give one of them"));
    }
    let settings = configuration::settings(Some(file))?;
    let queue = embedded(&settings, queue)?;
    let path = &settings.state.path;
    let publisher = Store::open_publishing(path).await.map_err(|error| {
        Failure::failed(format!("state file {} cannot be opened: {error}", path.display()))
    })?;
    Ok((Sink::Embedded { publisher, queue }, Pools::of(&settings)))
}

/// The name in the state file of the queue that is meant.
fn embedded(settings: &Settings, name: Option<&str>) -> Result<String, Failure> {
    let queues = &settings.queues;
    let name = match (name, &queues[..]) {
        (Some(name), _) => name,
        (None, [only]) => &only.name,
        (None, _) => "default",
    };
    let Some(queue) = queues.iter().find(|queue| queue.name == name) else {
        let known: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
        return Err(Failure::bad_input(format!(
            "there is no queue `{name}` in the configuration; there are: {}",
            known.join(", ")
        )));
    };
    match &queue.uri {
        QueueUri::Sqlite { queue } => Ok(queue.clone()),
        other => Err(Failure::bad_input(format!(
            "queue `{name}` is {other}, not an embedded one: publish through a server, with --server"
        ))),
    }
}
