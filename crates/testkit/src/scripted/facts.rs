//! Everything that was observed, in words.

use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_dispatch::{Fact, Observer};

/// Remembers facts as words.
#[derive(Debug, Default)]
pub struct Facts {
    words: Mutex<Vec<String>>,
}

impl Facts {
    /// Nothing observed yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.words.lock().clone()
    }

    /// Those that begin with a word.
    #[must_use]
    pub fn of(&self, word: &str) -> Vec<String> {
        let starts = |fact: &&String| fact.split(' ').next() == Some(word);
        self.words.lock().iter().filter(starts).cloned().collect()
    }
}

impl Observer for Facts {
    fn observe(&self, fact: &Fact<'_>) {
        self.words.lock().push(words(fact));
    }
}

fn words(fact: &Fact<'_>) -> String {
    match fact {
        Fact::Received { queue, count } => format!("received {queue} {count}"),
        Fact::SourceFailed { queue, doing, cause } => {
            format!("source-failed {queue} {doing}: {cause}")
        }
        Fact::Expired { queue, count } => format!("expired {queue} {count}"),
        Fact::Malformed { queue, why } => format!("malformed {queue} {why}"),
        Fact::Redelivered { id, .. } => format!("redelivered {id}"),
        Fact::Requeued { id, .. } => format!("requeued {id}"),
        Fact::UnknownPool { code, id } => format!("unknown-pool {code} {id}"),
        Fact::UnknownField { field, id, .. } => format!("unknown-field {field} {id}"),
        Fact::PoolFull { pool, count } => format!("pool-full {pool} {count}"),
        Fact::UngroupedSerial { pool } => format!("ungrouped-serial {pool}"),
        Fact::Admitted { pool, message } => format!("admitted {pool} {}", message.id),
        Fact::Started { message, attempt, .. } => format!("started {}#{attempt}", message.id),
        Fact::Called { message, status, .. } => format!("called {} {}", message.id, status.label()),
        Fact::Finished { message, outcome, .. } => {
            format!("finished {} {}", message.id, outcome.label())
        }
        Fact::Panicked { id, what, .. } => format!("panicked {id} {what}"),
        Fact::Rejected { message, severity, .. } => format!("rejected {} {severity}", message.id),
        Fact::Paused { pool, host, after } => format!("paused {pool} {host} {}s", after.as_secs()),
        Fact::Retrying { id, after, reason, .. } => match after {
            Some(after) => format!("retrying {id} {}s {}", after.as_secs(), reason.label()),
            None => format!("blocked {id}"),
        },
        Fact::Parked { id, code, .. } => {
            let id = id.map_or("-", |id| id);
            format!("parked {id} {}", code.label())
        }
        Fact::Settled { id, again, stale, .. } => {
            let id = id.map_or("-", |id| id);
            let how = again.map_or("gone", |reason| reason.label());
            let stale = if *stale { " stale" } else { "" };
            format!("settled {id} {how}{stale}")
        }
        Fact::Breaker { name, open } => format!("breaker {name} {open}"),
        _ => "something-else".to_owned(),
    }
}
