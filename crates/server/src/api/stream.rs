//! What happens, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use sluicegate_tasks::{Context, OwnedPermit};
use tokio::time::timeout;

use super::Api;
use super::problem::{Code, Problem};
use super::reply::typed;
use crate::feed::{Event, Listener};

/// How many may listen at once.
pub(crate) const MOST: u32 = 64;
/// After how long without an event a comment is sent, so that whoever is in between stays.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One who listens, until it goes, or the daemon or the server ends.
struct Follower {
    listener: Listener,
    daemon: Context,
    server: Context,
    _place: OwnedPermit,
}

/// `GET /api/v1/stream`
pub(crate) async fn follow(State(api): State<Api>) -> Result<Response, Problem> {
    let place = api.streams.try_acquire_owned().map_err(|at_limit| {
        Problem::new(Code::Overloaded, format!("{} follow the stream already", at_limit.in_use))
    })?;
    let follower = Follower {
        listener: api.daemon.record().feed.listen(),
        daemon: api.daemon.over().clone(),
        server: api.cx.clone(),
        _place: place,
    };
    let hello = Bytes::from_static(b": sluicegate\n\n");
    let pieces = unfold((Some(hello), follower), |(first, mut follower)| async move {
        let piece = match first {
            Some(hello) => hello,
            None => follower.next().await?,
        };
        Some((Ok::<_, Infallible>(piece), (None, follower)))
    });
    let mut response = typed(StatusCode::OK, "text/event-stream", Body::from_stream(pieces));
    // Its end is the end of the connection: there is nothing to idle for.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

impl Follower {
    /// The next piece of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        // Looked at first: while much happens, the next event is always there.
        if self.server.is_cancelled() || self.daemon.is_cancelled() {
            return None;
        }
        let event = timeout(KEEP_ALIVE, self.listener.next());
        let heard = self.server.until_interrupted(self.daemon.until_interrupted(event)).await;
        match heard.ok()?.ok()? {
            Ok(event) => event.map(|event| piece(&event)),
            Err(_) => Some(Bytes::from_static(b": still here\n\n")),
        }
    }
}

/// An event as it is sent. Its JSON is one line: line ends inside of texts are escaped.
fn piece(event: &Event) -> Bytes {
    format!("event: {}\ndata: {}\n\n", event.name, event.json).into()
}
