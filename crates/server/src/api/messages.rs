//! Taking messages in, and saying where one is and why.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use sluicegate_dispatch::{
    Found, FoundState, MessageState, Publication, Reason, Source, WhyWaiting,
};
use sluicegate_executors::http::target_forbidden;
use sluicegate_sources::sqlite::ParkedItem;
use sluicegate_sources::wire;

use super::Api;
use super::errors::fault;
use super::intake::{LARGE, Query, Segment};
use super::problem::{Code, Problem};
use super::reply::reply;
use super::shapes::{MessageShape, Seen, Whereabouts};
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
        NotPublished::UnknownQueue { .. } if !api.daemon.health(Probe::Startup).is_ok() => {
            Problem::new(Code::Starting, "the configuration has not been applied yet")
        }
        error => error.into(),
    })?;
    Ok(reply(StatusCode::ACCEPTED, &json!({ "accepted": published.accepted })))
}

/// Refuses targets that name an address which no call would be made to.
fn allow(api: &Api, publications: &[Publication]) -> Result<(), Problem> {
    let allowed = api.daemon.allowed();
    let forbidden = |(index, publication): (usize, &Publication)| {
        let why = target_forbidden(&publication.message.target, &allowed)?;
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

/// `GET /api/v1/messages/{id}`
pub(crate) async fn show(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let mut found = here(&api, &id).await;
    if !matches!(found, Ok(Some(_)))
        && let Some(item) = parked(&api, &id).await?
    {
        // Wherever else it could not be looked for, it is here.
        found = Ok(Some(MessageShape::of_parked(&item)));
    }
    if matches!(found, Ok(None)) {
        // It may have been replayed between the two looks.
        found = here(&api, &id).await;
    }
    match found? {
        Some(shape) => Ok(reply(StatusCode::OK, &shape)),
        None => {
            let detail = format!("there is no message {id}: it is gone for good, or never was");
            Err(Problem::new(Code::UnknownMessage, detail))
        }
    }
}

/// A message that is in flight or in a queue.
async fn here(api: &Api, id: &str) -> Result<Option<MessageShape>, Problem> {
    if let Some(view) = api.daemon.router().message(id) {
        return Ok(Some(MessageShape::of_view(&view, Seen::now())));
    }
    let mut trouble = None;
    for queue in api.daemon.router().queue_views() {
        let Some(source) = api.daemon.router().source(&queue.name) else { continue };
        match source.find(id).await {
            Ok(Some(found)) => return stored(api, &queue.name, &*source, &found).await,
            Ok(None) => {}
            Err(error) => trouble = Some(error),
        }
    }
    // Only who could look everywhere may say that it is nowhere.
    trouble.map_or(Ok(None), |error| Err(error.into()))
}

async fn stored(
    api: &Api,
    queue: &str,
    source: &dyn Source,
    found: &Found,
) -> Result<Option<MessageShape>, Problem> {
    let Ok(incoming) = wire::parse(found.body.as_bytes()) else { return Ok(None) };
    let message = &incoming.message;
    let (state, why) = match &found.state {
        FoundState::Delayed { rest, reason } => ("delayed", WhyWaiting::delayed(*reason, *rest)),
        FoundState::Behind(head) => ("waiting", behind(api, source, head).await),
        FoundState::Out => ("waiting", WhyWaiting::new("ready", "it is being taken in", None)),
        _ => ("waiting", ready(api, &message.pool)),
    };
    let of = Whereabouts {
        message,
        queue,
        pool: Some(&message.pool),
        state,
        attempts: found.attempts,
        age: found.age,
        why: Some(&why),
    };
    Ok(Some(MessageShape::new(&of, Seen::now())))
}

/// Why a message waits in its queue behind the head of its group.
async fn behind(api: &Api, source: &dyn Source, head: &Arc<str>) -> WhyWaiting {
    let retries = |rest: Option<Duration>| {
        WhyWaiting::new("group_retrying", format!("group head {head} retries"), rest)
    };
    if let Some(view) = api.daemon.router().message(head) {
        let rest = view.why.as_ref().and_then(|why| why.rest);
        return match (view.state, view.why) {
            (MessageState::Delayed, _) => retries(rest),
            (_, Some(why)) if why.reason == "group_blocked" => {
                WhyWaiting::new("group_blocked", format!("group head {head} is blocked"), None)
            }
            (MessageState::Running, _) => {
                WhyWaiting::new("group_busy", format!("group head {head} is running"), None)
            }
            _ => WhyWaiting::new("group_busy", format!("group head {head} is before it"), None),
        };
    }
    match source.find(head).await {
        Ok(Some(Found { state: FoundState::Delayed { rest, reason }, .. })) => match reason {
            Reason::Scheduled => {
                let detail = format!("group head {head} is to be delivered later, first");
                WhyWaiting::new("group_retrying", detail, Some(rest))
            }
            _ => retries(Some(rest)),
        },
        _ => WhyWaiting::new("group_busy", format!("group head {head} is before it"), None),
    }
}

/// Why a message waits in its queue although it could be received.
fn ready(api: &Api, pool: &str) -> WhyWaiting {
    if api.daemon.is_ending() {
        return WhyWaiting::new("draining", "the daemon is shutting down", None);
    }
    let views = api.daemon.router().pool_views();
    let busy = views.iter().find(|view| &*view.settings.code == pool).and_then(|view| {
        let gauges = &view.stats.gauges;
        (gauges.running >= gauges.limit).then_some((gauges.running, gauges.limit))
    });
    match busy {
        Some((running, limit)) => {
            WhyWaiting::new("pool_full", format!("pool {pool} at {running} of {limit}"), None)
        }
        None => WhyWaiting::new("ready", "it waits in its queue to be received", None),
    }
}

/// A message that was put aside, by its own id.
async fn parked(api: &Api, id: &str) -> Result<Option<ParkedItem>, Problem> {
    if api.daemon.store().parked_count() == 0 {
        return Ok(None);
    }
    Ok(api.daemon.store().parked_message(id).await?)
}
