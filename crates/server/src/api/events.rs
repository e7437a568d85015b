//! The event store over HTTP: appending, asking, projecting.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use sluicegate_event_store::EventStore;

use super::Api;
use super::event_fields::{ToAppend, ToProject, ToRead};
use super::event_pages::{self, reader};
use super::event_shapes::{page, projected};
use super::intake::{LARGE, discard};
use super::problem::Problem;
use super::reply::{reply, typed};

/// `POST /api/v1/events`
///
/// # Cancel safety
/// Of a caller that goes away, the events are appended or not; never some of them.
pub(crate) async fn append(State(api): State<Api>, body: Body) -> Result<Response, Problem> {
    let (store, body) = store(&api, body).await?;
    let whole = api.intake.whole(&api.cx, body, LARGE).await?;
    let ToAppend { events, condition } = ToAppend::read(&whole.bytes)?;
    let position = match condition {
        Some(condition) => store.append_if(events, condition).await?,
        None => store.append(events).await?,
    };
    Ok(reply(StatusCode::CREATED, &json!({ "position": position.get() })))
}

/// `POST /api/v1/events/query`: a part in JSON, or all of them as lines.
pub(crate) async fn query(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let (store, body) = store(&api, body).await?;
    let whole = api.intake.whole(&api.cx, body, LARGE).await?;
    let read = ToRead::read(&whole.bytes)?;
    let place = reader(&api)?;
    if event_pages::wants_lines(&headers) {
        return event_pages::lines(&api.cx, &store, read, place).await;
    }
    let limit = read.part()?;
    let found = store.page(read.query, read.after, limit).await?;
    let shape = page(&found)?;
    Ok(typed(StatusCode::OK, "application/json", event_pages::held(shape, place)))
}

/// `POST /api/v1/events/project`
pub(crate) async fn project(State(api): State<Api>, body: Body) -> Result<Response, Problem> {
    let (store, body) = store(&api, body).await?;
    let whole = api.intake.whole(&api.cx, body, LARGE).await?;
    let ToProject { ids, folds, after } = ToProject::read(&whole.bytes)?;
    let (states, condition) = store.project(folds, after).await?;
    let shape = projected(ids, states, &condition)?;
    Ok(typed(StatusCode::OK, "application/json", shape))
}

/// The store. A body that nobody will read is taken, so that its sender hears why.
async fn store(api: &Api, body: Body) -> Result<(EventStore, Body), Problem> {
    match api.daemon.events().await {
        Ok(store) => Ok((store, body)),
        Err(why) => {
            discard(body).await;
            Err(why.into())
        }
    }
}
