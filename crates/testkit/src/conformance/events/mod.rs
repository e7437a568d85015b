//! What holds for every engine of the event store, as a list of named checks.
//!
//! An engine is brought by a [`Rig`], which makes fresh stores. Checks run side by side, each on a store of its own, in
//! whatever time the runtime has; on a runtime of several threads they race for real.

mod appending;
mod conditions;
mod cursors;
mod dropping;
mod names;
mod paging;
mod racing;
mod reading;
mod sizes;
mod stage;
mod tailing;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::ready;
use futures_util::{FutureExt, StreamExt, stream};
use sluicegate_event_store::{BoxFuture, Engine};

use stage::Stage;
pub use stage::event;

/// Makes stores of one kind of engine.
pub trait Rig: Send + Sync {
    /// A fresh store without events.
    fn store(&self) -> BoxFuture<'_, Box<dyn Subject>>;

    /// How many checks run side by side.
    fn at_once(&self) -> usize {
        8
    }
}

/// A store under test.
pub trait Subject: Send + Sync {
    /// An engine on it.
    fn engine(&self) -> Arc<dyn Engine>;

    /// Another engine on the same events, as another process has one; `None` where there can be only one.
    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn Engine>>> {
        Box::pin(async { None })
    }

    /// An engine on the same events that appends in a process of its own; `None` where there is no such thing.
    fn in_another_process(&self) -> BoxFuture<'_, Option<Arc<dyn Engine>>> {
        Box::pin(async { None })
    }

    /// Begins a transaction that has nothing to do with events, has written something, and stays open until what is
    /// answered is dropped; `None` where there is no such thing.
    fn unrelated_transaction(&self) -> BoxFuture<'_, Option<Box<dyn Any + Send>>> {
        Box::pin(async { None })
    }
}

/// One thing that holds.
pub struct Check {
    /// What holds, in words.
    pub name: &'static str,
    run: fn(Stage) -> BoxFuture<'static, ()>,
}

/// All checks.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    [
        appending::CHECKS,
        reading::CHECKS,
        paging::CHECKS,
        conditions::CHECKS,
        cursors::CHECKS,
        names::CHECKS,
        sizes::CHECKS,
        racing::CHECKS,
        dropping::CHECKS,
        tailing::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// Runs all checks; answers how many there were.
///
/// # Panics
/// Names all checks that failed, and how.
pub async fn run(rig: &dyn Rig) -> usize {
    let all: Vec<_> = checks().collect();
    let outcomes = stream::iter(all.iter().map(|check| outcome(rig, check)));
    let outcomes = outcomes.buffered(rig.at_once().max(1));
    let failed: Vec<String> = outcomes.filter_map(ready).collect().await;
    let (bad, count) = (failed.len(), all.len());
    assert!(failed.is_empty(), "{bad} of {count} checks failed:\n{}", failed.join("\n"));
    count
}

/// What went wrong with a check.
async fn outcome(rig: &dyn Rig, check: &Check) -> Option<String> {
    let run = async { (check.run)(Stage::new(rig.store().await)).await };
    let outcome = AssertUnwindSafe(run).catch_unwind().await;
    outcome.err().map(|panic| format!("{}: {}", check.name, words(&*panic)))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
