//! What holds for every source, as a list of named checks.
//!
//! A source is brought by a [`Rig`], which makes fresh queues and says what its kind can do; a check
//! that asks for more than that is left out. Checks run side by side, each on a queue of its own, in
//! whatever time the runtime has: windows are short, lower bounds are exact and upper ones generous.

mod delays;
mod demand;
mod discarding;
mod life;
mod load;
mod order;
mod places;
mod priority;
mod receiving;
mod resting;
mod returning;
mod settling;
mod stage;
mod windows;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::ready;
use futures_util::{FutureExt, StreamExt, stream};
use sluicegate_dispatch::{BoxFuture, Publication, PublishError, Published, Source};

use stage::Stage;
pub use stage::{of_tenant, publication, publication_in, publication_of};

/// Makes queues of one kind of source.
pub trait Rig: Send + Sync {
    /// What this kind of source can do.
    fn abilities(&self) -> Abilities;

    /// A fresh, empty queue whose deliveries stay hidden for this long.
    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>>;
}

/// A queue under test, from both of its ends.
pub trait Subject: Send + Sync {
    /// Where messages come out.
    fn source(&self) -> Arc<dyn Source>;

    /// Puts messages in.
    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        let source = self.source();
        Box::pin(async move { source.publish(messages).await })
    }

    /// Puts a body in as it is, even if it is no message.
    fn publish_raw(&self, body: &str) -> BoxFuture<'_, ()> {
        let raw = Publication { body: body.into(), ..publication("raw") };
        Box::pin(async {
            self.publish(vec![raw]).await.expect("it is stored");
        })
    }

    /// Ends the source without a word, as a crash does, and opens it again: [`Subject::source`] is
    /// another one then.
    fn crash(&mut self) -> BoxFuture<'_, ()>;
}

/// What a kind of source can do beyond the contract, and how long its windows are in the checks.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Abilities {
    /// The visibility window of the checks.
    pub window: Duration,
    /// [`Subject::crash`] works.
    pub crashes: bool,
    /// What was out when it crashed comes back at once, not when its window ends.
    pub crash_frees: bool,
    /// It carries the number of attempts.
    pub counts_attempts: bool,
    /// It counts what is delayed by itself.
    pub counts_delayed: bool,
    /// It knows how many wait as soon as they are published, not only once it was told of them.
    pub counts_at_once: bool,
    /// It hands out in the order in which messages were published.
    pub in_order: bool,
    /// It keeps order across deliveries for the pools it is told.
    pub keeps_order: bool,
    /// It keeps what is noted of deliveries that rest.
    pub keeps_rests: bool,
    /// It hands out by pool and tenant, as far as there is demand.
    pub selects: bool,
    /// A message may say how long its first delivery waits.
    pub schedules: bool,
    /// A message may be of high priority.
    pub prioritises: bool,
    /// A message names its pool.
    pub names_pools: bool,
    /// Ids that were seen shortly before are not stored again.
    pub dedupes: bool,
    /// It finds messages by their ids.
    pub finds: bool,
    /// It takes out messages by their ids.
    pub discards: bool,
    /// How many messages the longest check moves.
    pub many: usize,
    /// How many checks run side by side.
    pub at_once: usize,
}

impl Abilities {
    /// Everything that any source may be able to do.
    #[must_use]
    pub const fn all(window: Duration) -> Self {
        Self {
            window,
            crashes: true,
            crash_frees: true,
            counts_attempts: true,
            counts_delayed: true,
            counts_at_once: true,
            in_order: true,
            keeps_order: true,
            keeps_rests: false,
            selects: false,
            schedules: true,
            prioritises: true,
            names_pools: true,
            dedupes: true,
            finds: true,
            discards: false,
            many: 10_000,
            at_once: 100,
        }
    }

    /// The same, and it hands out by demand and keeps rests.
    #[must_use]
    pub const fn selecting(self) -> Self {
        Self { selects: true, keeps_rests: true, ..self }
    }

    /// The same, and it takes out messages by their ids.
    #[must_use]
    pub const fn discarding(self) -> Self {
        Self { discards: true, ..self }
    }
}

/// One thing that holds.
pub struct Check {
    /// What holds, in words.
    pub name: &'static str,
    /// What a source must be able to do for it.
    needs: fn(&Abilities) -> bool,
    run: fn(Stage) -> BoxFuture<'static, ()>,
}

/// All checks.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    [
        receiving::CHECKS,
        windows::CHECKS,
        delays::CHECKS,
        demand::CHECKS,
        settling::CHECKS,
        life::CHECKS,
        resting::CHECKS,
        order::CHECKS,
        priority::CHECKS,
        load::CHECKS,
        returning::CHECKS,
        discarding::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// Runs all checks that the rig's sources can stand for; answers how many there were.
///
/// # Panics
/// Names all checks that failed, and how.
pub async fn run(rig: &dyn Rig) -> usize {
    let abilities = rig.abilities();
    let fitting: Vec<_> = checks().filter(|check| (check.needs)(&abilities)).collect();
    let mut outcomes = Vec::new();
    for check in &fitting {
        outcomes.push(outcome(rig, check, abilities));
    }
    let outcomes = stream::iter(outcomes).buffered(abilities.at_once.max(1));
    let failed: Vec<String> = outcomes.filter_map(ready).collect().await;
    assert!(
        failed.is_empty(),
        "{} of {} checks failed:\n{}",
        failed.len(),
        fitting.len(),
        failed.join("\n")
    );
    fitting.len()
}

/// What went wrong with a check.
async fn outcome(rig: &dyn Rig, check: &Check, abilities: Abilities) -> Option<String> {
    let run = async {
        let subject = rig.queue(abilities.window).await;
        (check.run)(Stage::new(subject, abilities)).await;
    };
    let outcome = AssertUnwindSafe(run).catch_unwind().await;
    outcome.err().map(|panic| format!("{}: {}", check.name, words(&*panic)))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// A check that needs nothing beyond the contract.
const fn any(_: &Abilities) -> bool {
    true
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
