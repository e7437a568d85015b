//! The request of an attempt: made once, sent once for each call.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use sluicegate_dispatch::{AuthToken, Message, PoolSettings, Target};

use super::trace::{Trace, Traces};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("sluicegate/", env!("CARGO_PKG_VERSION")));
/// Ours, and the two that the client adds.
const HEADERS: usize = 11;

/// What all calls of an attempt send. Most attempts are one call, so headers and body are made for each: to
/// share them would cost more than to make them.
pub(crate) struct Order<'a> {
    message: &'a Message,
    trace: Trace<'a>,
    /// Boxed, since few have one and it is large.
    signer: Option<Box<Signer>>,
}

/// Signs as Standard Webhooks has it.
struct Signer {
    key: hmac::Key,
    id: String,
}

impl<'a> Order<'a> {
    /// Prepares the calls.
    ///
    /// # Errors
    /// Why this message can never be sent.
    pub(crate) fn new(
        message: &'a Message,
        pool: &Arc<PoolSettings>,
        traces: &Traces,
    ) -> Result<Self, &'static str> {
        if message.auth_token.as_ref().is_some_and(|token| !is_sendable(token)) {
            return Err("its authToken has a character that no header can carry");
        }
        let signer = pool.signing_key.as_ref().map(|key| Box::new(Signer::new(key, &message.id)));
        Ok(Self { message, trace: traces.follow(message.traceparent.as_deref()), signer })
    }

    /// What is sent.
    pub(crate) const fn message(&self) -> &Message {
        self.message
    }

    /// Where it goes.
    pub(crate) const fn target(&self) -> &Target {
        &self.message.target
    }

    /// The same as the client libraries take it.
    pub(crate) fn uri(&self) -> Uri {
        self.target().url().parse().expect("a target is a URL")
    }

    /// The request of one call, to be sent over a connection to its origin.
    pub(crate) fn request_to_origin(&self, host: HeaderValue) -> Request<Full<Bytes>> {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        headers.insert(HOST, host);
        self.complete(headers, Uri::from(self.target().path_and_query().clone()))
    }

    /// The request of one call, by its whole URL.
    pub(crate) fn request(&self) -> Request<Full<Bytes>> {
        self.complete(HeaderMap::with_capacity(HEADERS), self.uri())
    }

    /// A signature carries the time at which it was made.
    fn complete(&self, mut headers: HeaderMap, uri: Uri) -> Request<Full<Bytes>> {
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON);
        headers.insert(USER_AGENT, AGENT);
        headers.insert(TRACEPARENT, self.trace.header());
        if let Some(token) = &self.message.auth_token {
            headers.insert(AUTHORIZATION, bearer(token));
        }
        let body = body(self.message);
        if let Some(signer) = &self.signer {
            signer.sign(&body, SystemTime::now(), &mut headers);
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
    }
}

impl Signer {
    fn new(key: &[u8], id: &str) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), id: as_header(id) }
    }

    fn sign(&self, body: &[u8], now: SystemTime, headers: &mut HeaderMap) {
        let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut context = hmac::Context::with_key(&self.key);
        let timestamp = seconds.to_string();
        for part in [self.id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            context.update(part);
        }
        let signature = format!("v1,{}", STANDARD.encode(context.sign()));
        let fields = [
            (WEBHOOK_ID, self.id.clone()),
            (WEBHOOK_TIMESTAMP, timestamp),
            (WEBHOOK_SIGNATURE, signature),
        ];
        for (name, text) in fields {
            let value = HeaderValue::try_from(text).expect("it is made of visible ASCII");
            headers.insert(name, value);
        }
    }
}

/// `{"messageId":…}`, with the payload as it was written.
fn body(message: &Message) -> Bytes {
    let payload = message.payload.as_deref();
    let mut body = Vec::with_capacity(32 + message.id.len() + payload.map_or(0, str::len));
    body.extend_from_slice(br#"{"messageId":"#);
    serde_json::to_writer(&mut body, &*message.id).expect("a string is JSON, and a Vec takes it");
    if let Some(payload) = payload {
        body.extend_from_slice(br#","payload":"#);
        body.extend_from_slice(payload.as_bytes());
    }
    body.push(b'}');
    body.into()
}

/// Whether a header can carry a token.
fn is_sendable(token: &AuthToken) -> bool {
    token.expose().bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..))
}

fn bearer(token: &AuthToken) -> HeaderValue {
    let mut text = Vec::with_capacity(7 + token.expose().len());
    text.extend_from_slice(b"Bearer ");
    text.extend_from_slice(token.expose().as_bytes());
    let value = HeaderValue::from_maybe_shared(Bytes::from(text));
    let mut value = value.expect("a token that cannot be sent was refused");
    value.set_sensitive(true);
    value
}

/// An id as a header carries it: what is not visible ASCII is percent-encoded.
fn as_header(id: &str) -> String {
    id.bytes().fold(String::with_capacity(id.len()), |mut text, byte| {
        if byte.is_ascii_graphic() {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a String takes everything");
        }
        text
    })
}
