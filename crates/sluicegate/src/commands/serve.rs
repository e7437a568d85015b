//! `sluicegate serve`: the daemon, from its settings to its last settlement.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluicegate::dispatch::ShutdownReport;
use sluicegate::server::audit::{Who, audit_reload};
use sluicegate::server::health::{Health, Probe};
use sluicegate::server::settings::{LogFormat, Settings};
use sluicegate::server::{ApplyReport, Daemon, NotReloaded, StartError, alert_failed_start, log};
use sluicegate::tasks::{Context, Invalid, Permits, TaskGroup};
use tokio::net::TcpListener;

use super::configuration;
use super::front::Front;
use super::signals::{Signals, Told};
use crate::exit::Failure;
use crate::screen;

/// How long after the first signal a second one is taken for the same.
const AT_ONCE: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  sluicegate serve
  sluicegate serve --config sluicegate.toml
  sluicegate serve --listen 127.0.0.1:9000

Without --config it reads ./sluicegate.toml if there is one; else it serves the embedded queue
`default` with its state in ./sluicegate.db.

SIGHUP reads the file again. SIGTERM and SIGINT end it gracefully: it stops receiving, finishes what
runs, and hands the rest back; a second one, a second later or more, ends it at once.";

pub(super) fn command() -> Command {
    Command::new("serve")
        .about("Run the daemon")
        .after_help(EXAMPLES)
        .arg(configuration::argument())
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS")
                .value_parser(address)
                .help("Where the API listens, instead of server.listen; port 0 takes a free one"),
        )
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| "must be an IP address and a port, as in 127.0.0.1:8080".to_owned())
}

pub(super) async fn run(given: &ArgMatches) -> Result<(), Failure> {
    let file = configuration::file(given);
    let mut settings = configuration::settings(file.as_deref())?;
    if let Some(listen) = given.get_one::<SocketAddr>("listen") {
        let moved = settings.server.clone().listening_on(*listen);
        settings.server = moved.map_err(|unprotected| {
            Failure::bad_input(format!("--listen: {unprotected}; set server.token"))
        })?;
    }
    let format = match settings.log.format {
        LogFormat::Text => log::Format::Text,
        LogFormat::Json => log::Format::Json,
    };
    log::init(format).map_err(Failure::bad_input)?;
    match &file {
        Some(file) => tracing::info!(file = %file.display(), "configuration read"),
        None => tracing::info!("no configuration file: defaults"),
    }
    let json = settings.log.format == LogFormat::Json;
    match serve(settings, file).await {
        Err(failure) if json => Err(failure.logged()),
        ended => ended,
    }
}

async fn serve(settings: Settings, file: Option<PathBuf>) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let said = Said(settings.log.format);
    let scheme = if settings.server.tls.is_some() { "https" } else { "http" };
    let alerts = settings.alerts.clone();
    let (daemon, listener) = match open(settings, file).await {
        Ok(opened) => opened,
        Err(failure) => {
            // There is no daemon yet that could alert.
            alert_failed_start(&alerts, failure.words()).await;
            return Err(failure);
        }
    };
    let bound = listener.local_addr()?;
    daemon.listens_at(bound);
    let mut front = Front::start(&daemon, listener).await?;
    said.listening(&format!("{scheme}://{bound}"));
    tokio::select! {
        begun = daemon.begin() => if let Err(error) = begun {
            // Whoever is to be alerted hears of it.
            drop(daemon.shutdown().await);
            return Err(not_started(error));
        },
        ended = front.ended() => {
            drop(daemon.shutdown().await);
            return Err(ended);
        }
        // Whatever of the first configuration was applied by then is ended like the rest.
        name = signals.end() => {
            tracing::info!("{name}: ending before it began");
            return end(&daemon, front, &mut signals).await;
        }
    }
    said.ready(&daemon.health(Probe::Ready));
    let reloads = Reloads::new().map_err(Failure::failed)?;
    loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::Reload => reload(&daemon, &reloads),
                Told::End(name) => {
                    tracing::info!("{name}: ending; a second signal ends at once");
                    return end(&daemon, front, &mut signals).await;
                }
            },
            ended = front.ended() => {
                tracing::error!("nobody can ask any more: ending");
                drop(daemon.shutdown().await);
                return Err(ended);
            }
        }
    }
}

/// Takes the port and the state file.
async fn open(settings: Settings, file: Option<PathBuf>) -> Result<(Daemon, TcpListener), Failure> {
    let listen = settings.server.listen;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::failed(format!("cannot listen on {listen}: {error}; --listen names another"))
    })?;
    let daemon = Daemon::open(settings, file).await.map_err(not_started)?;
    Ok((daemon, listener))
}

/// What is said on standard output, in the log's format. Whether somebody reads it is not what the
/// daemon lives on.
struct Said(LogFormat);

impl Said {
    fn listening(&self, url: &str) {
        match self.0 {
            LogFormat::Text => screen::line(format_args!("listening on {url}")).ok(),
            LogFormat::Json => said(json!({ "message": "listening", "url": url })),
        };
    }

    /// Its start is over. What is not ready all the same, such as a queue that is not open, is named.
    fn ready(&self, health: &Health) {
        let issues = &health.issues;
        match self.0 {
            LogFormat::Text if issues.is_empty() => screen::line("ready").ok(),
            LogFormat::Text => {
                screen::line(format_args!("ready, but for: {}", screen::plain(&issues.join("; "))))
                    .ok()
            }
            LogFormat::Json if issues.is_empty() => said(json!({ "message": "ready" })),
            LogFormat::Json => said(json!({ "message": "ready", "notReady": issues })),
        };
    }
}

/// A line as the log would write it.
fn said(mut fields: Value) -> Option<()> {
    fields["timestamp"] = Timestamp::now().to_string().into();
    fields["level"] = "INFO".into();
    screen::line(fields).ok()
}

fn not_started(error: StartError) -> Failure {
    match error {
        StartError::Settings(_) => Failure::bad_input(error),
        _ => Failure::failed(error),
    }
}

/// Ends in order: the daemon first, and the API only when there is nothing left to ask about.
async fn end(daemon: &Daemon, front: Front, signals: &mut Signals) -> Result<(), Failure> {
    let before = daemon.record().interrupted();
    let report = tokio::select! {
        report = daemon.shutdown() => report,
        name = second(signals) => {
            let views = daemon.router().pool_views();
            let running: u64 = views.iter().map(|view| u64::from(view.stats.gauges.running)).sum();
            let (unsettled, requests) = (daemon.router().in_flight(), daemon.running_requests());
            tracing::error!(
                "{name}: ended at once; calls cut off: {running}, messages that are delivered again: {unsettled}, \
                 requests to agents that are interrupted: {requests}"
            );
            // Nothing is waited for, neither tasks nor threads.
            std::process::exit(1);
        }
    };
    front.end().await;
    match daemon.record().interrupted() - before {
        0 => {}
        1 => tracing::warn!("1 call was cancelled and will be repeated"),
        calls => tracing::warn!("{calls} calls were cancelled and will be repeated"),
    }
    let ShutdownReport { stuck_queues, abandoned, unsettled } = report;
    if stuck_queues.is_empty() && abandoned.is_empty() && unsettled == 0 {
        tracing::info!("ended; everything was settled or handed back");
        return Ok(());
    }
    let abandoned: Vec<String> = abandoned.into_iter().map(|running| running.name).collect();
    tracing::error!(
        ?stuck_queues,
        ?abandoned,
        unsettled,
        "ended, and not everything was settled: the rest is delivered again"
    );
    Err(Failure::failed("not everything was settled or handed back"))
}

/// Waits for a signal that means it: whoever ends a whole group of processes often sends two, one right after the other.
async fn second(signals: &mut Signals) -> &'static str {
    let first = Instant::now();
    loop {
        let name = signals.end().await;
        if first.elapsed() >= AT_ONCE {
            return name;
        }
        tracing::info!("{name}: ignored, so soon after the first");
    }
}

/// The reloads that run or wait.
struct Reloads {
    group: TaskGroup,
    /// Held by the one that runs.
    runs: Arc<Permits>,
}

impl Reloads {
    fn new() -> Result<Self, Invalid> {
        Ok(Self { group: TaskGroup::new("reloads", 2)?, runs: Arc::new(Permits::new(1)?) })
    }
}

/// Reads the file again, beside everything else. One reload runs and one waits: a third would see
/// nothing that the second does not.
fn reload(daemon: &Daemon, reloads: &Reloads) {
    let (own, runs) = (daemon.clone(), Arc::clone(&reloads.runs));
    let read = move |cx: Context| async move {
        // The daemon may end while it waits.
        let Ok(_runs) = runs.acquire(&cx).await else { return };
        // Interrupted, the daemon ends.
        let Ok(reloaded) = cx.until_interrupted(own.reload()).await else { return };
        let file = own.file().unwrap_or_default();
        audit_reload(Who::Signal("SIGHUP"), &file, reloaded.as_ref());
        match reloaded {
            Ok(report) => say(&report),
            // What is wrong with a file was said when it was read.
            Err(NotReloaded::Problems(_)) => {}
            Err(why) => tracing::error!("not reloaded: {why}"),
        }
    };
    if reloads.group.try_submit(daemon.context(), read).is_err() {
        tracing::info!("a reload is waiting already");
    }
}

/// Says what a reload could not change. What could not be put into effect was said where it failed, and
/// the rest by the audit.
fn say(report: &ApplyReport) {
    for fixed in &report.fixed {
        tracing::warn!("{fixed}");
    }
    tracing::info!(issues = report.issues.len(), "reloaded");
}
