//! Many events at once: a part that is held while it is sent, or lines, read as fast as they are taken.

use std::io;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use sluicegate_event_store::{EventStore, Reader};
use sluicegate_tasks::{Context, OwnedPermit};

use super::Api;
use super::event_fields::ToRead;
use super::event_shapes;
use super::problem::{Code, Problem};
use super::reply::typed;

/// How many may read at once: each holds a page of a few megabytes.
pub(crate) const MOST: u32 = 64;

/// How many events are read at once.
const PAGE: usize = 1_000;

/// The media type of lines.
pub(crate) const LINES: &str = "application/x-ndjson";

/// A place of one who reads.
pub(super) fn reader(api: &Api) -> Result<OwnedPermit, Problem> {
    api.readers.try_acquire_owned().map_err(|at_limit| {
        Problem::new(Code::Overloaded, format!("{} read events already", at_limit.in_use))
    })
}

/// Whether lines are asked for.
pub(super) fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|accepted| accepted.to_str().ok());
    let mut types = accepted.flat_map(|accepted| accepted.split(','));
    types.any(|one| {
        let media = one.split(';').next().unwrap_or_default().trim();
        media.eq_ignore_ascii_case(LINES) || media.eq_ignore_ascii_case("application/ndjson")
    })
}

/// A text, and the right to hold it.
struct Held {
    text: String,
    _place: OwnedPermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// A body whose place is free again when it is sent, or given up.
pub(super) fn held(text: String, place: OwnedPermit) -> Body {
    Bytes::from_owner(Held { text, _place: place }).into()
}

/// Events on their way out, page by page.
struct Lines {
    reader: Reader,
    /// How many may still come.
    left: usize,
    server: Context,
    _place: OwnedPermit,
}

/// What is to be sent next.
enum Step {
    Give(Bytes, Lines),
    Go(Lines),
    Break,
}

/// All that was asked for, each event in a line. Where it goes wrong on the way, the last line says so and the body breaks
/// off: it never looks complete.
pub(super) async fn lines(
    server: &Context,
    store: &EventStore,
    read: ToRead,
    place: OwnedPermit,
) -> Result<Response, Problem> {
    let left = read.limit.unwrap_or(usize::MAX);
    let reader = store.reader(read.query, read.after)?.pages_of(left.min(PAGE));
    let mut lines = Lines { reader, left, server: server.clone(), _place: place };
    // What fails at once has a status of its own.
    let Some(first) = lines.next().await? else {
        return Ok(typed(StatusCode::OK, LINES, Body::empty()));
    };
    let pieces = unfold(Some(Step::Give(first, lines)), |step| async move { step?.next().await });
    Ok(typed(StatusCode::OK, LINES, Body::from_stream(pieces)))
}

impl Step {
    async fn next(self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        match self {
            Self::Give(piece, lines) => Some((Ok(piece), Some(Self::Go(lines)))),
            Self::Go(mut lines) => match lines.next().await {
                Ok(piece) => Some((Ok(piece?), Some(Self::Go(lines)))),
                Err(problem) => Some((Ok(error_line(&problem)), Some(Self::Break))),
            },
            Self::Break => {
                Some((Err(io::Error::other("the events were not read to their end")), None))
            }
        }
    }
}

impl Lines {
    /// The next lines; `None` when all were given.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.left == 0 {
            return Ok(None);
        }
        let ending = |_| Problem::new(Code::ShuttingDown, "the daemon is shutting down");
        // Looked at first: while much is there to be read, the next page always is.
        self.server.check().map_err(ending)?;
        let read = self.server.until_interrupted(self.reader.next_page()).await;
        let Some(mut events) = read.map_err(ending)?? else { return Ok(None) };
        events.truncate(self.left);
        self.left -= events.len();
        event_shapes::lines(&events).map(Some)
    }
}

/// What is wrong, as a line that no event looks like.
fn error_line(problem: &Problem) -> Bytes {
    format!("{}\n", json!({ "error": problem.to_json() })).into()
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use http::HeaderValue;
    use sluicegate_event_store::{
        Append, AppendError, BoxFuture, Engine, EngineError, Event, Page, Position, Query, Read,
        ReadError,
    };
    use sluicegate_tasks::Permits;

    use super::*;

    /// Events without end, which can be read up to a position.
    struct ReadableTo(u64);

    impl Engine for ReadableTo {
        fn append(&self, _: Append) -> BoxFuture<'_, Result<Position, AppendError>> {
            Box::pin(async { Err(EngineError::new("it is full").into()) })
        }

        fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
            let after = read.after.get();
            Box::pin(async move {
                if after >= self.0 {
                    return Err(EngineError::new("the disk has gone").into());
                }
                let events = (after + 1..=after + read.limit as u64)
                    .map(|at| Event::new(Position::new(at), 0, "A", ["k:v"], "{}"));
                let next = Some(Position::new(after + read.limit as u64));
                Ok(Page { events: events.collect(), next })
            })
        }

        fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
            Box::pin(async { Ok(Position::new(u64::MAX)) })
        }

        fn changed(&self, _: Position) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    /// What comes of asking: the text, and whether it broke off.
    async fn asked(
        server: &Context,
        readable: u64,
        limit: Option<usize>,
    ) -> Result<(String, bool), Problem> {
        let store = EventStore::new(ReadableTo(readable));
        let places = std::sync::Arc::new(Permits::new(1).unwrap());
        let read = ToRead { query: Query::all(), after: Position::START, limit };
        let place = places.try_acquire_owned().unwrap();
        let response = lines(server, &store, read, place).await?;
        let (mut text, mut is_broken) = (String::new(), false);
        let mut body = response.into_body().into_data_stream();
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => text += std::str::from_utf8(&piece).unwrap(),
                Err(_) => is_broken = true,
            }
        }
        drop(body);
        assert_eq!(places.in_use(), 0);
        Ok((text, is_broken))
    }

    #[tokio::test]
    async fn what_breaks_off_never_looks_complete() {
        let server = Context::new();
        let (text, is_broken) = asked(&server, 2_000, None).await.unwrap();
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((text.lines().count(), is_broken), (2_001, true));
        assert_eq!(last["error"]["code"], "storage_failed", "{last}");
        // What was asked for was there.
        let (text, is_broken) = asked(&server, 2_000, Some(1_500)).await.unwrap();
        assert_eq!((text.lines().count(), is_broken), (1_500, false));
        // What fails at once is no answer at all.
        assert_eq!(asked(&server, 0, None).await.unwrap_err().code, Code::StorageFailed);
        server.cancel();
        assert_eq!(
            asked(&server, 9, None).await.map_err(|problem| problem.code).err(),
            Some(Code::ShuttingDown)
        );
    }

    #[test]
    fn lines_are_given_to_those_who_ask_for_them() {
        let cases = [
            (LINES, true),
            ("Application/X-NDJSON;q=0.9", true),
            ("text/html, application/x-ndjson", true),
            ("application/json", false),
            ("*/*", false),
        ];
        for (accept, wants) in cases {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(wants_lines(&headers), wants, "{accept}");
        }
        assert!(!wants_lines(&HeaderMap::new()));
    }
}
