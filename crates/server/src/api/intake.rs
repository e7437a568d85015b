//! What comes with a request: path segments, parameters, bodies. All of it bounded.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde_json::{Map, Value};
use sluicegate_tasks::{Context, OwnedPermit, Permits};
use tokio::time::timeout;

use super::problem::{Code, Problem};

/// How large the body of a request to publish may be.
pub(crate) const LARGE: usize = 16 * 1024 * 1024;
/// How large any other body may be.
pub(crate) const SMALL: usize = 1024 * 1024;

/// Bodies above this size are held by a few requests at once only, so that all connections together
/// cannot ask for all memory.
const FREE: u64 = 256 * 1024;
const MOST_LARGE_AT_ONCE: u32 = 16;

/// How long a body may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);

/// How much of a body that nobody wants is read, so that its sender hears the answer, and for how
/// long.
const DISCARDED: usize = 64 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// The one segment of a path that varies.
pub(crate) struct Segment(pub(crate) String);

/// The parameters behind the `?`.
pub(crate) struct Query(Vec<(String, String)>);

/// A whole body, and the right to hold it.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _permit: Option<OwnedPermit>,
}

/// Reads bodies.
#[derive(Debug)]
pub(crate) struct Intake {
    large: Arc<Permits>,
}

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(segment)| Self(segment))
            .map_err(|_| Problem::parameter("path", "the path is not UTF-8 when it is decoded"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        Ok(Self(pairs.collect()))
    }
}

impl Query {
    /// A parameter, if it is there and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().find(|(given, value)| given == name && !value.is_empty());
        named.map(|(_, value)| value.as_str())
    }
}

impl Intake {
    pub(crate) fn new() -> Self {
        let large = Permits::new(MOST_LARGE_AT_ONCE).expect("the limit is a constant above zero");
        Self { large: Arc::new(large) }
    }

    /// The whole body, if it is no larger than that and comes in time.
    ///
    /// # Cancel safety
    /// Dropped, what was read is gone with its connection, and the permit comes back.
    pub(crate) async fn whole(
        &self,
        cx: &Context,
        body: Body,
        most: usize,
    ) -> Result<Whole, Problem> {
        let mut body = body;
        let size = body.size_hint();
        if size.lower() > most as u64 {
            discard(body).await;
            return Err(too_large(most));
        }
        let permit = match size.upper() {
            Some(size) if size <= FREE => None,
            _ => Some(self.permit(cx).await?),
        };
        let read = timeout(BODY_TIME, collect(&mut body, most)).await;
        match read.map_err(|_| Problem::new(Code::SlowRequest, "the body did not come in time"))? {
            Ok(bytes) => Ok(Whole { bytes, _permit: permit }),
            Err(NotRead::TooLarge) => {
                drop(permit);
                discard(body).await;
                Err(too_large(most))
            }
            Err(NotRead::Broken) => {
                Err(Problem::new(Code::BadRequest, "the body broke off before its end"))
            }
        }
    }

    async fn permit(&self, cx: &Context) -> Result<OwnedPermit, Problem> {
        self.large.acquire_owned(cx).await.map_err(|interrupt| {
            Problem::new(Code::Overloaded, format!("no room for a large body: {interrupt}"))
        })
    }

    /// A JSON object. An empty body is an empty one.
    pub(crate) async fn object(
        &self,
        cx: &Context,
        body: Body,
    ) -> Result<Map<String, Value>, Problem> {
        let whole = self.whole(cx, body, SMALL).await?;
        if whole.bytes.trim_ascii().is_empty() {
            return Ok(Map::new());
        }
        let read = serde_json::from_slice(&whole.bytes);
        match read.map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))? {
            Value::Object(fields) => Ok(fields),
            _ => Err(Problem::new(Code::InvalidField, "the body must be a JSON object")),
        }
    }
}

enum NotRead {
    TooLarge,
    Broken,
}

async fn collect(body: &mut Body, most: usize) -> Result<Bytes, NotRead> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| NotRead::Broken)?.into_data() else { continue };
        if all.len() + data.len() > most {
            return Err(NotRead::TooLarge);
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// Reads what nobody wants: a sender that is cut off in the middle often never sees the answer.
pub(crate) async fn discard(mut body: Body) {
    let read = async {
        let mut read = 0;
        while read < DISCARDED
            && let Some(Ok(frame)) = body.frame().await
        {
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    timeout(DISCARD_TIME, read).await.ok();
}

fn too_large(most: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("the body has more than {most} bytes")).with("limit", most)
}
