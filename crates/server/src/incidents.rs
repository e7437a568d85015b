//! What goes wrong and lasts: looked at every second, warned of, and said to be over.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use sluicegate_dispatch::{Finds, Phase, Severity};
use tokio::time::{Instant, timeout};

use crate::daemon::Daemon;
use crate::event_log;
use crate::failing::{self, Due, FailingMessage, Told};
use crate::health::{Change, StateChange};
use crate::time::Timestamp;
use crate::warnings::{Code, blocked_words, parked_words, plain};

/// How long after it was said a blocked group can be seen, at the latest.
const SEEN_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// How long a source has to say whether it has a message.
const LOOK: Duration = Duration::from_secs(2);

/// Looks whether the state file can be written. One that cannot is written to, so that it is known when
/// it can again: nobody else may come to write.
pub(crate) async fn watch_state(daemon: Daemon) {
    look_at_state(&daemon);
    if daemon.inner.state.lock().trouble().is_some() {
        // What it says is what the store says the next time.
        daemon.store().check().await.ok();
    }
}

fn look_at_state(daemon: &Daemon) {
    let change = daemon.inner.state.lock().look(daemon.store().failure());
    let record = daemon.record();
    let path = daemon.settings().state.path.display().to_string();
    match change {
        Some(StateChange::Failed(why)) => {
            let words = format!("the state file cannot be written: {why}");
            record.raise(Code::StateFailed, Severity::Critical, path, words);
        }
        Some(StateChange::Works) => {
            record.resolve(Code::StateFailed, &path);
        }
        None => {}
    }
}

/// Looks which brokers are lost or back, and which groups are stuck or blocked no more.
pub(crate) async fn watch_router(daemon: Daemon) {
    watch_sources(&daemon);
    watch_groups(&daemon);
    watch_stuck(&daemon);
    watch_routing(&daemon);
}

/// What was sent to a pool that was not there is over when it is.
fn watch_routing(daemon: &Daemon) {
    for warning in daemon.record().warnings.open(Code::Routing) {
        if daemon.router().pool(&warning.subject).is_some() {
            daemon.record().resolve(Code::Routing, &warning.subject);
        }
    }
}

fn due(daemon: &Daemon) -> Due {
    daemon.record().failing.due(Instant::now(), |code| daemon.router().pool(code))
}

fn watch_stuck(daemon: &Daemon) {
    let due = due(daemon);
    let groups = daemon.inner.stuck_groups.lock().look(&due.groups);
    let pools = daemon.inner.failing_pools.lock().look(&due.pools);
    let record = daemon.record();
    for (code, changes) in [(Code::GroupStuck, groups), (Code::MessagesFailing, pools)] {
        for change in changes {
            match change {
                failing::Change::On { subject, words } => {
                    record.raise(code, Severity::Warning, subject, words);
                }
                failing::Change::Over { subject } => {
                    record.resolve(code, &subject);
                }
            }
        }
    }
}

/// Looks whether messages that fail are still there: one that is in no pool may have left its queue without a word,
/// with the queue or by somebody else's hand.
pub(crate) async fn watch_failing(daemon: Daemon) {
    let Due { groups, pools, forgotten } = due(&daemon);
    for FailingMessage { queue, id, .. } in forgotten {
        daemon.record().failing.over(&queue, &id);
    }
    let heads = groups.into_iter().map(|stuck| stuck.head).take(Told::MOST);
    let others = pools.into_iter().flat_map(|pool| [vec![pool.first], pool.others].concat());
    for FailingMessage { queue, id, is_forgotten, .. } in heads.chain(others.take(Told::MOST)) {
        if daemon.router().message(&id).is_some() {
            continue;
        }
        let is_gone = match daemon.router().source(&queue) {
            None => true,
            Some(source) if source.profile().finds == Finds::All => {
                matches!(timeout(LOOK, source.find(&id)).await, Ok(Ok(None)))
            }
            Some(_) => is_forgotten,
        };
        // It may have been received while it was looked for.
        if is_gone && daemon.router().message(&id).is_none() {
            daemon.record().failing.over(&queue, &id);
        }
    }
}

fn watch_sources(daemon: &Daemon) {
    let embedded = daemon.embedded_queues();
    let views = daemon.router().queue_views().into_iter();
    let runs = views.filter(|view| view.phase == Phase::Running);
    let brokers = runs.filter(|view| !embedded.contains(&*view.name));
    let events = daemon.event_state().map(|events| (events.name, events.trouble));
    let queues = brokers.map(|view| (view.name, view.health.err())).chain(events).collect();
    let changes = daemon.inner.outages.lock().look(Instant::now(), queues);
    let record = daemon.record();
    for (queue, change) in changes {
        match change {
            Change::Down { severity, since, trouble } => {
                let secs = since.as_secs();
                let what = if is_events(&queue) { "the" } else { "queue" };
                let words = format!("{what} {queue} has been down for {secs} s: {trouble}");
                record.raise(Code::SourceDown, severity, Arc::clone(&queue), words);
            }
            Change::Back { after } => {
                let secs = after.as_secs();
                tracing::info!(target: "sluicegate", queue = &*queue, secs, "the queue is back");
                record.resolve(Code::SourceDown, &queue);
            }
            Change::Gone => {
                record.resolve(Code::SourceDown, &queue);
            }
        }
    }
}

/// Whether it is the event store, and no queue.
fn is_events(name: &str) -> bool {
    name == event_log::NAME
}

fn watch_groups(daemon: &Daemon) {
    let record = daemon.record();
    for warning in record.warnings.open(Code::GroupBlocked) {
        // It is said before it can be seen.
        if Timestamp::now().duration_since(warning.last_seen) < SEEN_AFTER {
            continue;
        }
        let groups = daemon.router().group_views(Some(&warning.subject));
        let blocked = groups.iter().filter(|group| group.blocked);
        let words: Vec<String> =
            blocked.map(|group| blocked_words(&group.pool, &group.head)).collect();
        match words.first() {
            None => {
                record.resolve(Code::GroupBlocked, &warning.subject);
            }
            // The one that is named was helped: another one is not.
            Some(other) if !words.iter().any(|words| *plain(words) == *warning.message) => {
                record.warnings.reword(warning.id, other);
            }
            Some(_) => {}
        }
    }
}

/// A worker that did not end is over when none is left that does not.
pub(crate) async fn watch_agents(daemon: Daemon) {
    let stuck = || daemon.agents().map_or(0, |pool| pool.metrics().workers_stuck);
    for warning in daemon.record().warnings.open(Code::WorkerStuck) {
        let is_new = Timestamp::now().duration_since(warning.last_seen) < SEEN_AFTER;
        if !is_new && stuck() == 0 {
            daemon.record().resolve(Code::WorkerStuck, &warning.subject);
        }
    }
}

/// Warns of what was parked before this start: it lasts, and nobody knows who has heard of it.
pub(crate) async fn recall_parked(daemon: &Daemon) {
    // If it cannot be read, the state file is what is warned of.
    for pool in daemon.store().exhausted_pools().await.unwrap_or_default() {
        let words = format!("messages of pool {pool} are parked: {}", parked_words(&pool));
        daemon.record().raise(Code::Parked, Severity::Error, pool, words);
    }
}

/// Looks which pools have nothing parked any more that was warned of.
pub(crate) async fn watch_parked(daemon: Daemon) {
    let record = daemon.record();
    let open = record.warnings.open(Code::Parked);
    if open.is_empty() {
        return;
    }
    let Ok(parked) = daemon.store().exhausted_pools().await else { return };
    for warning in open {
        // One that came since is not in what was read.
        let is_new = Timestamp::now().duration_since(warning.last_seen) < SEEN_AFTER;
        if !is_new && !parked.iter().any(|pool| **pool == *warning.subject) {
            record.resolve(Code::Parked, &warning.subject);
        }
    }
}
