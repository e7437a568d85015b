//! Answers that are no problems.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// An answer in JSON.
pub(crate) fn reply(status: StatusCode, shape: &impl Serialize) -> Response {
    let text = serde_json::to_string(shape).expect("shapes have only keys that are texts");
    typed(status, "application/json", text)
}

/// An answer of some media type.
pub(crate) fn typed(status: StatusCode, content: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}

/// Done, and nothing to say.
pub(crate) fn done() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
