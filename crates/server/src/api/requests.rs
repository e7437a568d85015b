//! Requests to agents: asking, listing, looking, cancelling.
//!
//! `docs/rules.md#agents-12`.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use sluicegate_agents::{Agents, Pending, RequestError, Tenant};
use sluicegate_tasks::OwnedPermit;

use super::Api;
use super::intake::{LARGE, Query, Segment, discard};
use super::page::page;
use super::problem::{Code, Problem};
use super::reply::reply;
use super::request_ask::{Asked, FIELDS};
use super::request_shapes::{PendingShape, found, replied};
use super::shapes::Seen;
use crate::agents::NoAgents;

/// How many fields that there are not are named for one request.
const MOST_UNKNOWN: usize = 8;

/// The states of what is not over.
const STATES: [&str; 2] = ["queued", "running"];

/// How many may wait for replies at once: half of the connections that are served, so that probes find one.
pub(crate) const MOST_WAITING: u32 = 512;

/// `POST /api/v1/requests`: waits for the reply, unless it is told not to.
///
/// # Cancel safety
/// A caller that goes away before the request is let in cancels it; after that it goes on.
pub(crate) async fn submit(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let agents = match pool(&api) {
        Ok(agents) => agents,
        Err(problem) => {
            discard(body).await;
            return Err(problem);
        }
    };
    let fields = api.intake.object_within(&api.cx, body, LARGE).await?;
    let Asked { ask, waits, unknown } = Asked::read(fields)?;
    if api.daemon.is_ending() {
        return Err(RequestError::ShuttingDown.into());
    }
    // Before it is let in: who is refused has asked for nothing.
    let _place = waits.then(|| place(&api)).transpose()?;
    let trace = headers.get("traceparent").and_then(|parent| parent.to_str().ok());
    let ask = ask.traced(trace);
    let (ticket, outcome) = match waits {
        true => agents.ask(ask).await.map(|(ticket, outcome)| (ticket, Some(outcome)))?,
        false => (agents.submit(ask).await?, None),
    };
    let (request, session) = (&*ticket.request_id, ticket.session_id.to_string());
    for field in unknown.iter().take(MOST_UNKNOWN) {
        api.daemon.record().unknown_field_of_request(field, &FIELDS);
    }
    let Some(outcome) = outcome else {
        let shape = json!({ "requestId": request, "sessionId": session });
        return Ok(reply(StatusCode::ACCEPTED, &shape));
    };
    match &*outcome {
        Ok(answer) => Ok(reply(StatusCode::OK, &replied(request, &session, answer))),
        Err(error) => {
            let problem = Problem::from(error);
            Err(problem.with("requestId", request).with("sessionId", session))
        }
    }
}

/// A place of one who waits.
fn place(api: &Api) -> Result<OwnedPermit, Problem> {
    api.waiting.try_acquire_owned().map_err(|at_limit| {
        let detail = format!(
            "{} wait for replies already: ask with \"wait\": false, and poll",
            at_limit.in_use
        );
        Problem { retry_after: Some(1), ..Problem::new(Code::Overloaded, detail) }
    })
}

/// `GET /api/v1/requests?state=&tenant=`: those that wait or run, oldest first.
pub(crate) async fn list(State(api): State<Api>, query: Query) -> Result<Response, Problem> {
    let state = query.get("state");
    if state.is_some_and(|state| !STATES.contains(&state)) {
        return Err(Problem::parameter("state", "state must be queued or running"));
    }
    let tenant = query.get("tenant").map(Tenant::parse).transpose().map_err(|_| {
        let detail = "tenant must be platform:userId, as in telegram:42";
        Problem::parameter("tenant", detail)
    })?;
    let agents = pool(&api)?;
    let is_meant = |one: &Pending| {
        let found = &one.found;
        state.is_none_or(|state| state == found.stage.name())
            && tenant.as_ref().is_none_or(|tenant| tenant.id() == found.tenant.id())
    };
    let mut pending = agents.pending();
    pending.retain(is_meant);
    // An id says when its request was let in.
    let key = |one: &Pending| one.found.request_id.to_string();
    let seen = Seen::now();
    let show = |one: Pending| {
        let why = agents.why(&one.found.request_id);
        PendingShape::new(&one, why.as_ref(), seen)
    };
    Ok(reply(StatusCode::OK, &page(&query, pending, key, show)?))
}

/// `GET /api/v1/requests/{id}`
pub(crate) async fn show(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let agents = pool(&api)?;
    let request = agents.find(&id).await?.ok_or_else(|| unknown_request(&id))?;
    let why = agents.why(&id);
    Ok(reply(StatusCode::OK, &found(&request, why.as_ref(), Seen::now())))
}

/// `DELETE /api/v1/requests/{id}`: cancels it, wherever it is, and waits until it is over. What is over stays as it is.
///
/// # Cancel safety
/// Dropped, it is cancelled even so.
pub(crate) async fn cancel(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let agents = pool(&api)?;
    agents.cancel(&id);
    agents.wait(&id).await?;
    let request = agents.find(&id).await?.ok_or_else(|| unknown_request(&id))?;
    Ok(reply(StatusCode::OK, &found(&request, None, Seen::now())))
}

/// The pool, if there is one.
pub(super) fn pool(api: &Api) -> Result<Agents, Problem> {
    match api.daemon.agents() {
        Err(NoAgents::Starting) if api.daemon.is_ending() => Err(RequestError::ShuttingDown.into()),
        pool => Ok(pool?),
    }
}

pub(super) fn unknown_request(id: &str) -> Problem {
    let detail = format!("there is no request {id}: it never was, or ended long ago");
    Problem::new(Code::UnknownRequest, detail)
}

#[cfg(test)]
mod tests {
    use sluicegate_tasks::Context;

    use super::*;
    use crate::daemon::Daemon;
    use crate::settings::Settings;

    /// Those who wait leave connections to others.
    #[tokio::test]
    async fn places_of_those_who_wait_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.state.path = folder.path().join("state.db");
        let daemon = Daemon::open(settings, None).await.unwrap();
        let api = Api::new(daemon, ([127, 0, 0, 1], 0).into(), &Context::new()).unwrap();
        let mut held: Vec<OwnedPermit> =
            (0..MOST_WAITING).map(|_| place(&api).ok().unwrap()).collect();
        let refused = place(&api).err().unwrap();
        assert_eq!((refused.code, refused.retry_after), (Code::Overloaded, Some(1)));
        held.pop();
        assert!(place(&api).is_ok());
    }
}
