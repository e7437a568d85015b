//! `sluicegate demo`: everything at work, without any set-up.
//!
//! One program plays all parts: a daemon on a temporary state file, its API, a publisher, and an
//! endpoint that fails at times and checks what arrives.

#[cfg(target_os = "linux")]
pub(crate) mod agents;
mod endpoint;
mod ledger;
mod progress;
mod report;
mod script;

use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sluicegate::dispatch::Publication;
use sluicegate::server::Daemon;
use sluicegate::server::settings::Settings;
use sluicegate::sources::wire;
use tokio::net::TcpListener;
use tokio::time::{Instant, interval};

use endpoint::Endpoint;
use ledger::Ledger;
use progress::Progress;
use report::Report;

use super::front::Front;
use super::signals::Signals;
use super::views;
use crate::exit::Failure;
use crate::screen::{self, time};

const EXAMPLES: &str = "\
Examples:
  sluicegate demo
  sluicegate demo --messages 50000 --groups 1000
  sluicegate demo --agents

The exit code is 0 only if every message arrived, and each group in order; with --agents only if every request was
answered, fairly and each session in order, and no process is left.";

/// How often a batch is published, and for how long at least: no faster than this, so that what is
/// measured is the way of a message and not the line in front of it.
const BATCH_EVERY: Duration = Duration::from_millis(40);
const BATCHES: u32 = 100;
const SMALLEST_BATCH: u32 = 50;
/// How many messages may be on their way: on a slow machine the publisher waits for the rest.
const BACKLOG: u32 = 1_000;
/// After how long without a delivery something must be wrong.
const STALLED: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(100);

pub(super) fn command() -> Command {
    let count = |name: &'static str, default: &'static str, most: i64| {
        let number = value_parser!(u32).range(1..=most);
        Arg::new(name).long(name).value_name("N").default_value(default).value_parser(number)
    };
    Command::new("demo")
        .about(
            "See it work, without any set-up: ordered delivery to an endpoint that fails at times",
        )
        .after_help(EXAMPLES)
        .arg(count("messages", "5000", 1_000_000).help("How many messages"))
        .arg(count("groups", "100", 100_000).help("In how many groups, each kept in order"))
        .arg(
            Arg::new("agents")
                .long("agents")
                .action(ArgAction::SetTrue)
                .help("Ten users who share four agents, instead"),
        )
        .arg(views::json_argument().help("Print the result as JSON"))
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Task {
    messages: u32,
    groups: u32,
    json: bool,
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    if given.get_flag("agents") {
        #[cfg(target_os = "linux")]
        return agents::run(given.get_flag("json")).await;
        #[cfg(not(target_os = "linux"))]
        return Err(Failure::failed("agents run on Linux only"));
    }
    let number = |name| given.get_one::<u32>(name).copied().unwrap_or(1);
    let task = Task {
        messages: number("messages"),
        groups: number("groups"),
        json: given.get_flag("json"),
    };
    let mut signals = Signals::new()?;
    // Removed when it is dropped, however this ends.
    let folder = tempfile::Builder::new().prefix("sluicegate-demo-").tempdir()?;
    let played = play(task, folder.path(), &mut signals).await;
    folder.close()?;
    let report = played?;
    if task.json {
        screen::line(report.json())?;
    } else {
        screen::line(report.table())?;
        screen::line(format_args!("delivered {}", report.counts.delivered))?;
        screen::line(format_args!("order violations {}", report.counts.violations))?;
    }
    match report.fault() {
        None => Ok(()),
        Some(fault) => Err(Failure::failed(fault)),
    }
}

/// Starts everything, waits until all is delivered, and ends it.
async fn play(task: Task, folder: &Path, signals: &mut Signals) -> Result<Report, Failure> {
    let ledger = Ledger::new(task.messages, task.groups);
    let endpoint = Endpoint::new(ledger.clone()).await?;
    let daemon = Daemon::open(settings(folder)?, None).await.map_err(Failure::failed)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut front = Front::start(&daemon, listener).await?;
    daemon.begin().await.map_err(Failure::failed)?;
    explain(task, &format!("http://{address}"))?;
    let progress = Progress::new(task.messages, task.json);
    let begun = Instant::now();
    let target = endpoint.url();
    let ended = tokio::select! {
        ended = async {
            tokio::try_join!(
                publish(&daemon, &ledger, &progress, task, &target),
                watch(&daemon, &ledger, &progress, task),
            )
        } => ended.map(drop),
        failed = endpoint.accept() => Err(failed.map_or_else(Failure::from, |never| match never {})),
        failed = front.ended() => Err(failed),
        name = signals.leave() => Err(Failure::failed(format!("{name}: ended early"))),
    };
    let took = begun.elapsed();
    progress.end();
    // What the endpoint was asked before this is answered; nobody is called any more.
    let clean = tokio::select! {
        report = daemon.shutdown() => report.abandoned.is_empty() && report.unsettled == 0,
        // Calls that are still made may need a connection.
        _ = endpoint.accept() => false,
        // Whoever is impatient gets their prompt back: the folder goes in any case.
        _ = signals.leave() => false,
    };
    let parked = daemon.store().parked_count();
    front.end().await;
    ended?;
    Ok(Report {
        messages: task.messages,
        groups: task.groups,
        took,
        parked,
        clean,
        counts: ledger.counts(),
    })
}

/// What a user would write into a file.
const CONFIGURATION: &str = r#"
[server]
drain = "5s"

# A few failures among many calls are no reason to stop calling.
[http.breaker]
volume = 200

[[queue]]
name = "demo"
uri = "sqlite:demo"
max_messages = 100

[[pool]]
code = "DEMO"
concurrency = 32
ordering = "strict"
"#;

fn settings(folder: &Path) -> Result<Settings, Failure> {
    let read = Settings::parse("demo.toml", CONFIGURATION, &|_| None);
    let mut settings = read.map_err(Failure::failed)?;
    settings.state.path = folder.join("demo.db");
    Ok(settings)
}

fn explain(task: Task, address: &str) -> Result<(), Failure> {
    let text = format!(
        "{} messages in {} groups go through a durable queue and a pool of 32 to an endpoint that\n\
         fails at times: it answers 503, asks to come back in a second, is slow, and once asks all to\n\
         pause. Every message must arrive, and each group in its order, whatever the endpoint does.\n\n\
         Look at it from another terminal while it runs:\n  \
         sluicegate status --server {address}\n  \
         sluicegate inflight --server {address}\n",
        time::count(u64::from(task.messages)),
        time::count(u64::from(task.groups)),
    );
    if task.json {
        eprintln!("{text}");
        return Ok(());
    }
    Ok(screen::line(text)?)
}

/// Publishes all messages in batches, while earlier ones are delivered.
async fn publish(
    daemon: &Daemon,
    ledger: &Ledger,
    progress: &Progress,
    task: Task,
    target: &str,
) -> Result<(), Failure> {
    let size = SMALLEST_BATCH.max(task.messages / BATCHES);
    let mut ticks = interval(BATCH_EVERY);
    let mut next = 0;
    while next < task.messages {
        ticks.tick().await;
        if next - ledger.delivered() >= BACKLOG {
            continue;
        }
        let batch = next..task.messages.min(next + size);
        let messages = batch.clone().map(|number| message(number, task.groups, target));
        let messages = messages.collect::<Result<Vec<_>, _>>()?;
        ledger.publishing(batch.clone());
        daemon.publish(Some("demo"), messages).await.map_err(Failure::failed)?;
        next = batch.end;
        progress.published(next);
    }
    Ok(())
}

fn message(number: u32, groups: u32, target: &str) -> Result<Publication, Failure> {
    let (group, place) = (number % groups, number / groups);
    let body = serde_json::json!({
        "id": format!("order-{number}"),
        "poolCode": "DEMO",
        "messageGroupId": format!("customer-{group}"),
        "mediationTarget": target,
        "payload": { "number": number, "group": group, "place": place },
    });
    wire::publication(&body.to_string()).map_err(|malformed| Failure::failed(malformed.why))
}

/// Shows how far it is, until everything is delivered and settled.
async fn watch(
    daemon: &Daemon,
    ledger: &Ledger,
    progress: &Progress,
    task: Task,
) -> Result<(), Failure> {
    let mut ticks = interval(TICK);
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        ticks.tick().await;
        let delivered = ledger.delivered();
        progress.delivered(delivered);
        if delivered > seen {
            (seen, since) = (delivered, Instant::now());
        }
        if since.elapsed() > STALLED {
            return Err(Failure::failed(format!(
                "nothing was delivered for {STALLED:?}; {delivered} of {} were before",
                task.messages
            )));
        }
        let parked = u32::try_from(daemon.store().parked_count()).unwrap_or(u32::MAX);
        if delivered.saturating_add(parked) >= task.messages && is_settled(daemon).await {
            return Ok(());
        }
    }
}

/// Whether the queue has heard of everything that was delivered.
async fn is_settled(daemon: &Daemon) -> bool {
    let depths = daemon.depths().await;
    depths.values().all(|depth| depth.waiting + depth.delayed + depth.out == 0)
}
