//! Health and metrics.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::Api;
use super::reply::{reply, typed};
use crate::health::Probe;
use crate::metrics::CONTENT_TYPE;

fn health(api: &Api, probe: Probe) -> Response {
    let health = api.daemon.health(probe);
    let status = if health.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply(status, &health.to_json())
}

/// `GET /health`
pub(crate) async fn overall(State(api): State<Api>) -> Response {
    health(&api, Probe::Overall)
}

/// `GET /health/live`
pub(crate) async fn live(State(api): State<Api>) -> Response {
    health(&api, Probe::Live)
}

/// `GET /health/ready`
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    health(&api, Probe::Ready)
}

/// `GET /health/startup`
pub(crate) async fn startup(State(api): State<Api>) -> Response {
    health(&api, Probe::Startup)
}

/// `GET /metrics`
pub(crate) async fn metrics(State(api): State<Api>) -> Response {
    typed(StatusCode::OK, CONTENT_TYPE, api.daemon.metrics().await)
}
