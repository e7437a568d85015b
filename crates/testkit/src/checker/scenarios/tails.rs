//! Readers that go on while batches large and small are appended, so that some are committed later than others that were
//! begun after them.

use std::sync::Arc;

use sluicegate_event_store::{Engine, Event, Position, Query, Read};
use tokio::sync::watch;

use crate::checker::history::event;
use crate::checker::round::{Expected, Racer, Round};

const WRITERS: u64 = 5;
const APPENDS: u64 = 3;

pub(super) async fn follow(mut round: Round) -> Expected {
    let writing = watch::Sender::new(WRITERS);
    let mut racers: Vec<Racer> = Vec::new();
    for writer in 0..WRITERS {
        let (engine, history) = (round.engine(writer), Arc::clone(&round.history));
        let (mut rng, writing) = (round.rng.split(), writing.clone());
        racers.push(Box::pin(async move {
            for _ in 0..APPENDS {
                let count = if rng.percent(20) { 40 } else { 1 + rng.below(3) };
                let of = |n| event("Written", [format!("w:{writer}"), format!("n:{}", n % 2)]);
                history.append(&*engine, (0..count).map(of).collect(), None).await;
            }
            writing.send_modify(|left| *left -= 1);
        }));
    }
    let queries =
        [Query::all(), Query::tagged("n", 0), Query::tagged("w", 1).or(Query::tagged("w", 3))];
    for (reader, query) in (0..).zip(queries) {
        let (engine, history) = (round.engine(reader), Arc::clone(&round.history));
        let (start, writing) = (round.start, writing.subscribe());
        racers.push(Box::pin(async move {
            let events = read_on(&*engine, query.clone(), start, writing).await;
            history.tailed(query, start, events);
        }));
    }
    round.race(racers).await;
    Expected::Exact
}

/// All that a reader is given until nobody writes any more and nothing is left.
async fn read_on(
    engine: &dyn Engine,
    query: Query,
    start: Position,
    mut writing: watch::Receiver<u64>,
) -> Vec<Event> {
    let mut read = Read::new(query).expect("it may be asked for");
    (read.after, read.limit) = (start, 5);
    let mut seen = Vec::new();
    loop {
        // Asked before reading: what is read then is all there is.
        let is_over = *writing.borrow_and_update() == 0;
        let page = engine.read(read.clone()).await.expect("it can be read");
        if let Some(last) = page.events.last() {
            read.after = page.next.unwrap_or(last.position());
            seen.extend(page.events);
        } else if is_over {
            return seen;
        } else {
            tokio::select! {
                () = engine.changed(read.after) => {}
                // Nobody sends any more: that is the end as well.
                _ = writing.changed() => {}
            }
        }
        tokio::task::yield_now().await;
    }
}
