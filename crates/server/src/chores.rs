//! What a daemon does now and then: each chore is idempotent, takes no input, and ends with the
//! daemon.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::Severity;
use sluicegate_tasks::{Context, TaskGroup};

use crate::daemon::Daemon;
use crate::health::leak;
use crate::incidents;
use crate::replays;
use crate::settings::EventUrl;
use crate::warnings::Code;

/// How many chores there are.
pub(crate) const COUNT: u32 = 14;

/// How often queues that do not answer are looked for.
pub const STALLED_SOURCES: Duration = Duration::from_secs(60);
/// How often leaks are looked for.
pub const LEAKS: Duration = Duration::from_secs(30);
/// How often what was removed is cleaned up.
pub const LEFTOVERS: Duration = Duration::from_secs(10);
const WARNINGS: Duration = Duration::from_secs(60);
const INCIDENTS: Duration = Duration::from_secs(1);
const STATE_FILE: Duration = Duration::from_millis(500);
const EVENTS: Duration = Duration::from_secs(2);
const PARKED: Duration = Duration::from_secs(5);
const REPLAYS: Duration = Duration::from_secs(60);
/// How soon a queue that could not be opened is tried again, at first and at the latest.
const OPEN_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));

/// Starts all of them.
pub(crate) async fn start(daemon: &Daemon, group: &TaskGroup) {
    let sync_interval = daemon.settings().router.sync_interval;
    let router = &daemon.settings().router;
    if router.enabled && !router.config_url.is_empty() {
        every(daemon, group, "config syncer", sync_interval, sync).await;
    }
    every(daemon, group, "stalled source restarter", STALLED_SOURCES, restart_stalled).await;
    every(daemon, group, "leak detector", LEAKS, detect_leaks).await;
    every(daemon, group, "drained pool remover", LEFTOVERS, clean_up).await;
    every(daemon, group, "warning expirer", WARNINGS, expire_warnings).await;
    every(daemon, group, "state file watcher", STATE_FILE, incidents::watch_state).await;
    every(daemon, group, "incident watcher", INCIDENTS, incidents::watch_router).await;
    every(daemon, group, "agent watcher", INCIDENTS, incidents::watch_agents).await;
    if let EventUrl::Postgres(_) = daemon.settings().events.url {
        every(daemon, group, "event store watcher", EVENTS, watch_events).await;
    }
    incidents::recall_parked(daemon).await;
    every(daemon, group, "parked message watcher", PARKED, incidents::watch_parked).await;
    every(daemon, group, "failing message watcher", PARKED, incidents::watch_failing).await;
    every(daemon, group, "replay forgetter", REPLAYS, replays::forget).await;
    let own = daemon.clone();
    // Refused only when the daemon is ending.
    group.submit_detached("replay follower", |cx| replays::follow(own, cx)).await.ok();
    let own = daemon.clone();
    // Refused only when the daemon is ending.
    group.submit_detached("queue opener", |cx| open_missing(own, cx)).await.ok();
}

/// Does a chore every so often, until the daemon ends.
async fn every<F>(
    daemon: &Daemon,
    group: &TaskGroup,
    name: &'static str,
    period: Duration,
    chore: fn(Daemon) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let daemon = daemon.clone();
    let repeat = move |cx: Context| async move {
        while cx.until_interrupted(tokio::time::sleep(period)).await.is_ok() {
            if cx.until_interrupted(chore(daemon.clone())).await.is_err() {
                return;
            }
        }
    };
    // Refused only when the daemon is ending.
    group.submit_detached(name, repeat).await.ok();
}

async fn watch_events(daemon: Daemon) {
    daemon.look_at_events().await;
}

async fn sync(daemon: Daemon) {
    // Who needs to know was told where it failed.
    daemon.sync().await.ok();
}

/// Opens queues that could not be opened, the less often the longer that fails.
async fn open_missing(daemon: Daemon, cx: Context) {
    let (first, longest) = OPEN_AGAIN;
    let mut pause = first;
    while cx.until_interrupted(tokio::time::sleep(pause)).await.is_ok() {
        match cx.until_interrupted(daemon.open_missing()).await {
            Ok(true) => pause = (pause * 2).min(longest),
            Ok(false) => pause = first,
            Err(_) => return,
        }
    }
}

/// Gives every queue that has not answered for a minute a new source.
async fn restart_stalled(daemon: Daemon) {
    for name in daemon.router().stalled_queues() {
        restart(&daemon, &name).await;
    }
}

/// Gives a queue a new source, and says so.
pub async fn restart(daemon: &Daemon, name: &Arc<str>) {
    let words = format!("queue {name} has not answered for a minute: it is restarted");
    daemon.record().raise(Code::ConsumerRestart, Severity::Warning, Arc::clone(name), words);
    if let Err(why) = daemon.restart_queue(name).await {
        let words = format!("queue {name} could not be restarted: {why}");
        let code = Code::ConsumerRestartFailed;
        daemon.record().raise(code, Severity::Critical, Arc::clone(name), words);
    } else {
        daemon.record().resolve(Code::ConsumerRestartFailed, name);
    }
}

async fn detect_leaks(daemon: Daemon) {
    let router = daemon.router();
    if let Some(leak) = leak(router.in_flight(), router.room()) {
        let raised = leak.warning();
        daemon.record().raise(raised.code, raised.severity, raised.subject, raised.message);
    }
}

async fn clean_up(daemon: Daemon) {
    daemon.router().clean_up().await;
    daemon.feel();
}

async fn expire_warnings(daemon: Daemon) {
    daemon.record().warnings.expire();
}
