//! The routes of requests to agents, for the table of all routes.

use super::problem::Code;
use super::routes::{Route, What, list, route};
use super::{request_stream, requests, workers};

/// All of them.
pub(super) fn routes() -> Vec<Route> {
    const LOOK: &[Code] =
        &[Code::UnknownRequest, Code::AgentsDisabled, Code::Starting, Code::StorageFailed];
    vec![
        route(
            "POST /api/v1/requests",
            What::Json("Reply"),
            "Asks an agent, and waits for its reply unless told not to",
            requests::submit,
        )
        .body("Request")
        .or(202, What::Json("Ticket"))
        .problems(ASKED),
        list(
            "GET /api/v1/requests",
            "Pending",
            "Requests that wait or run, oldest first",
            &["state", "tenant", "limit", "cursor"],
            requests::list,
        )
        .problems(&[Code::BadRequest, Code::AgentsDisabled, Code::Starting]),
        route(
            "GET /api/v1/requests/{id}",
            What::Json("RequestState"),
            "How a request stands, or what came of it",
            requests::show,
        )
        .problems(LOOK),
        route(
            "DELETE /api/v1/requests/{id}",
            What::Json("RequestState"),
            "Cancels a request that is not over",
            requests::cancel,
        )
        .problems(LOOK),
        route(
            "GET /api/v1/requests/{id}/stream",
            What::Text("text/event-stream"),
            "Follows a request to its end, as server-sent events",
            request_stream::follow,
        )
        .problems(LOOK),
        route(
            "GET /api/v1/agents/metrics",
            What::Json("AgentMetrics"),
            "What the pool of agents did in the last minute, and how it stands",
            workers::metrics,
        )
        .problems(&[Code::AgentsDisabled, Code::Starting]),
    ]
}

/// What asking an agent may meet with.
const ASKED: &[Code] = &[
    Code::MalformedJson,
    Code::InvalidField,
    Code::AgentsDisabled,
    Code::SessionForbidden,
    Code::TenantQueueFull,
    Code::RateLimited,
    Code::GlobalQueueFull,
    Code::QueueTimeout,
    Code::ExecutionTimeout,
    Code::WorkerCrash,
    Code::AgentError,
    Code::BadOutput,
    Code::OutputLimit,
    Code::Cancelled,
    Code::Interrupted,
    Code::Starting,
    Code::StorageFailed,
    Code::StorageFull,
];
