//! A small HTTP client for what the daemon and its commands ask of others: config documents, alerts,
//! another daemon. Addresses here come from the operator, not from messages.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use url::Url;

/// A client. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Fetch {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// What comes back, part by part.
#[derive(Debug)]
pub struct Followed {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    limit: Duration,
}

/// What to ask, beside the address.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How.
    pub method: Method,
    /// With which bearer token.
    pub token: Option<String>,
    /// With which JSON body.
    pub body: Option<Bytes>,
    /// How long it may take, all in all.
    pub timeout: Duration,
    /// The largest answer that is read.
    pub most_bytes: usize,
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchError {
    /// Nobody answers there, and why.
    Unreachable(String),
    /// It took longer than this.
    TimedOut(Duration),
    /// The answer broke off, or is larger than allowed.
    Body(String),
    /// The address or the token cannot be sent.
    BadRequest(String),
}

impl Default for Fetch {
    fn default() -> Self {
        Self::new()
    }
}

impl Fetch {
    /// A client that trusts the system's certificates.
    #[must_use]
    pub fn new() -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls())
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Self { client }
    }

    /// Asks, and reads the whole answer.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ask(&self, url: &str, ask: Ask) -> Result<Fetched, FetchError> {
        let (limit, most) = (ask.timeout, ask.most_bytes);
        let answer = async {
            let (head, body) = self.send(url, ask).await?.into_parts();
            let body = Limited::new(body, most)
                .collect()
                .await
                .map_err(|error| FetchError::Body(error.to_string()))?
                .to_bytes();
            Ok(Fetched { status: head.status, headers: head.headers, body })
        };
        timeout(limit, answer).await.unwrap_or(Err(FetchError::TimedOut(limit)))
    }

    /// Asks, and gives the answer out as it comes. The time is that of its head, and of each of its parts.
    ///
    /// # Errors
    /// When there is none.
    pub async fn follow(&self, url: &str, ask: Ask) -> Result<Followed, FetchError> {
        let limit = ask.timeout;
        let answer = timeout(limit, self.send(url, ask)).await;
        let (head, body) = answer.unwrap_or(Err(FetchError::TimedOut(limit)))?.into_parts();
        Ok(Followed { status: head.status, headers: head.headers, body, limit })
    }

    async fn send(&self, url: &str, ask: Ask) -> Result<Response<Incoming>, FetchError> {
        let (url, basic) = apart(url);
        let mut request = Request::builder()
            .method(ask.method)
            .uri(url)
            .header("accept", "application/json")
            .header("user-agent", concat!("sluicegate/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &ask.token {
            request = request.header("authorization", format!("Bearer {token}"));
        } else if let Some(basic) = basic {
            request = request.header("authorization", basic);
        }
        if ask.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(Full::new(ask.body.unwrap_or_default()))
            .map_err(|error| FetchError::BadRequest(error.to_string()))?;
        let answer = self.client.request(request).await;
        answer.map_err(|error| FetchError::Unreachable(chain(&error)))
    }
}

impl Followed {
    /// The next part of the body; `None` at its end.
    ///
    /// # Cancel safety
    /// Dropped, nothing is lost.
    ///
    /// # Errors
    /// When it breaks off, or nothing comes for too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let frame = timeout(self.limit, self.body.frame()).await;
            let Some(frame) = frame.map_err(|_| FetchError::TimedOut(self.limit))? else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| FetchError::Body(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

impl Ask {
    /// A plain `GET`.
    #[must_use]
    pub const fn get(timeout: Duration, most_bytes: usize) -> Self {
        Self { method: Method::GET, token: None, body: None, timeout, most_bytes }
    }
}

/// An address without its credentials, and the header that carries them.
fn apart(text: &str) -> (String, Option<HeaderValue>) {
    let Ok(mut url) = Url::parse(text) else { return (text.to_owned(), None) };
    if url.username().is_empty() && url.password().is_none() {
        return (text.to_owned(), None);
    }
    let plain = |part: &str| percent_decode_str(part).collect::<Vec<u8>>();
    let (user, password) = (plain(url.username()), plain(url.password().unwrap_or_default()));
    let code = STANDARD.encode([&user[..], b":", &password[..]].concat());
    let mut basic = HeaderValue::try_from(format!("Basic {code}")).ok();
    if let Some(basic) = &mut basic {
        basic.set_sensitive(true);
    }
    // An address with a host, which these have, takes both.
    url.set_username("").and(url.set_password(None)).ok();
    (url.into(), basic)
}

fn tls() -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    // What cannot be read is not trusted; without any, only plain HTTP works.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// An error and its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "could not be reached: {why}"),
            Self::TimedOut(limit) => write!(f, "did not answer within {limit:?}"),
            Self::Body(why) => write!(f, "its answer could not be read: {why}"),
            Self::BadRequest(why) => write!(f, "cannot be asked: {why}"),
        }
    }
}

impl std::error::Error for FetchError {}
