//! `sluicegate check`: everything that is wrong with a configuration, before it is used.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use futures_util::future::join_all;
use sluicegate::dispatch::Ordering;
use sluicegate::events::postgres::OpenError as NotReady;
use sluicegate::server::brokers::probe;
use sluicegate::server::fetch::Fetch;
use sluicegate::server::settings::{EventUrl, Settings};
use sluicegate::server::sync::ConfigSyncer;
use sluicegate::server::{
    ONE_AT_A_TIME, agent_doubts, event_order_doubts, event_target_faults, probe_events,
    program_fault,
};
use sluicegate::sources::OpenError;
use sluicegate::tasks::Context;
use tokio::time::timeout;

use super::configuration;
use crate::exit::Failure;
use crate::screen;

const EXAMPLES: &str = "\
Examples:
  sluicegate check
  sluicegate check --config /etc/sluicegate.toml --offline

Each problem is shown with its file, line and key, and what would be right. Brokers are asked too: one
that refuses is a problem, one that is not there is only named. Exit code 2 if there is any problem.";

/// How long somebody who is asked may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How every file of SQLite begins.
const HEADER: &[u8] = b"SQLite format 3\0";

pub(super) fn command() -> Command {
    Command::new("check")
        .about("Validate a configuration: every problem, and what would be right")
        .after_help(EXAMPLES)
        .arg(configuration::argument())
        .arg(
            Arg::new("offline")
                .long("offline")
                .action(ArgAction::SetTrue)
                .help("Ask nobody, neither brokers nor configuration endpoints, and do not look for the program of agents"),
        )
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let file = configuration::file(given);
    let settings = configuration::settings(file.as_deref())?;
    let name = file.as_deref().map_or("defaults".into(), Path::to_string_lossy);
    let path = &settings.state.path;
    writable(path).map_err(|error| {
        Failure::bad_input(format!(
            "{name}: state.path: {} cannot be used: {error}",
            path.display()
        ))
    })?;
    let faults = event_target_faults(&settings);
    if !faults.is_empty() {
        let faults: Vec<String> = faults.iter().map(|fault| format!("{name}: {fault}")).collect();
        return Err(Failure::bad_input(faults.join("\n")));
    }
    if !given.get_flag("offline") {
        program(&settings, &name)?;
        endpoints(&settings).await?;
        queues(&settings).await?;
        events(&settings).await?;
    }
    let mut doubts = event_order_doubts(&settings);
    if settings.agents.enabled {
        doubts.extend(agent_doubts(&settings.agents));
    }
    for doubt in doubts {
        eprintln!("{name}: warning: {}", screen::plain(&doubt));
    }
    Ok(screen::line(format_args!("{name}: ok\n{}", summary(&settings)))?)
}

/// Whether the state file can be opened or made. Nothing of it is changed.
fn writable(path: &Path) -> io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return room_for(path),
        Err(error) => return Err(error),
    };
    let mut beginning = Vec::new();
    (&mut file).take(HEADER.len() as u64).read_to_end(&mut beginning)?;
    // An empty file becomes one when it is first used.
    if beginning.is_empty() || beginning == HEADER {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidData, "it is no state file, but something else"))
}

/// Whether a file could be made there: another one is made beside it, for a moment.
fn room_for(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let words = format!("there is no folder {}", folder.display());
        return Err(io::Error::new(ErrorKind::NotFound, words));
    }
    tempfile::tempfile_in(folder).map(drop::<File>)
}

/// Whether the program that agents run is there.
fn program(settings: &Settings, file: &str) -> Result<(), Failure> {
    match program_fault(&settings.agents).filter(|_| settings.agents.enabled) {
        Some(fault) => Err(Failure::bad_input(format!("{file}: {fault}"))),
        None => Ok(()),
    }
}

/// Asks every endpoint for its document, and says all that is wrong with them.
async fn endpoints(settings: &Settings) -> Result<(), Failure> {
    if !settings.router.enabled || settings.router.config_url.is_empty() {
        return Ok(());
    }
    let fetch = Fetch::new();
    let mut faults = Vec::new();
    for url in &settings.router.config_url {
        let mut once = settings.router.clone();
        once.config_url = vec![url.clone()];
        once.sync_attempts = 1;
        let cx = Context::new().with_timeout(PATIENCE);
        match ConfigSyncer::new(fetch.clone(), &once).documents(&cx, |_| {}).await {
            Ok(documents) => {
                let issues = documents.iter().flat_map(|document| &document.issues);
                faults.extend(
                    issues.map(|fault| format!("{url}: {}: {}", fault.path, fault.message)),
                );
            }
            Err(failed) if cx.check().is_err() => {
                faults.push(format!("{} did not answer within {PATIENCE:?}", failed.url));
            }
            Err(failed) => faults.push(format!("{} {}", failed.url, failed.why)),
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::failed(faults.join("\n"))) }
}

/// Asks the broker of every queue. One that refuses is a fault; one that is not there may only be out
/// of reach from here.
async fn queues(settings: &Settings) -> Result<(), Failure> {
    if !settings.router.enabled {
        return Ok(());
    }
    let probes =
        settings.queues.iter().map(|queue| async move { (queue, probe(&queue.uri).await) });
    let mut faults = Vec::new();
    for (queue, probed) in join_all(probes).await {
        let words = |error: &OpenError| format!("queue {} ({}): {error}", queue.name, queue.uri);
        match probed {
            Ok(()) => {}
            Err(error @ OpenError::Unreachable(_)) => {
                screen::line(format_args!("{}; not checked", words(&error)))?;
            }
            Err(error) => faults.push(words(&error)),
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::bad_input(faults.join("\n"))) }
}

/// Asks the database of the event store, if it is in one.
async fn events(settings: &Settings) -> Result<(), Failure> {
    let url = &settings.events.url;
    let late = |_| Err(NotReady::Unreachable(format!("it did not answer within {PATIENCE:?}")));
    match timeout(PATIENCE, probe_events(url)).await.unwrap_or_else(late) {
        Ok(()) => Ok(()),
        Err(error @ NotReady::Unreachable(_)) => {
            Ok(screen::line(format_args!("events ({url}): {error}; not checked"))?)
        }
        Err(error) => Err(Failure::bad_input(format!("events ({url}): {error}"))),
    }
}

/// What the configuration amounts to, in a few lines.
fn summary(settings: &Settings) -> String {
    let queues = settings.queues.iter().map(|queue| format!("{} ({})", queue.name, queue.uri));
    let pools = settings.pools.iter().map(|pool| {
        format!("{} ({} at once, {} order)", pool.code, pool.concurrency, order(pool.ordering))
    });
    let list = |items: Vec<String>, none: &str| match items.len() {
        0 => none.to_owned(),
        _ => items.join(", "),
    };
    let mut lines = vec![
        format!("  listens on  {}", settings.server.listen),
        format!("  state in    {}", settings.state.path.display()),
        format!("  queues      {}", list(queues.collect(), "from the configuration endpoints")),
        format!("  pools       {}", list(pools.collect(), "DEFAULT-POOL alone")),
    ];
    let urls: Vec<String> = settings.router.config_url.iter().map(ToString::to_string).collect();
    if settings.agents.enabled {
        let program = settings.agents.command.first().map_or("", String::as_str);
        let at_once = match settings.agents.serial {
            true => ONE_AT_A_TIME.to_owned(),
            false => format!("{} at once", settings.agents.max_workers),
        };
        lines.push(format!("  agents      {program} ({at_once})"));
    }
    if settings.events.url != EventUrl::State {
        lines.push(format!("  events in   {}", settings.events.url));
    }
    if !urls.is_empty() {
        lines.push(format!("  synced from {}", urls.join(", ")));
    }
    lines.join("\n")
}

const fn order(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Batch => "batch",
        Ordering::Strict => "strict",
        Ordering::None => "no",
    }
}
