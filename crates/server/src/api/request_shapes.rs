//! What requests and their workers look like outside.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sluicegate_agents::{Found, Outcome, Pending, Reply, Stage, WhyNot, WorkerState, WorkerView};
use sluicegate_dispatch::typed_option;
use tokio::time::Instant;

use super::problem::Problem;
use super::shapes::{Kind, MessageShape, Seen, WhyShape, millis};
use crate::agents::NAME;
use crate::time::Timestamp;

/// A reply, as the one who waited gets it.
pub(super) fn replied(request: &str, session: &str, reply: &Reply) -> Value {
    let mut shape = json!(reply);
    shape["requestId"] = request.into();
    shape["sessionId"] = session.into();
    shape
}

/// What came of a request, beside what it is: reply fields, or `error`.
fn ended(outcome: &Outcome) -> Map<String, Value> {
    let fields = match outcome {
        Ok(reply) => json!(reply),
        Err(error) => {
            let mut problem = Problem::from(error).to_json();
            if let Value::Object(fields) = &mut problem {
                fields.retain(|name, _| name != "type" && name != "title");
            }
            json!({ "error": problem })
        }
    };
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A request as it stands.
pub(super) fn found(found: &Found, why: Option<&WhyNot>, seen: Seen) -> Value {
    let mut shape = json!({
        "requestId": &*found.request_id,
        "sessionId": found.session_id.to_string(),
        "tenant": found.tenant.to_string(),
        "state": found.stage.name(),
        "since": seen.moment(admitted(found)),
        "why": why.map(|why| why_shape(found, why, seen)),
    });
    if let (Stage::Ended(outcome), Value::Object(fields)) = (&found.stage, &mut shape) {
        fields.extend(ended(outcome));
    }
    shape
}

/// Why a request waits, and what says more about it.
fn why_shape(found: &Found, why: &WhyNot, seen: Seen) -> WhyShape {
    let hint = match why.reason {
        "tenant_limit" => {
            let tenant = typed_option("--tenant", &found.tenant.to_string());
            Some(format!("`sluicegate requests {tenant}` lists what this tenant has"))
        }
        "no_worker" | "memory" => {
            Some("`sluicegate workers` shows what each worker does".to_owned())
        }
        _ => None,
    };
    WhyShape::of_request(why, hint, seen)
}

/// A request that waits or runs, as lists show it: without its prompt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PendingShape {
    request_id: String,
    session_id: String,
    tenant: String,
    priority: &'static str,
    state: &'static str,
    since: String,
    /// How long ago it was let in.
    age_ms: u64,
    running_ms: Option<u64>,
    worker_id: Option<String>,
    why: Option<WhyShape>,
}

impl PendingShape {
    pub(super) fn new(pending: &Pending, why: Option<&WhyNot>, seen: Seen) -> Self {
        let found = &pending.found;
        // It may have got its turn since it was seen.
        let why = why.filter(|_| found.stage == Stage::Queued);
        Self {
            request_id: found.request_id.to_string(),
            session_id: found.session_id.to_string(),
            tenant: found.tenant.to_string(),
            priority: found.priority.name(),
            state: found.stage.name(),
            since: seen.moment(admitted(found)),
            age_ms: millis(pending.age),
            running_ms: pending.running_for.map(millis),
            worker_id: pending.worker.as_ref().map(ToString::to_string),
            why: why.map(|why| why_shape(found, why, seen)),
        }
    }
}

/// When a request was let in: its id says so.
fn admitted(found: &Found) -> Timestamp {
    let millis = i64::try_from(found.admitted_at()).unwrap_or(0);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// What followers hear at the end: the same as whoever polls.
pub(super) fn outcome(request: &str, session: &str, outcome: &Arc<Outcome>) -> Value {
    let stage = Stage::Ended(Arc::clone(outcome));
    let mut shape = json!({ "requestId": request, "sessionId": session, "state": stage.name() });
    if let Value::Object(fields) = &mut shape {
        fields.extend(ended(outcome));
    }
    shape
}

/// A request in the shape of a message, for those who ask why something waits and do not know what it is.
pub(super) fn as_message(found: &Found, why: Option<&WhyNot>, seen: Seen) -> MessageShape {
    let state = match &found.stage {
        Stage::Queued => "waiting",
        Stage::Running => "running",
        Stage::Ended(_) => "done",
    };
    MessageShape {
        id: found.request_id.to_string(),
        kind: Kind::Request,
        queue: NAME.to_owned(),
        // It is in no pool that has a code.
        pool: None,
        group: Some(found.session_id.to_string()),
        tenant: Some(found.tenant.to_string()),
        priority: found.priority.name(),
        state,
        attempt: u32::from(!matches!(found.stage, Stage::Queued)),
        since: seen.moment(admitted(found)),
        visible_at: None,
        why: why.map(|why| why_shape(found, why, seen)),
        last_error: None,
        parked: None,
    }
}

/// A worker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerShape {
    pub(super) id: String,
    pid: Option<u32>,
    state: WorkerState,
    tenant: Option<String>,
    request_id: Option<String>,
    session: Option<String>,
    started_at: String,
    last_active_at: String,
    requests_processed: u32,
    errors_encountered: u32,
    memory_bytes: u64,
}

impl WorkerShape {
    pub(super) fn new(view: &WorkerView, seen: Seen) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
        let time = |then: Instant| seen.ago(then.elapsed());
        Self {
            id: view.id.to_string(),
            pid: view.pid,
            state: view.state,
            tenant: text(&view.tenant),
            request_id: text(&view.request),
            session: text(&view.session),
            started_at: time(view.started_at),
            last_active_at: time(view.last_active_at),
            requests_processed: view.requests_processed,
            errors_encountered: view.errors_encountered,
            memory_bytes: view.memory_bytes,
        }
    }
}
