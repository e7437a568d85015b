//! Taking messages in.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use sluicegate_dispatch::Publication;
use sluicegate_executors::http::target_forbidden;
use sluicegate_sources::wire;

use super::Api;
use super::errors::fault;
use super::intake::{LARGE, Query};
use super::problem::{Code, Problem};
use super::reply::reply;
use crate::daemon::NotPublished;
use crate::health::Probe;

/// How many messages one request may bring.
const MOST_MESSAGES: usize = 10_000;

/// `POST /api/v1/messages?queue=Q`
pub(crate) async fn publish(
    State(api): State<Api>,
    query: Query,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let whole = api.intake.whole(&api.cx, body, LARGE).await?;
    let mut publications = wire::parse_many(&whole.bytes, MOST_MESSAGES)?;
    allow(&api, &publications)?;
    if let Some(parent) = headers.get("traceparent").and_then(|parent| parent.to_str().ok()) {
        carry(parent, &mut publications);
    }
    let published = api.daemon.publish(query.get("queue"), publications).await;
    let published = published.map_err(|error| match error {
        // Its queues come with the first configuration.
        NotPublished::UnknownQueue { .. } | NotPublished::NotOpen { .. }
            if !api.daemon.health(Probe::Startup).is_ok() =>
        {
            Problem::new(Code::Starting, "the configuration has not been applied yet")
        }
        error => error.into(),
    })?;
    Ok(reply(StatusCode::ACCEPTED, &json!({ "accepted": published.accepted })))
}

/// Refuses targets that name an address which no call would be made to.
fn allow(api: &Api, publications: &[Publication]) -> Result<(), Problem> {
    let (allowed, own) = (api.daemon.allowed(), api.daemon.own_addresses());
    let forbidden = |(index, publication): (usize, &Publication)| {
        let why = target_forbidden(&publication.message.target, &allowed, own)?;
        Some(fault(index, &format!("mediationTarget is not allowed: {why}")))
    };
    let faults: Vec<_> = publications.iter().enumerate().filter_map(forbidden).collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(Problem::of_messages(Code::ForbiddenTarget, faults))
}

/// Carries the caller's trace on in the messages that have none of their own.
fn carry(parent: &str, publications: &mut [Publication]) {
    let probe = json!({ "id": "t", "mediationTarget": "http://t/", "traceparent": parent });
    // Whether it is one is the wire format's business: what is none is ignored there.
    let read = wire::parse(probe.to_string().as_bytes()).ok();
    let Some(parent) = read.and_then(|incoming| incoming.message.traceparent) else { return };
    for publication in publications {
        if publication.message.traceparent.is_none() {
            publication.message.traceparent = Some(parent.clone());
            publication.body = match with_trace(&publication.body, &parent) {
                Some(body) => body.into(),
                None => wire::render(&publication.message, publication.delay).into(),
            };
        }
    }
}

/// A message as it was written, with a trace as its first field; `None` if it may have one already,
/// also one whose name is written with escapes. It has an id, so another field follows.
fn with_trace(body: &str, parent: &str) -> Option<String> {
    let may_have_one = body.contains("traceparent") || body.contains("\\u00");
    let fields = body.trim_start().strip_prefix('{').filter(|_| !may_have_one)?;
    Some(format!("{{\"traceparent\":\"{parent}\",{fields}"))
}
