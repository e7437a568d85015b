//! What goes wrong and lasts: looked at every second, warned of, and said to be over.

use std::sync::Arc;

use jiff::SignedDuration;
use sluicegate_dispatch::{Phase, Severity};
use sluicegate_sources::sqlite::ParkedFilter;
use tokio::time::Instant;

use crate::daemon::Daemon;
use crate::health::{Change, StateChange};
use crate::time::Timestamp;
use crate::warnings::Code;

/// How long after it was said a blocked group can be seen, at the latest.
const SEEN_AFTER: SignedDuration = SignedDuration::from_secs(1);

/// Looks whether the state file can be written. One that cannot is written to, so that it is known when
/// it can again: nobody else may come to write.
pub(crate) async fn watch_state(daemon: Daemon) {
    let store = daemon.store();
    if daemon.state_trouble().is_some() {
        // What it says is what the store says below.
        store.check().await.ok();
    }
    let change = daemon.inner.state.lock().look(store.failure());
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

/// Looks which brokers are lost or back, and which groups are blocked no more.
pub(crate) async fn watch_router(daemon: Daemon) {
    watch_sources(&daemon);
    watch_groups(&daemon);
}

fn watch_sources(daemon: &Daemon) {
    let embedded = daemon.embedded_queues();
    let views = daemon.router().queue_views().into_iter();
    let runs = views.filter(|view| view.phase == Phase::Running);
    let brokers = runs.filter(|view| !embedded.contains(&*view.name));
    let queues = brokers.map(|view| (view.name, view.health.err())).collect();
    let changes = daemon.inner.outages.lock().look(Instant::now(), queues);
    let record = daemon.record();
    for (queue, change) in changes {
        match change {
            Change::Down { severity, since, trouble } => {
                let secs = since.as_secs();
                let words = format!("queue {queue} has been down for {secs} s: {trouble}");
                record.raise(Code::SourceDown, severity, Arc::clone(&queue), words);
            }
            Change::Back { after } => {
                let secs = after.as_secs();
                tracing::info!(target: "sluicegate", queue = &*queue, secs, "the queue is back");
                record.resolve(Code::SourceDown, &queue);
            }
        }
    }
}

fn watch_groups(daemon: &Daemon) {
    let record = daemon.record();
    for warning in record.warnings.open(Code::GroupBlocked) {
        // It is said before it can be seen.
        if Timestamp::now().duration_since(warning.last_seen) < SEEN_AFTER {
            continue;
        }
        let groups = daemon.router().group_views(Some(&warning.subject));
        if !groups.iter().any(|group| group.blocked) {
            record.resolve(Code::GroupBlocked, &warning.subject);
        }
    }
}

/// Looks which pools have nothing parked any more.
pub(crate) async fn watch_parked(daemon: Daemon) {
    let record = daemon.record();
    for warning in record.warnings.open(Code::Parked) {
        let parked =
            daemon.store().parked(&ParkedFilter::of_pool(Some(&warning.subject)), None, 1).await;
        if parked.is_ok_and(|page| page.items.is_empty()) {
            record.resolve(Code::Parked, &warning.subject);
        }
    }
}
