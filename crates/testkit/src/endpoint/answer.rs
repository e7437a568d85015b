//! How an endpoint answers.

use std::io;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

/// An answer, to be told in advance.
///
/// ```
/// use sluicegate_testkit::endpoint::Answer;
/// use std::time::Duration;
///
/// let busy = Answer::status(429).header("retry-after", "7");
/// let slow = Answer::ok().after(Duration::from_millis(50)).body(r#"{"ack":false}"#);
/// # drop((busy, slow));
/// ```
#[derive(Clone, Debug)]
pub struct Answer {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    ending: Ending,
    pub(super) delay: Duration,
    pub(super) manner: Manner,
}

/// How an answer's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// When all of it was sent.
    Whole,
    /// With a connection that is cut.
    Cut,
    /// Never: nothing more comes.
    Stalled,
    /// Never: it comes again and again.
    Endless,
}

/// Whether and how it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Given,
    /// Given, and the connection takes no further requests.
    Last,
    /// Never given.
    Hanging,
    /// Instead of it the connection is cut.
    Cut,
}

impl Answer {
    /// 200 and `{"ack":true}`.
    #[must_use]
    pub fn ok() -> Self {
        Self::status(200).body(r#"{"ack":true}"#)
    }

    /// A status without a body.
    ///
    /// # Panics
    /// If it is no status.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            status: StatusCode::from_u16(status).expect("a status has three digits"),
            headers: Vec::new(),
            body: Bytes::new(),
            ending: Ending::Whole,
            delay: Duration::ZERO,
            manner: Manner::Given,
        }
    }

    /// None: the request is taken and never answered.
    #[must_use]
    pub fn hang() -> Self {
        Self { manner: Manner::Hanging, ..Self::ok() }
    }

    /// None: the connection is cut instead.
    #[must_use]
    pub fn cut() -> Self {
        Self { manner: Manner::Cut, ..Self::ok() }
    }

    /// With this body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// With this header too.
    ///
    /// # Panics
    /// If it is no header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a header's name");
        self.headers.push((name, HeaderValue::try_from(value).expect("a header's value")));
        self
    }

    /// After this time.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// With a body that breaks off after what was said.
    #[must_use]
    pub fn breaks_off(self) -> Self {
        Self { ending: Ending::Cut, ..self }
    }

    /// With a body that stalls after what was said.
    #[must_use]
    pub fn stalls(self) -> Self {
        Self { ending: Ending::Stalled, ..self }
    }

    /// With a body that repeats what was said for ever.
    #[must_use]
    pub fn endless(self) -> Self {
        Self { ending: Ending::Endless, ..self }
    }

    /// As the last one of its connection: HTTP/2 says so with GOAWAY, HTTP/1.1 closes.
    #[must_use]
    pub fn last(self) -> Self {
        Self { manner: Manner::Last, ..self }
    }

    /// The response that it is.
    pub(super) fn response(self) -> Response<AnswerBody> {
        let mut response =
            Response::new(AnswerBody { piece: self.body, ending: self.ending, sent: false });
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers);
        response
    }
}

impl Default for Answer {
    fn default() -> Self {
        Self::ok()
    }
}

/// The body of an answer: one piece, and then its ending.
#[derive(Debug)]
pub(super) struct AnswerBody {
    piece: Bytes,
    ending: Ending,
    sent: bool,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Poller<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.ending == Ending::Endless || (!self.sent && !self.piece.is_empty()) {
            self.sent = true;
            return Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))));
        }
        match self.ending {
            Ending::Whole | Ending::Endless => Poll::Ready(None),
            Ending::Cut => Poll::Ready(Some(Err(io::Error::other("cut")))),
            Ending::Stalled => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ending == Ending::Whole && (self.sent || self.piece.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self.ending {
            Ending::Whole if !self.sent => SizeHint::with_exact(self.piece.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
