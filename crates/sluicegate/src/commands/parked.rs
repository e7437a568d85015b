//! `sluicegate parked export` and `import`: parked messages as JSON Lines; and what those that are meant have in
//! common.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use http::Method;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use crate::client::{self, Client, escaped};
use crate::exit::Failure;
use crate::screen::{self, plain, time};

/// What parked messages are chosen by.
pub(super) const FILTERS: [&str; 7] = ["queue", "pool", "group", "code", "host", "after", "before"];

const EXPORT: &str = "\
Examples:
  sluicegate parked export parked.jsonl
  sluicegate parked export --pool ORDERS --after 2h | jq .message.id
  sluicegate parked export --with-secrets backup.jsonl

The tokens of messages (authToken) are left out, so that what is imported again is delivered without them. With
--with-secrets, which takes the server's own token and not its read token, they are there: keep such a file to yourself.";

const IMPORT: &str = "\
Examples:
  sluicegate parked import parked.jsonl
  sluicegate parked export --server http://old:8080 | sluicegate parked import - --server http://new:8080

What is there already is counted and not doubled. The order of the lines is kept, and groups that were parked as a whole
are held again. Bad lines are printed as `line N: …`, the others are imported, and then the exit code is 2.";

/// How many lines one request takes or brings, and how many bytes of them.
const LINES: usize = 100;
const BYTES: usize = 4 << 20;

/// The arguments that choose parked messages.
pub(super) fn filter_arguments(command: Command) -> Command {
    let helps = [
        ("queue", "NAME", "Only those that came from this queue"),
        ("pool", "CODE", "Only those of this pool"),
        ("group", "GROUP", "Only those of this group"),
        (
            "code",
            "CODE",
            "Only those that are parked for this: malformed, rejected, exhausted, key_parked or unknown_pool",
        ),
        ("host", "HOST", "Only those for this host, with or without its port"),
        (
            "after",
            "TIME",
            "Only those that were parked at this time or later: 2026-11-16T08:30:00Z, or 2h ago",
        ),
        ("before", "TIME", "Only those that were parked before this time"),
    ];
    helps.into_iter().fold(command, |command, (name, value, help)| {
        command.arg(Arg::new(name).long(name).value_name(value).help(help))
    })
}

/// Those that were given.
pub(super) fn filters(given: &ArgMatches) -> impl Iterator<Item = (&'static str, &String)> {
    FILTERS.into_iter().filter_map(|name| Some((name, given.get_one::<String>(name)?)))
}

fn file(help: &'static str) -> Arg {
    Arg::new("file").value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
}

/// The commands below `parked`.
pub(super) fn commands() -> [Command; 2] {
    let export = Command::new("export")
        .about("Write parked messages as JSON Lines")
        .after_help(EXPORT)
        .arg(file("Where to; - or nothing for standard output").default_value("-"))
        .arg(
            Arg::new("with-secrets")
                .long("with-secrets")
                .action(ArgAction::SetTrue)
                .help("With the tokens of messages; it takes a token that may operate"),
        );
    let import = Command::new("import")
        .about("Park messages that were exported")
        .after_help(IMPORT)
        .arg(file("What to read; - for standard input").required(true));
    [client::arguments(filter_arguments(export)), client::arguments(import)]
}

pub(super) async fn run(name: &str, given: &ArgMatches) -> Result<(), Failure> {
    let client = Client::of(given)?;
    let path = given.get_one::<PathBuf>("file").map_or(Path::new("-"), PathBuf::as_path);
    if name == "export" { export(&client, given, path).await } else { import(&client, path).await }
}

async fn export(client: &Client, given: &ArgMatches, path: &Path) -> Result<(), Failure> {
    let mut chosen = format!("/api/v1/parked/export?limit={LINES}");
    for (name, value) in filters(given) {
        chosen.push_str(&format!("&{name}={}", escaped(value)));
    }
    if given.get_flag("with-secrets") {
        chosen.push_str("&withSecrets=true");
    }
    // The first answer comes before a file is made: what is refused leaves none behind.
    let mut lines = client.get(&chosen).await?;
    let mut out: Box<dyn AsyncWrite + Unpin> = if path == Path::new("-") {
        Box::new(tokio::io::stdout())
    } else {
        Box::new(create(path).await?)
    };
    let mut count = 0_u64;
    loop {
        out.write_all(&lines).await?;
        let mut all = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let last = all.clone().next_back();
        count += all.by_ref().count() as u64;
        let Some(last) = last else { break };
        let last: Value = serde_json::from_slice(last).map_err(|_| client.stranger())?;
        let cursor = last["id"].as_str().ok_or_else(|| client.stranger())?;
        lines = client.get(&format!("{chosen}&cursor={}", escaped(cursor))).await?;
    }
    out.flush().await?;
    if path != Path::new("-") {
        screen::line(format_args!("exported {}", time::count(count)))?;
    }
    Ok(())
}

/// Makes a file for nobody else to read: messages may be nobody else's business.
async fn create(path: &Path) -> Result<tokio::fs::File, Failure> {
    let mut options = tokio::fs::OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    options.mode(0o600);
    let opened = options.open(path).await;
    opened.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

async fn import(client: &Client, path: &Path) -> Result<(), Failure> {
    let mut importing = Importing {
        client,
        text: Vec::new(),
        lines: 0,
        before: 0,
        last: "0".to_owned(),
        sum: Sum::default(),
    };
    let read = if path == Path::new("-") {
        importing.all_of(tokio::io::stdin()).await
    } else {
        let opened = tokio::fs::File::open(path).await;
        let opened =
            opened.map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))?;
        importing.all_of(opened).await
    };
    let Sum { added, present, refused } = importing.sum;
    screen::line(format_args!("imported {}", time::count(added)))?;
    if present > 0 {
        screen::line(format_args!("there already {}", time::count(present)))?;
    }
    read?;
    match refused {
        0 => Ok(()),
        refused => Err(Failure::bad_input(format!("{} refused", time::count(refused)))),
    }
}

struct Importing<'a> {
    client: &'a Client,
    /// What is to be sent next, how many lines that are, and how many were sent before.
    text: Vec<u8>,
    lines: u64,
    before: u64,
    /// The last number that an imported message has got.
    last: String,
    sum: Sum,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    added: u64,
    present: u64,
    refused: u64,
}

impl Importing<'_> {
    /// Reads to the end and imports as it reads.
    async fn all_of(&mut self, input: impl AsyncRead + Unpin) -> Result<(), Failure> {
        let mut input = BufReader::new(input);
        loop {
            let read = input.read_until(b'\n', &mut self.text).await;
            let read = read.map_err(|error| Failure::failed(format!("cannot be read: {error}")))?;
            self.lines += u64::from(read > 0);
            if read == 0 || self.lines >= LINES as u64 || self.text.len() >= BYTES {
                self.send().await?;
            }
            if read == 0 {
                return Ok(());
            }
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(());
        }
        let path = format!("/api/v1/parked/import?behind={}", escaped(&self.last));
        let answer = self.client.order(Method::POST, &path, Some(text.into())).await?;
        let number = |name: &str| answer[name].as_u64().unwrap_or_default();
        self.sum.added += number("added");
        self.sum.present += number("present");
        self.sum.refused += number("refused");
        if let Some(last) = answer["last"].as_str() {
            self.last = last.to_owned();
        }
        for error in answer["errors"].as_array().into_iter().flatten() {
            let line = self.before + error["line"].as_u64().unwrap_or_default();
            let words = plain(error["message"].as_str().unwrap_or_default());
            writeln!(std::io::stderr(), "line {line}: {words}")?;
        }
        self.before += std::mem::take(&mut self.lines);
        Ok(())
    }
}
