//! Every route, in one table.

use axum::Router;
use axum::routing::{MethodRouter, delete, get, patch, post};

use super::problem::{Code, Problem};
use super::{Api, messages, operate, probes, stream, views};

/// A route: where it is, and what answers there.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) call: MethodRouter<Api>,
}

fn route(path: &'static str, call: MethodRouter<Api>) -> Route {
    Route { path, call }
}

/// All of them.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        route("/health", get(probes::overall)),
        route("/health/live", get(probes::live)),
        route("/health/ready", get(probes::ready)),
        route("/health/startup", get(probes::startup)),
        route("/metrics", get(probes::metrics)),
        route("/api/v1/messages", post(messages::publish)),
        route("/api/v1/messages/{id}", get(messages::show)),
        route("/api/v1/queues", get(views::queues)),
        route("/api/v1/pools", get(views::pools)),
        route("/api/v1/pools/{code}", patch(operate::change_pool)),
        route("/api/v1/groups", get(views::groups)),
        route("/api/v1/inflight", get(views::in_flight)),
        route("/api/v1/inflight/{id}/ack", post(operate::acknowledge_message)),
        route("/api/v1/tenants", get(views::tenants)),
        route("/api/v1/workers", get(views::workers)),
        route("/api/v1/workers/{id}", delete(operate::end_worker)),
        route("/api/v1/breakers", get(views::breakers)),
        route("/api/v1/breakers/{name}/reset", post(operate::reset_breaker)),
        route("/api/v1/warnings", get(views::warnings)),
        route("/api/v1/warnings/{id}/acknowledge", post(operate::acknowledge_warning)),
        route("/api/v1/warnings/{id}", delete(operate::remove_warning)),
        route("/api/v1/parked", get(views::parked)),
        route("/api/v1/parked/replay", post(operate::replay_many)),
        route("/api/v1/parked/{id}/replay", post(operate::replay)),
        route("/api/v1/parked/{id}", delete(operate::discard)),
        route("/api/v1/config", get(views::config)),
        route("/api/v1/config/reload", post(operate::reload)),
        route("/api/v1/cluster", get(views::cluster)),
        route("/api/v1/stream", get(stream::follow)),
    ]
}

/// What answers requests that were let in.
pub(crate) fn router(api: Api) -> Router {
    let mut router = Router::new();
    for Route { path, call } in routes() {
        router = router.route(path, call);
    }
    router
        .fallback(async || Problem::new(Code::NotFound, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            Problem::new(Code::MethodNotAllowed, "the path has other methods: see Allow")
        })
        .with_state(api)
}
