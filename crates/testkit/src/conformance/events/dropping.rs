//! An append that nobody waits for any more: all of it is there, or none.

use std::sync::Arc;

use futures_util::FutureExt;
use sluicegate_event_store::{Append, Query};

use super::stage::{at_once, event};
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[Check {
    name: "a dropped append is there as a whole or not at all",
    run: |s| Box::pin(dropped(s)),
}];

async fn dropped(stage: Stage) {
    const BATCH: u64 = 20;
    let dropping = |number: u64| {
        let engine = Arc::clone(&stage.engine);
        async move {
            let events = (0..BATCH).map(|n| event("D", &[&format!("d:{number}")], n)).collect();
            let append = Append::new(events, None).expect("they may be stored");
            let mut appending = engine.append(append);
            // As far as it gets at once, and after a few turns of the others.
            for _ in 0..number % 5 {
                if (&mut appending).now_or_never().is_some() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
    };
    at_once((0..40).map(dropping)).await;
    // Whatever was on its way stands before this one, or is never seen.
    let last = stage.append(vec![event("Last", &["last:1"], 0)]).await;
    for number in 0..40_u64 {
        let found = stage.all(Query::tagged("d", number)).await;
        let count = found.len() as u64;
        assert!(count == 0 || count == BATCH, "{count} of {BATCH} of batch {number}");
        let first = found.first().map_or(last, |event| event.position());
        let between = |event: &&sluicegate_event_store::Event| {
            event.position() >= first
                && found.last().is_some_and(|last| event.position() <= last.position())
        };
        let all = stage.all(Query::all()).await;
        assert_eq!(all.iter().filter(between).count() as u64, count, "it stands together");
    }
}
