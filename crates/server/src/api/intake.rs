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
use sluicegate_sources::nearest;
use sluicegate_tasks::{Context, OwnedPermit, Permits};
use tokio::time::{Instant, timeout};

use super::problem::{Code, Problem};
use crate::warnings::cut;

/// How large a body may be, and how long it may take to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    bytes: usize,
    time: Duration,
}

/// For a request to publish.
pub(crate) const LARGE: Bound = Bound { bytes: 16 * 1024 * 1024, time: Duration::from_secs(30) };
/// For any other request with a token.
pub(crate) const SMALL: Bound = Bound { bytes: 1024 * 1024, time: Duration::from_secs(30) };
/// For a request without a token: a login.
pub(crate) const TINY: Bound = Bound { bytes: 4 * 1024, time: Duration::from_secs(5) };

/// Only a few bodies above this size are held at once, so that all connections together cannot ask
/// for all memory. A body takes its place when so much of it has come, not before.
const FREE: usize = 256 * 1024;
const MOST_LARGE_AT_ONCE: u32 = 16;

/// How much must come in how much time while a body has a place.
const PACE_BYTES: usize = 256 * 1024;
const PACE_TIME: Duration = Duration::from_secs(2);

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
        Ok(Self::of_uri(&parts.uri))
    }
}

impl Query {
    pub(crate) fn of_uri(uri: &http::Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        Self(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    /// All parameters that are not empty.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        pairs.filter(|(_, value)| !value.is_empty())
    }

    /// Passes if each parameter is one of these, is said once, and says something. Where it matters what is not
    /// meant: a filter that is misspelt or empty would be none.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        self.known_only(known)?;
        for (place, (name, value)) in self.0.iter().enumerate() {
            if self.0[..place].iter().any(|(before, _)| before == name) {
                return Err(Problem::parameter(name, format!("{name} is said more than once")));
            }
            if value.is_empty() {
                let detail = format!("{name} is empty: say something, or leave it out");
                return Err(Problem::parameter(name, detail));
            }
        }
        Ok(())
    }

    /// Passes if each parameter is one of these.
    pub(crate) fn known_only(&self, known: &[&str]) -> Result<(), Problem> {
        let unknown = self.0.iter().find(|(name, _)| !known.contains(&name.as_str()));
        let Some((name, _)) = unknown else { return Ok(()) };
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!(": did you mean `{near}`?"),
            None if known.is_empty() => "; there are none here".to_owned(),
            None => format!("; there are {}", known.join(", ")),
        };
        let detail = format!("there is no parameter `{}`{hint}", cut(name));
        Err(Problem::parameter(name, detail))
    }

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

    /// The whole body, if it stays within the bound and keeps pace.
    ///
    /// # Cancel safety
    /// Dropped, what was read is gone with its connection, and the permit comes back.
    pub(crate) async fn whole(
        &self,
        cx: &Context,
        body: Body,
        bound: Bound,
    ) -> Result<Whole, Problem> {
        let mut body = body;
        if body.size_hint().lower() > bound.bytes as u64 {
            discard(body).await;
            return Err(too_large(bound.bytes));
        }
        let mut coming = Coming { bytes: BytesMut::new(), most: bound.bytes, left: bound.time };
        let mut read = coming.read(&mut body, FREE, bound.time).await;
        let mut permit = None;
        if matches!(read, Ok(Part::More)) {
            // The wait for a place is not the sender's fault: it does not count.
            permit = Some(self.permit(cx).await?);
        }
        while matches!(read, Ok(Part::More)) {
            read = coming.read(&mut body, PACE_BYTES, PACE_TIME).await;
        }
        match read {
            Ok(_) => Ok(Whole { bytes: coming.bytes.freeze(), _permit: permit }),
            Err(NotRead::TooLarge) => {
                drop((permit, coming));
                discard(body).await;
                Err(too_large(bound.bytes))
            }
            Err(NotRead::Broken) => {
                Err(Problem::new(Code::BadRequest, "the body broke off before its end"))
            }
            Err(NotRead::Slow) => {
                Err(Problem::new(Code::SlowRequest, "the body did not come in time"))
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
        if whole.bytes.trim_ascii().is_empty() { Ok(Map::new()) } else { parsed(&whole.bytes) }
    }

    /// A JSON object of another size, which must be there.
    pub(crate) async fn object_within(
        &self,
        cx: &Context,
        body: Body,
        bound: Bound,
    ) -> Result<Map<String, Value>, Problem> {
        parsed(&self.whole(cx, body, bound).await?.bytes)
    }
}

fn parsed(bytes: &[u8]) -> Result<Map<String, Value>, Problem> {
    let read = serde_json::from_slice(bytes);
    match read.map_err(|error| Problem::new(Code::MalformedJson, error.to_string()))? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Problem::new(Code::InvalidField, "the body must be a JSON object")),
    }
}

/// A body that is being read.
struct Coming {
    bytes: BytesMut,
    most: usize,
    /// How much time there is for the rest.
    left: Duration,
}

/// What a part of a body was.
enum Part {
    Last,
    More,
}

enum NotRead {
    TooLarge,
    Broken,
    Slow,
}

impl Coming {
    /// Reads so many bytes more, or to the end, within so much time.
    async fn read(
        &mut self,
        body: &mut Body,
        more: usize,
        time: Duration,
    ) -> Result<Part, NotRead> {
        let begun = Instant::now();
        let part = timeout(self.left.min(time), self.part(body, self.bytes.len() + more)).await;
        self.left = self.left.saturating_sub(begun.elapsed());
        part.unwrap_or(Err(NotRead::Slow))
    }

    async fn part(&mut self, body: &mut Body, enough: usize) -> Result<Part, NotRead> {
        while self.bytes.len() <= enough {
            let Some(frame) = body.frame().await else { return Ok(Part::Last) };
            let Ok(data) = frame.map_err(|_| NotRead::Broken)?.into_data() else { continue };
            if self.bytes.len() + data.len() > self.most {
                return Err(NotRead::TooLarge);
            }
            self.bytes.extend_from_slice(&data);
        }
        Ok(Part::More)
    }
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

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};

    use super::*;

    /// A body of so many kibibytes, which come with this pause before each.
    fn body(kibibytes: usize, pause: Duration) -> Body {
        let pieces = stream::iter(0..kibibytes).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1024]))
        });
        Body::from_stream(pieces)
    }

    async fn read(intake: &Intake, kibibytes: usize, pause: Duration) -> Result<usize, Code> {
        let read = intake.whole(&Context::new(), body(kibibytes, pause), LARGE).await;
        read.map(|whole| whole.bytes.len()).map_err(|problem| problem.code)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_takes_a_place_when_it_is_large_and_not_before() {
        let intake = Intake::new();
        let quick = Duration::from_micros(10);
        let cx = Context::new();
        let free = intake.whole(&cx, body(256, quick), LARGE).await.unwrap();
        assert!(free._permit.is_none(), "a small one of unknown size");
        let large = intake.whole(&cx, body(258, quick), LARGE).await.unwrap();
        assert!(large._permit.is_some());
    }

    /// At most one place is lost to a slow sender, for two seconds.
    #[tokio::test(start_paused = true)]
    async fn a_large_body_keeps_pace_or_loses_its_place() {
        let intake = Intake::new();
        let pace = Duration::from_millis(7);
        assert_eq!(read(&intake, 1024, pace).await, Ok(1024 * 1024), "146 KiB a second");
        let begun = Instant::now();
        assert_eq!(read(&intake, 1024, Duration::from_millis(9)).await, Err(Code::SlowRequest));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let begun = Instant::now();
        let slow = Duration::from_millis(200);
        assert_eq!(read(&intake, 256, slow).await, Err(Code::SlowRequest), "without a place");
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
}
