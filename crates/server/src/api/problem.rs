//! A problem as RFC 9457 has it, and the one list of codes.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

/// The media type of a problem.
pub(crate) const CONTENT: &str = "application/problem+json";

macro_rules! codes {
    ($($code:ident, $label:literal, $status:ident, $help:literal;)+) => {
        /// What kind of problem it is. One kind has one status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $(#[doc = $help] $code,)+
        }

        impl Code {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$code),+];

            /// Its name, for programs.
            pub(crate) const fn label(self) -> &'static str {
                match self { $(Self::$code => $label,)+ }
            }

            /// The status it is answered with.
            pub(crate) const fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$status,)+ }
            }

            /// What it means, for people.
            pub(crate) const fn help(self) -> &'static str {
                match self { $(Self::$code => $help,)+ }
            }
        }
    };
}

codes! {
    BadRequest, "bad_request", BAD_REQUEST, "A part of the request cannot be read.";
    MalformedJson, "malformed_json", BAD_REQUEST, "The body is not JSON.";
    Unauthorized, "unauthorized", UNAUTHORIZED, "A token is needed, or this one is wrong.";
    Forbidden, "forbidden", FORBIDDEN, "This token may only look.";
    ForeignHost, "foreign_host", FORBIDDEN, "Without a token only loopback names are served.";
    ForeignOrigin, "foreign_origin", FORBIDDEN, "The request comes from another site's page.";
    NotFound, "not_found", NOT_FOUND, "There is nothing at this path.";
    UnknownQueue, "unknown_queue", NOT_FOUND, "There is no queue of that name.";
    UnknownMessage, "unknown_message", NOT_FOUND, "The message is in no queue that can be asked: it is gone for good, or never was.";
    NotInFlight, "not_in_flight", NOT_FOUND, "No message of that id is in flight.";
    UnknownPool, "unknown_pool", NOT_FOUND, "There is no pool of that code.";
    UnknownPause, "unknown_pause", NOT_FOUND, "That host is not paused.";
    UnknownBreaker, "unknown_breaker", NOT_FOUND, "There is no breaker of that name.";
    UnknownWarning, "unknown_warning", NOT_FOUND, "There is no warning of that id.";
    UnknownParked, "unknown_parked", NOT_FOUND, "There is no parked message of that id.";
    UnknownRequest, "unknown_request", NOT_FOUND, "There is no request of that id, or it ended long ago.";
    AgentsDisabled, "agents_disabled", NOT_FOUND, "This daemon runs no agents: agents.enabled is false.";
    SessionForbidden, "session_forbidden", FORBIDDEN, "The session belongs to another tenant, or chat.";
    TenantQueueFull, "tenant_queue_full", TOO_MANY_REQUESTS, "The tenant has as many requests waiting as it may.";
    RateLimited, "rate_limited", TOO_MANY_REQUESTS, "The tenant comes too often.";
    GlobalQueueFull, "global_queue_full", SERVICE_UNAVAILABLE, "As many requests wait as may.";
    QueueTimeout, "queue_timeout", GATEWAY_TIMEOUT, "The request waited for too long.";
    ExecutionTimeout, "execution_timeout", GATEWAY_TIMEOUT, "The request ran for too long.";
    WorkerCrash, "worker_crash", BAD_GATEWAY, "The agent ended without a result, or could not be started.";
    AgentError, "agent_error", BAD_GATEWAY, "The agent said that it failed.";
    BadOutput, "bad_output", BAD_GATEWAY, "The agent ended without a result that can be read.";
    OutputLimit, "output_limit", BAD_GATEWAY, "The agent wrote more than it may.";
    Cancelled, "cancelled", CONFLICT, "Somebody cancelled the request.";
    Interrupted, "interrupted", SERVICE_UNAVAILABLE, "The daemon ended before the request did; it does not run again by itself.";
    UnknownWorker, "unknown_worker", NOT_FOUND, "There is no worker of that id.";
    MethodNotAllowed, "method_not_allowed", METHOD_NOT_ALLOWED, "The path has other methods.";
    SlowRequest, "slow_request", REQUEST_TIMEOUT, "The body did not come in time.";
    AppendConditionFailed, "append_condition_failed", CONFLICT, "An event matches the condition: read again and decide again.";
    TooManyProjections, "too_many_projections", TOO_MANY_REQUESTS, "As many projections run as may.";
    FoldFailed, "fold_failed", UNPROCESSABLE_ENTITY, "An event cannot be folded like this.";
    EventsTimedOut, "events_timed_out", GATEWAY_TIMEOUT, "The event store did not answer in time.";
    Busy, "busy", CONFLICT, "The message runs, or is being settled.";
    BehindEarlier, "behind_earlier", CONFLICT, "An earlier message of its group is parked.";
    NoQueue, "no_queue", CONFLICT, "Its queue is not configured any more.";
    NoPool, "no_pool", CONFLICT, "Its pool does not exist: it would be parked again.";
    NoConfigFile, "no_config_file", CONFLICT, "The daemon was started without a file.";
    TooLarge, "too_large", PAYLOAD_TOO_LARGE, "A message, or all of them, exceed a bound.";
    InvalidMessages, "invalid_messages", UNPROCESSABLE_ENTITY, "Some messages are wrong.";
    ForbiddenTarget, "forbidden_target", UNPROCESSABLE_ENTITY, "Some targets are not allowed.";
    UnknownPools, "unknown_pool", UNPROCESSABLE_ENTITY, "Some messages name no pool there is.";
    NotPublishable, "not_publishable", UNPROCESSABLE_ENTITY, "The queue only hands out.";
    InvalidField, "invalid_field", UNPROCESSABLE_ENTITY, "A field of the body is wrong.";
    Malformed, "malformed", UNPROCESSABLE_ENTITY, "What is parked is no message.";
    InvalidConfig, "invalid_config", UNPROCESSABLE_ENTITY, "The configuration file is wrong.";
    HeadTooLarge, "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, "The head is too large.";
    Internal, "internal", INTERNAL_SERVER_ERROR, "The daemon failed; its log says more.";
    Starting, "starting", SERVICE_UNAVAILABLE, "The first configuration is not applied yet.";
    ShuttingDown, "shutting_down", SERVICE_UNAVAILABLE, "The daemon is ending.";
    Overloaded, "overloaded", SERVICE_UNAVAILABLE, "Too many requests are served at once.";
    TimedOut, "timed_out", SERVICE_UNAVAILABLE, "The answer took too long.";
    QueuesNotAsked, "queues_not_asked", SERVICE_UNAVAILABLE, "Not found, and some queues did not answer.";
    StorageFailed, "storage_failed", SERVICE_UNAVAILABLE, "A queue or the state file failed.";
    StorageFull, "storage_full", INSUFFICIENT_STORAGE, "The disk is full.";
}

/// What went wrong with a request. It never carries a secret.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: String,
    /// More members, such as the field that is wrong.
    pub(crate) more: Map<String, Value>,
    /// After how many seconds to come again, where that is known.
    pub(crate) retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), more: Map::new(), retry_after: None }
    }

    /// With one member more.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// A parameter of the request that cannot be used.
    pub(crate) fn parameter(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, detail).with("field", field)
    }

    /// A field of the body that is wrong.
    pub(crate) fn field(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidField, detail).with("field", field)
    }

    /// It as JSON. The type is `about:blank`, so the title is the status's: the code says the rest.
    pub(crate) fn to_json(&self) -> Value {
        let status = self.code.status();
        let mut json = json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or_default(),
            "status": status.as_u16(),
            "detail": self.detail,
            "code": self.code.label(),
        });
        for (name, value) in &self.more {
            json[name] = value.clone();
        }
        json
    }

    /// The header that its code asks for.
    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        if let Some(seconds) = self.retry_after {
            return Some((RETRY_AFTER, HeaderValue::from(seconds)));
        }
        match self.code {
            Code::Unauthorized => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sluicegate\"")))
            }
            Code::Overloaded
            | Code::Starting
            | Code::StorageFailed
            | Code::QueuesNotAsked
            | Code::TimedOut => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.to_json().to_string()));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
        headers.extend(self.header());
        response
    }
}
