//! Workers of agents, and what they did.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sluicegate_agents::WorkerView;

use super::Api;
use super::intake::{Query, Segment};
use super::page::page;
use super::problem::{Code, Problem};
use super::reply::{done, reply};
use super::request_shapes::WorkerShape;
use super::shapes::Seen;

/// `GET /api/v1/workers`: none, where no agents run.
pub(crate) async fn list(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let seen = Seen::now();
    let workers = api.daemon.agents().map(|agents| agents.workers()).unwrap_or_default();
    // `worker-10` comes after `worker-9`.
    let key = |view: &WorkerView| format!("{:>24}", view.id);
    let page = page(&query, workers, key, |view| WorkerShape::new(&view, seen))?;
    Ok(reply(StatusCode::OK, &page))
}

/// `DELETE /api/v1/workers/{id}`: kills it, with whatever it runs, and waits until it is gone.
///
/// # Cancel safety
/// Dropped, it is killed even so.
pub(crate) async fn end(State(api): State<Api>, Segment(id): Segment) -> Result<Response, Problem> {
    let unknown = || Problem::new(Code::UnknownWorker, format!("there is no worker {id}"));
    let Ok(agents) = api.daemon.agents() else { return Err(unknown()) };
    if agents.kill(&id).await { Ok(done()) } else { Err(unknown()) }
}

/// `GET /api/v1/agents/metrics`: the paper's object.
pub(crate) async fn metrics(State(api): State<Api>) -> Result<Response, Problem> {
    Ok(reply(StatusCode::OK, &api.daemon.agent_metrics()?))
}
