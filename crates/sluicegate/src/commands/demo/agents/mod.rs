//! `sluicegate demo --agents`: ten users share four agents, without any set-up.
//!
//! One program plays all parts: a daemon with a pool of agents, its API, the users, and the agents themselves. Nine
//! users have two requests on their way in one session; the tenth sends twenty at once, in a session each.

mod ledger;
mod report;
pub(crate) mod stand_in;

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sluicegate::server::Daemon;
use sluicegate::server::fetch::{Ask, Fetch};
use sluicegate::server::settings::Settings;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::{Instant, interval};

use super::super::front::Front;
use super::super::signals::Signals;
use crate::exit::Failure;
use crate::screen;
use report::{Report, UserReport};

/// How long users go on asking.
const ASKING: Duration = Duration::from_secs(8);
const USERS: usize = 10;
/// How many requests one of them has on its way, and the others.
const EAGER: usize = 20;
const CALM: usize = 2;
/// How long an agent takes: between these, in milliseconds.
const SHORTEST: u32 = 100;
const LONGEST: u32 = 300;
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(is_json: bool) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let folder = tempfile::Builder::new().prefix("sluicegate-demo-").tempdir()?;
    let played = play(is_json, folder.path(), &mut signals).await;
    folder.close()?;
    let report = played?;
    if is_json {
        screen::line(report.json())?;
    } else {
        screen::line(report.table())?;
        for line in report.lines() {
            screen::line(line)?;
        }
    }
    report.fault().map_or(Ok(()), |fault| Err(Failure::failed(fault)))
}

/// Starts everything, lets the users ask, and ends it.
async fn play(is_json: bool, folder: &Path, signals: &mut Signals) -> Result<Report, Failure> {
    let daemon = Daemon::open(settings(folder)?, None).await.map_err(Failure::failed)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let mut front = Front::start(&daemon, listener).await?;
    daemon.begin().await.map_err(Failure::failed)?;
    explain(is_json, &url)?;
    let begun = Instant::now();
    let progress = Progress::new(is_json);
    let ended = tokio::select! {
        users = ask_all(&url, begun + ASKING, &progress) => Ok(users),
        failed = front.ended() => Err(failed),
        name = signals.leave() => Err(Failure::failed(format!("{name}: ended early"))),
        never = progress.show() => match never {},
    };
    let took = begun.elapsed().min(ASKING);
    progress.end();
    let clean = tokio::select! {
        report = daemon.shutdown() => report.abandoned.is_empty() && report.unsettled == 0,
        // Whoever is impatient gets their prompt back: agents end with this process.
        _ = signals.leave() => false,
    };
    front.end().await;
    let (users, left) = (ended?, ledger::processes(folder)?);
    Ok(Report { users, took, faults: ledger::faults(folder)?, left, clean })
}

/// What a user would write into a file, but for the command.
const CONFIGURATION: &str = r#"
[router]
enabled = false

[agents]
enabled = true
mode = "one-shot"
command = ["sluicegate"]
max_workers = 4
max_queue_depth_per_tenant = 30
upstream_rate_limit_rps = 100

[agents.tenant_limits]
max_concurrent_requests = 4
max_queued_requests = 30
rate_limit_requests = 10000
"#;

fn settings(folder: &Path) -> Result<Settings, Failure> {
    let read = Settings::parse("demo.toml", CONFIGURATION, &|_| None);
    let mut settings = read.map_err(Failure::failed)?;
    settings.state.path = folder.join("demo.db");
    let program = std::env::current_exe()?.display().to_string();
    let words = [stand_in::ARGUMENT.to_owned(), folder.display().to_string()];
    settings.agents.command = [program].into_iter().chain(words).collect();
    Ok(settings)
}

fn explain(is_json: bool, url: &str) -> Result<(), Failure> {
    let text = format!(
        "{USERS} users share four agents for {ASKING:?}. Nine have {CALM} requests on their way, both in one session, \
         which\nmust not overlap; one sends {EAGER} at once, and must not get more than the others. The agents are this \
         program,\nwhich takes {SHORTEST} to {LONGEST} ms to answer.\n\n\
         Look at it from another terminal while it runs:\n  \
         sluicegate workers --server {url}\n  \
         sluicegate tenants --server {url}\n  \
         sluicegate ask --tenant web:you --server {url} 'hello'\n"
    );
    if is_json {
        eprintln!("{text}");
        return Ok(());
    }
    Ok(screen::line(text)?)
}

async fn ask_all(url: &str, until: Instant, progress: &Progress) -> Vec<UserReport> {
    let fetch = Fetch::new();
    let users = (0..USERS).map(|user| {
        let fetch = &fetch;
        async move {
            let (name, is_eager) = (format!("web:{}", user + 1), user == 0);
            // The eager one has a session for each of its requests, the others one for both.
            let (sessions, each) = if is_eager { (EAGER, 1) } else { (1, CALM) };
            let sessions = (0..sessions).map(|place| Session {
                name: format!("s-{}-{place}", user + 1),
                user: &name,
                last: Mutex::new(0),
                fetch,
                url,
                until,
                progress,
            });
            let sessions: Vec<Session<'_>> = sessions.collect();
            let ways = sessions.iter().flat_map(|session| (0..each).map(|_| session.go()));
            let parts = join_all(ways).await;
            let failed = parts.iter().map(|part| part.failed).sum();
            let waits = parts.into_iter().flat_map(|part| part.waits).collect();
            let kind = if is_eager { " (eager)" } else { "" };
            UserReport { name: format!("{name}{kind}"), failed, waits }
        }
    });
    join_all(users).await
}

/// A session of a user.
struct Session<'a> {
    name: String,
    user: &'a str,
    /// The number of the last request. Held while the next is asked, so that they come in their order.
    last: Mutex<u32>,
    fetch: &'a Fetch,
    url: &'a str,
    until: Instant,
    progress: &'a Progress,
}

impl Session<'_> {
    /// One request after the other. What is answered after the end is not counted: others ask no more by then.
    async fn go(&self) -> UserReport {
        let mut report = UserReport::default();
        while Instant::now() < self.until {
            match self.ask().await {
                Some(waited) if Instant::now() < self.until => {
                    report.waits.push(waited);
                    self.progress.served();
                }
                Some(_) => {}
                None => report.failed += 1,
            }
        }
        report
    }

    /// How long it waited, if it was answered.
    async fn ask(&self) -> Option<u64> {
        let (number, id) = {
            let mut last = self.last.lock().await;
            *last += 1;
            (*last, self.submit(*last).await?)
        };
        let stream = self.fetched(Method::GET, &format!("/{id}/stream"), None).await?;
        let (_, outcome) =
            std::str::from_utf8(&stream).ok()?.rsplit_once("event: outcome\ndata: ")?;
        let outcome: Value = serde_json::from_str(outcome.trim_end()).ok()?;
        (outcome["text"] == format!("answer {number}")).then(|| outcome["queueWaitMs"].as_u64())?
    }

    async fn submit(&self, number: u32) -> Option<String> {
        let spread = self.name.bytes().map(u32::from).sum::<u32>() * 61 + number * 37;
        let millis = SHORTEST + spread % (LONGEST - SHORTEST);
        let body = json!({
            "tenant": self.user, "sessionId": self.name, "message": format!("{number} {millis}"),
            "wait": false,
        });
        let answer = self.fetched(Method::POST, "", Some(body.to_string().into())).await?;
        let ticket: Value = serde_json::from_slice(&answer).ok()?;
        ticket["requestId"].as_str().map(str::to_owned)
    }

    async fn fetched(&self, method: Method, path: &str, body: Option<Bytes>) -> Option<Bytes> {
        let ask = Ask { method, body, ..Ask::get(PATIENCE, 1 << 20) };
        let answer = self.fetch.ask(&format!("{}/api/v1/requests{path}", self.url), ask).await;
        answer.ok().map(|answer| answer.body)
    }
}

/// How far it is: a bar for somebody who watches, a line a second for a pipe.
struct Progress {
    served: AtomicU32,
    bar: Option<ProgressBar>,
    is_json: bool,
}

impl Progress {
    fn new(is_json: bool) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:40.cyan/black.bright} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("━╸─");
            ProgressBar::new(ASKING.as_millis() as u64).with_style(style)
        });
        Self { served: AtomicU32::new(0), bar, is_json }
    }

    fn served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    async fn show(&self) -> std::convert::Infallible {
        let begun = Instant::now();
        let every = if self.bar.is_some() { 100 } else { 1_000 };
        let mut ticks = interval(Duration::from_millis(every));
        ticks.tick().await;
        let mut said = 0;
        loop {
            ticks.tick().await;
            let served = self.served.load(Ordering::Relaxed);
            let line = format!("{served} requests served");
            match &self.bar {
                Some(bar) => {
                    bar.set_position(begun.elapsed().as_millis() as u64);
                    bar.set_message(line);
                }
                // The same again says nothing.
                None if served == said => {}
                None if self.is_json => eprintln!("{line}"),
                // Whoever does not read any more is told at the end.
                None => screen::line(line).unwrap_or(()),
            }
            said = served;
        }
    }

    fn end(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}
