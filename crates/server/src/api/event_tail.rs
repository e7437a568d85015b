//! Following the event store, as server-sent events: all events after a position, and those that come.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, StatusCode};
use sluicegate_event_store::{Invalid, Position, Query as EventQuery, QueryItem, Reader};
use sluicegate_tasks::{Context, OwnedPermit};
use tokio::time::timeout;

use super::Api;
use super::event_shapes::followed;
use super::intake::Query;
use super::problem::{Code, Problem};
use super::reply::typed;

/// How many may follow at once.
pub(crate) const MOST: u32 = 64;
/// After how long without an event a comment is sent, so that whoever is in between stays.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many events are sent together.
const PAGE: usize = 100;
/// Where a client that comes again says how far it has read.
const LAST_EVENT_ID: &str = "last-event-id";

/// One who follows, until it goes, or the daemon or the server ends.
struct Follower {
    reader: Reader,
    daemon: Context,
    server: Context,
    _place: OwnedPermit,
}

/// What is sent next.
enum Step {
    Hello(Follower),
    Go(Follower),
}

/// `GET /api/v1/events/stream`
pub(crate) async fn follow(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, Problem> {
    let after = after(&headers, &query)?;
    let store = api.daemon.events().await?;
    let place = api.tails.try_acquire_owned().map_err(|at_limit| {
        Problem::new(Code::Overloaded, format!("{} follow the events already", at_limit.in_use))
    })?;
    let reader = store.reader(wanted(&query), after).map_err(|invalid| parameter(&invalid))?;
    let follower = Follower {
        reader: reader.tailing().pages_of(PAGE),
        daemon: api.daemon.context().clone(),
        server: api.cx.clone(),
        _place: place,
    };
    let pieces = unfold(Some(Step::Hello(follower)), |step| async move {
        let (piece, next) = step?.next().await?;
        Some((Ok::<_, Infallible>(piece), next))
    });
    let mut response = typed(StatusCode::OK, "text/event-stream", Body::from_stream(pieces));
    // Its end is the end of the connection: there is nothing to idle for.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

/// After which event: what a client that comes again says counts.
fn after(headers: &HeaderMap, query: &Query) -> Result<Position, Problem> {
    let (name, text) = match headers.get(LAST_EVENT_ID) {
        Some(id) if !id.is_empty() => ("Last-Event-ID", id.to_str().unwrap_or("?")),
        _ => ("after", query.get("after").unwrap_or("0")),
    };
    let position = text.parse().map(Position::new);
    position.map_err(|_| {
        let detail = format!("{name} must be a position: a whole number from 0 on");
        Problem::parameter(name, detail)
    })
}

/// Which events: of any of these types, with all of these tags.
fn wanted(query: &Query) -> EventQuery {
    let of = |wanted: &'static str| {
        query.all().filter(move |(name, _)| *name == wanted).map(|(_, value)| value)
    };
    let item = QueryItem::default().types(of("type")).tags(of("tag"));
    if item.is_all() { EventQuery::all() } else { EventQuery::any_of([item]) }
}

/// What may not be asked for, by the parameter that asks for it.
fn parameter(invalid: &Invalid) -> Problem {
    let name = if invalid.field.contains("tags") { "tag" } else { "type" };
    Problem::parameter(name, format!("{name}: {}", invalid.message))
}

impl Step {
    /// The next piece, and what comes after it; `None` at the end.
    async fn next(self) -> Option<(Bytes, Option<Self>)> {
        match self {
            Self::Hello(follower) => {
                Some((Bytes::from_static(b": sluicegate\n\n"), Some(Self::Go(follower))))
            }
            Self::Go(mut follower) => match follower.next().await? {
                Ok(piece) => Some((piece, Some(Self::Go(follower)))),
                // Whoever comes again goes on where this one ends.
                Err(problem) => {
                    let data = problem.to_json();
                    Some((format!("event: problem\ndata: {data}\n\n").into(), None))
                }
            },
        }
    }
}

impl Follower {
    /// The next events; `None` when it is over.
    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        // Looked at first: while much is there to be read, the next page always is.
        if self.server.is_cancelled() || self.daemon.is_cancelled() {
            return None;
        }
        let page = timeout(KEEP_ALIVE, self.reader.next_page());
        let read = self.server.until_interrupted(self.daemon.until_interrupted(page)).await;
        match read.ok()?.ok()? {
            Err(_) => Some(Ok(Bytes::from_static(b": still here\n\n"))),
            Ok(Ok(events)) => Some(followed(&events?)),
            Ok(Err(error)) => Some(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_begin_is_said_by_the_one_who_comes_again() {
        let header = |id: &'static str| {
            HeaderMap::from_iter([(LAST_EVENT_ID.parse().unwrap(), HeaderValue::from_static(id))])
        };
        let (none, query) = (HeaderMap::new(), Query::of(&[("after", "7")]));
        assert_eq!(after(&none, &Query::of(&[])), Ok(Position::START));
        assert_eq!(after(&none, &query), Ok(Position::new(7)));
        assert_eq!(after(&header("9"), &query), Ok(Position::new(9)));
        for wrong in ["-1", "x", "1.0", "99999999999999999999"] {
            assert_eq!(after(&header(wrong), &query).unwrap_err().code, Code::BadRequest);
        }
    }

    #[test]
    fn types_are_or_and_tags_are_and() {
        let asked = Query::of(&[
            ("type", "A"),
            ("tag", "k:v"),
            ("type", "B,C"),
            ("after", "1"),
            ("tag", ""),
        ]);
        assert_eq!(wanted(&asked), EventQuery::types(["A", "B,C"]).tag("k", "v"));
        assert_eq!(wanted(&Query::of(&[])), EventQuery::all());
    }
}
