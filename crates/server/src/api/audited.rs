//! Requests that change something, as they are said in the log.
//!
//! What is said comes from the request, from what there was before it, and from its answer: handlers
//! need do nothing for it. A request whose caller goes away is said too: what it has begun may go on.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::Method;
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use sluicegate_dispatch::BreakerState;

use super::Api;
use super::guard::{Caller, Role, is_safe};
use crate::audit::{Change, Who, audit};

/// A request that changes something, while it is served.
pub(super) struct Audited {
    who: Who,
    change: Change,
    /// What of the answer says what became of it.
    answer: &'static [&'static str],
    /// What the request asked for, as far as it was read: the part of its body that is kept.
    asked: Option<Arc<Mutex<Vec<u8>>>>,
    is_over: bool,
}

/// How much of a request's body is kept, and of an answer's read.
const MOST_ASKED: usize = 4 * 1024;
const MOST_ANSWERED: usize = 4 * 1024 * 1024;

/// What is brought here to be worked on, by programs.
const WORK: [&str; 3] = ["messages", "requests", "events"];

/// Looks at a request before it is served. `None` if it changes nothing that people change by hand.
pub(super) fn begin(api: &Api, head: &Parts, caller: Caller, peer: SocketAddr) -> Option<Audited> {
    let role = match caller.0? {
        Role::Operate => "operate",
        Role::Read => "read",
    };
    let path = head.uri.path().strip_prefix("/api/v1/")?;
    let segments: Vec<String> = path.split('/').map(decoded).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let query = head.uri.query().unwrap_or_default();
    let asks =
        |(name, value): (Cow<'_, str>, Cow<'_, str>)| name == "withSecrets" && value == "true";
    let takes_secrets =
        segments == ["parked", "export"] && url::form_urlencoded::parse(query.as_bytes()).any(asks);
    let is_work = WORK.contains(&segments[0]) && head.method != Method::DELETE;
    if (is_safe(&head.method) && !takes_secrets) || is_work {
        return None;
    }
    let (mut change, answer, keeps_body) = change(api, &head.method, &segments);
    if change.subject.is_empty() {
        change.subject = query.chars().take(MOST_ASKED).collect();
    }
    let asked = keeps_body.then(Arc::default);
    Some(Audited { who: Who::Caller { role, peer }, change, answer, asked, is_over: false })
}

fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// The fields of an answer to `replay`, of one to `import`, and of one to `ack`.
const REPLAYED: &[&str] = &["replayed", "left"];
const IMPORTED: &[&str] = &["added", "present", "refused"];
const ACKED: &[&str] = &["acked"];

/// What a request is about to change, what of its answer is said, and whether what it asks for is.
fn change(api: &Api, method: &Method, path: &[&str]) -> (Change, &'static [&'static str], bool) {
    let of =
        |action, subject: &str| Change { action, subject: subject.to_owned(), ..Change::default() };
    match (method.as_str(), path) {
        ("PATCH", ["pools", code]) => {
            let change = Change { old: limits(api, code), ..of("pool.patch", code) };
            (change, &["concurrency", "rateLimitPerMinute"], false)
        }
        ("POST", ["config", "reload"]) => {
            let file = api.daemon.file().unwrap_or_default();
            (of("config.reload", &file), &["applied", "issues", "needsRestart"], false)
        }
        ("POST", ["parked", "replay"]) => (of("parked.replay", ""), REPLAYED, true),
        ("POST", ["parked", id, "replay"]) => (of("parked.replay", id), REPLAYED, false),
        ("POST", ["parked", "import"]) => (of("parked.import", ""), IMPORTED, false),
        ("GET", ["parked", "export"]) => (of("parked.export", ""), &[], false),
        ("DELETE", ["parked", id]) => (of("parked.discard", id), &[], false),
        ("POST", ["inflight", id, "ack"]) => (of("message.ack", id), ACKED, false),
        ("POST", ["breakers", name, "reset"]) => {
            let change = Change { old: breaker(api, name), ..of("breaker.reset", name) };
            (change, &["state"], false)
        }
        ("POST", ["warnings", id, "acknowledge"]) => {
            (of("warning.acknowledge", &warning(api, id)), &[], false)
        }
        ("DELETE", ["warnings", id]) => (of("warning.delete", &warning(api, id)), &[], false),
        ("DELETE", ["pauses", host]) => (of("pause.lift", host), &[], false),
        ("DELETE", ["requests", id]) => (of("request.cancel", id), &["state"], false),
        ("DELETE", ["workers", id]) => (of("worker.end", id), &[], false),
        // Whatever comes later is said, if not in its own words.
        _ => (of("request", &format!("{method} {}", path.join("/"))), &[], false),
    }
}

fn limits(api: &Api, code: &str) -> Option<Value> {
    let pool = api.daemon.router().pool(code)?;
    Some(json!({
        "concurrency": pool.concurrency, "rateLimitPerMinute": pool.rate_limit_per_minute,
    }))
}

fn breaker(api: &Api, name: &str) -> Option<Value> {
    let reports = api.daemon.breakers().list();
    let state = reports.iter().find(|report| *report.name == *name)?.state;
    let word = match state {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half-open",
    };
    Some(json!({ "state": word }))
}

fn warning(api: &Api, id: &str) -> String {
    let warning = id.parse().ok().and_then(|id| api.daemon.record().warnings.get(id));
    warning.map_or_else(
        || id.to_owned(),
        |warning| format!("{id}: {}/{} {}", warning.code, warning.severity, warning.subject),
    )
}

impl Audited {
    /// The body of the request, which leaves a copy of its beginning here where that is of use.
    pub(super) fn watch(&self, body: Body) -> Body {
        let Some(asked) = self.asked.clone() else { return body };
        Body::new(body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                let mut asked = asked.lock();
                let room = MOST_ASKED.saturating_sub(asked.len()).min(data.len());
                asked.extend_from_slice(&data[..room]);
            }
            frame
        }))
    }

    /// Says what was changed, if anything was.
    pub(super) async fn end(mut self, response: Response) -> Response {
        self.is_over = true;
        let is_success = response.status().is_success();
        if !is_success && !self.may_be_in_part() {
            return response;
        }
        let (response, answer) =
            if self.answer.is_empty() { (response, Value::Null) } else { read(response).await };
        // It was only asked what would be done; or it failed before anything was.
        let is_trial = answer["dryRun"] == true || answer["code"] == "queues_not_asked";
        let has_begun = self.answer.iter().any(|name| answer[*name].as_u64().unwrap_or(0) > 0);
        if is_trial || !(is_success || has_begun || response.status().is_server_error()) {
            return response;
        }
        self.name();
        if !self.answer.is_empty() {
            let pick = |name: &&str| ((*name).to_owned(), answer[*name].clone());
            let mut new: Map<String, Value> = self.answer.iter().map(pick).collect();
            if !is_success {
                new.insert("failed".to_owned(), answer["detail"].clone());
            }
            self.change.new = Some(Value::Object(new));
        }
        audit(self.who, &self.change);
        response
    }

    /// Whether a request of this kind that fails may have done a part of what it was to do.
    fn may_be_in_part(&self) -> bool {
        [REPLAYED, IMPORTED, ACKED].contains(&self.answer)
    }

    /// What was asked for, where the body says so, too.
    fn name(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let body = asked.lock();
        let parts = [self.change.subject.as_str(), &String::from_utf8_lossy(&body)];
        self.change.subject =
            parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ");
    }
}

/// Reads an answer, which is whole: it is one of ours. A large one is passed on unread.
async fn read(response: Response) -> (Response, Value) {
    if response.body().size_hint().exact().is_none_or(|size| size > MOST_ANSWERED as u64) {
        return (response, Value::Null);
    }
    let (head, body) = response.into_parts();
    let whole = Limited::new(body, MOST_ANSWERED).collect().await;
    let bytes = whole.map(|whole| whole.to_bytes()).unwrap_or_default();
    let answer = serde_json::from_slice(&bytes).unwrap_or_default();
    (Response::from_parts(head, Body::from(bytes)), answer)
}

/// A caller that goes away may leave something behind that goes on.
impl Drop for Audited {
    fn drop(&mut self) {
        if !self.is_over {
            self.name();
            self.change.new = Some(json!({ "unknown": "the caller went away before the answer" }));
            audit(self.who, &self.change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_too_large_to_be_read_is_passed_on() {
        for size in [10, MOST_ANSWERED, MOST_ANSWERED + 1] {
            let (response, _) = read(Response::new(Body::from("x".repeat(size)))).await;
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), size);
        }
    }
}
