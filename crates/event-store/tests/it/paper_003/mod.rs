//! Paper 003: what bounds projections, scenario by scenario.
//!
//! `docs/rules.md#events-5`.

mod limits;
mod load;
mod release;
mod retries;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use sluicegate_event_store::{
    AppendCondition, EventStore, Position, ProjectError, ProjectionStream, Query, Settings,
    TooManyProjections, fold,
};

use crate::fill;
use crate::gated::Gated;

/// A store with events on an engine whose reads can be held, and at most so many projections.
async fn limited(limit: u32) -> (Gated, EventStore) {
    let engine = Gated::new();
    let settings = Settings { max_concurrent_projections: limit, ..Settings::default() };
    let store = EventStore::with_settings(engine.clone(), settings).unwrap();
    fill(&store, 10).await;
    (engine, store)
}

type Projecting =
    Pin<Box<dyn Future<Output = Result<(u64, AppendCondition), ProjectError>> + Send>>;

fn project(store: &EventStore) -> Projecting {
    store.project(fold::count(Query::all()), Position::START).into_future()
}

async fn stream(store: &EventStore) -> Result<ProjectionStream<u64>, ProjectError> {
    store.project_stream(fold::count(Query::all()), Position::START).await
}

/// Polls it once: it has begun then, or been refused.
async fn begin(projecting: &mut Projecting) -> Poll<Result<(u64, AppendCondition), ProjectError>> {
    poll_fn(|cx| Poll::Ready(projecting.as_mut().poll(cx))).await
}

/// So many that are on their way and go on no further.
async fn held(store: &EventStore, count: u32) -> Vec<Projecting> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut projecting = project(store);
        assert!(begin(&mut projecting).await.is_pending());
        held.push(projecting);
    }
    held
}

fn too_many(limit: u32, in_use: u32, op: &'static str) -> ProjectError {
    ProjectError::TooManyProjections(TooManyProjections { limit, in_use, op })
}

fn running(store: &EventStore) -> u32 {
    store.stats().projections_running
}
