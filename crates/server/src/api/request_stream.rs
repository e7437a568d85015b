//! Following a request, as server-sent events: how it stands, what the agent says on the way, what came of it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sluicegate_agents::{Follow, Followed};
use sluicegate_tasks::{Context, OwnedPermit};
use tokio::time::timeout;

use super::Api;
use super::intake::Segment;
use super::problem::{Code, Problem};
use super::reply::typed;
use super::request_shapes::outcome;
use super::requests::{pool, unknown_request};

/// How many may follow requests at once, beside those who follow the stream of all that happens.
pub(crate) const MOST: u32 = 256;
/// After how long without an event a comment is sent, so that whoever is in between stays.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One who follows a request to its end, also while the daemon ends: the server ends after it.
struct Follower {
    follow: Follow,
    request: String,
    session: String,
    server: Context,
    _place: OwnedPermit,
}

/// `GET /api/v1/requests/{id}/stream`
pub(crate) async fn follow(
    State(api): State<Api>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let agents = pool(&api)?;
    let found = agents.find(&id).await?.ok_or_else(|| unknown_request(&id))?;
    let follow = agents.follow(&id).await?.ok_or_else(|| unknown_request(&id))?;
    let place = api.followers.try_acquire_owned().map_err(|at_limit| {
        Problem::new(Code::Overloaded, format!("{} follow requests already", at_limit.in_use))
    })?;
    let follower = Follower {
        follow,
        request: id,
        session: found.session_id.to_string(),
        server: api.cx.clone(),
        _place: place,
    };
    let pieces = unfold(follower, |mut follower| async move {
        let piece = follower.next().await?;
        Some((Ok::<_, Infallible>(piece), follower))
    });
    let mut response = typed(StatusCode::OK, "text/event-stream", Body::from_stream(pieces));
    // Its end is the end of the connection: there is nothing to idle for.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

impl Follower {
    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        let next = timeout(KEEP_ALIVE, self.follow.next());
        let heard = match self.server.until_interrupted(next).await.ok()? {
            Ok(heard) => heard?,
            Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
        };
        Some(match heard {
            Followed::Stage(stage) => {
                piece("stage", &json!({ "requestId": self.request, "state": stage.name() }))
            }
            Followed::Line(line) => said(&line),
            Followed::Ended(ended) => {
                piece("outcome", &outcome(&self.request, &self.session, &ended))
            }
            _ => return Some(Bytes::from_static(b": something else\n\n")),
        })
    }
}

/// An event as it is sent. Its JSON is one line: line ends inside of texts are escaped.
fn piece(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// What the agent said: its JSON as it is, or whatever else it wrote as a text.
fn said(line: &str) -> Bytes {
    let is_json = serde_json::from_str::<&RawValue>(line).is_ok() && !line.contains(['\r', '\n']);
    if is_json {
        return format!("event: line\ndata: {{\"line\":{line}}}\n\n").into();
    }
    piece("line", &json!({ "line": line }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_break_the_stream() {
        let cases = [
            (r#"{"type":"assistant"}"#, r#"{"line":{"type":"assistant"}}"#),
            ("no json\r: x", r#"{"line":"no json\r: x"}"#),
            ("{\r}", r#"{"line":"{\r}"}"#),
            ("", r#"{"line":""}"#),
        ];
        for (line, data) in cases {
            assert_eq!(said(line), format!("event: line\ndata: {data}\n\n").into_bytes());
        }
    }
}
