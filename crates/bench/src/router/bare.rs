//! The baseline: the same calls by the same HTTP library, in a loop and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// A client with the settings that the executor gives its own.
#[derive(Clone)]
pub(crate) struct Bare {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Bare {
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(90))
            .pool_max_idle_per_host(usize::MAX)
            .http1_max_buf_size(64 * 1024)
            .build(connector);
        Self { client }
    }

    /// So many calls by so many loops. Says how long they took.
    pub(crate) async fn call(&self, uri: &Uri, body: &Bytes, calls: u64, loops: usize) -> Duration {
        let (left, begun) = (Arc::new(AtomicU64::new(calls)), Instant::now());
        let loops: Vec<_> = (0..loops)
            .map(|_| {
                let (own, uri, body) = (self.clone(), uri.clone(), body.clone());
                let left = Arc::clone(&left);
                tokio::spawn(async move {
                    let less = |left: u64| left.checked_sub(1);
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                        own.call_once(uri.clone(), body.clone()).await;
                    }
                })
            })
            .collect();
        for one in loops {
            one.await.expect("no call panics");
        }
        begun.elapsed()
    }

    async fn call_once(&self, uri: Uri, body: Bytes) {
        let mut headers = HeaderMap::with_capacity(11);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("sluicegate/0.1.0"));
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        headers.insert(HeaderName::from_static("traceparent"), HeaderValue::from_static(trace));
        let mut token = HeaderValue::from_static("Bearer tok-0123456789abcdef");
        token.set_sensitive(true);
        headers.insert(AUTHORIZATION, token);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let response = self.client.request(request).await.expect("the endpoint answers");
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.expect("the endpoint answers all of it");
    }
}
