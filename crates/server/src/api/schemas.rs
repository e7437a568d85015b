//! The schemas of `/openapi.json`.

use serde_json::{Value, json};
use sluicegate_dispatch::ParkedCode;
use sluicegate_event_store::fold::Kind;

use super::parked_which::FILTERS;
use super::problem::Code;

/// A field of an object.
type Field = (&'static str, Value);

fn text() -> Value {
    json!({ "type": "string" })
}

fn maybe_text() -> Value {
    json!({ "type": ["string", "null"] })
}

fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

fn maybe_time() -> Value {
    json!({ "type": ["string", "null"], "format": "date-time" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn maybe_count() -> Value {
    json!({ "type": ["integer", "null"], "minimum": 0 })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// An object that always has these fields.
fn object(fields: impl IntoIterator<Item = Field>) -> Value {
    let fields: Vec<Field> = fields.into_iter().collect();
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": names, "properties": properties })
}

/// An object that may have these fields.
fn options(fields: impl IntoIterator<Item = Field>) -> Value {
    let mut schema = object(fields);
    schema["required"] = json!([]);
    schema
}

/// All of them, by name.
pub(crate) fn schemas() -> Value {
    let mut all = serde_json::Map::new();
    let parts = [messages(), views(), others(), requests(), events()];
    all.extend(parts.into_iter().flatten().map(|(name, schema)| (name.to_owned(), schema)));
    Value::Object(all)
}

/// What the event store takes and gives.
fn events() -> Vec<Field> {
    let names = || json!({ "type": "array", "maxItems": 256, "items": text() });
    let items = || {
        let item = options([("types", names()), ("tags", names())]);
        json!({ "type": "array", "maxItems": 256, "items": item })
    };
    let mut event = object([
        ("type", json!({ "type": "string", "minLength": 1, "maxLength": 64 })),
        ("tags", json!({ "type": "array", "minItems": 1, "maxItems": 64, "items": text() })),
        ("data", json!({})),
    ]);
    event["required"] = json!(["type", "tags"]);
    let mut condition =
        object([("failIfEventsMatch", options([("items", items())])), ("after", count())]);
    condition["required"] = json!(["failIfEventsMatch"]);
    let events = json!({ "type": "array", "minItems": 1, "maxItems": 1_000, "items": event });
    let mut append = object([("events", events), ("condition", condition.clone())]);
    append["required"] = json!(["events"]);
    let stored = object([
        ("position", count()),
        ("type", text()),
        ("tags", list(text())),
        ("data", json!({})),
        ("time", time()),
    ]);
    let mut projector =
        object([("id", text()), ("items", items()), ("fold", one_of(&Kind::ALL.map(Kind::name)))]);
    projector["required"] = json!(["id", "fold"]);
    let projectors = json!({ "type": "array", "minItems": 1, "maxItems": 100, "items": projector });
    let mut project = object([("projectors", projectors), ("after", count())]);
    project["required"] = json!(["projectors"]);
    let query = options([("items", items()), ("after", count()), ("limit", count())]);
    vec![
        ("Append", append),
        ("Appended", object([("position", count())])),
        ("EventQuery", query),
        ("EventPage", object([("items", list(stored)), ("next", maybe_count())])),
        ("Project", project),
        ("Projected", object([("states", json!({ "type": "object" })), ("condition", condition)])),
    ]
}

/// How the last attempt, or call, failed.
fn last_error() -> Value {
    let error = object([
        ("at", time()),
        ("status", maybe_count()),
        ("error", text()),
        ("target", text()),
        ("body", json!({ "type": ["string", "null"], "maxLength": 1024 })),
    ]);
    json!({ "oneOf": [error, { "type": "null" }] })
}

fn messages() -> Vec<Field> {
    let why = object([("reason", one_of(&REASONS)), ("detail", text()), ("until", maybe_time())]);
    let mut message = object([
        ("id", text()),
        ("kind", one_of(&["message", "request"])),
        ("queue", text()),
        ("pool", maybe_text()),
        ("group", maybe_text()),
        ("tenant", maybe_text()),
        ("priority", one_of(&["NORMAL", "HIGH", "SYSTEM", "ADMIN", "LOW"])),
        ("state", one_of(&["waiting", "delayed", "running", "parked", "done"])),
        ("attempt", count()),
        ("since", time()),
        ("visibleAt", maybe_time()),
        ("why", json!({ "oneOf": [why, { "type": "null" }] })),
        ("lastError", last_error()),
    ]);
    message["properties"]["parked"] =
        object([("id", text()), ("code", text()), ("reason", text())]);
    let running = object([("runningMs", maybe_count())]);
    let mut publication = options([
        ("id", json!({ "type": "string", "minLength": 1, "maxLength": 512 })),
        ("poolCode", maybe_text()),
        ("authToken", maybe_text()),
        ("mediationType", json!({ "enum": ["HTTP", null] })),
        ("mediationTarget", json!({ "type": "string", "format": "uri", "maxLength": 8192 })),
        ("messageGroupId", maybe_text()),
        ("highPriority", json!({ "type": ["boolean", "null"] })),
        ("payload", json!({})),
        ("tenant", maybe_text()),
        ("delaySeconds", maybe_count()),
        ("traceparent", maybe_text()),
    ]);
    publication["required"] = json!(["id", "mediationTarget"]);
    let many = json!({ "type": "array", "maxItems": 10_000, "items": reference("Publication") });
    let mut acked = object([("id", text()), ("acked", flag()), ("detail", text())]);
    acked["required"] = json!(["id", "acked"]);
    vec![
        ("Publication", publication),
        ("Messages", json!({ "oneOf": [reference("Publication"), many] })),
        ("Accepted", object([("accepted", count())])),
        ("Message", message),
        ("InFlight", json!({ "allOf": [reference("Message"), running] })),
        ("Acked", acked),
    ]
}

/// What a message can wait for.
const REASONS: [&str; 14] = [
    "group_busy",
    "group_retrying",
    "group_blocked",
    "pool_full",
    "rate_limited",
    "breaker_open",
    "tenant_limit",
    "session_busy",
    "no_worker",
    "memory",
    "delayed",
    "draining",
    "ready",
    "settling",
];

fn views() -> Vec<Field> {
    let phase = || one_of(&["running", "draining"]);
    let queue = object([
        ("name", text()),
        ("uri", maybe_text()),
        ("phase", phase()),
        ("healthy", flag()),
        ("trouble", maybe_text()),
        ("depth", maybe_count()),
        ("inflight", count()),
        ("received", count()),
        ("acked", count()),
        ("retried", count()),
        ("lastPollAt", maybe_time()),
    ]);
    let pool = object([
        ("code", text()),
        ("phase", phase()),
        ("concurrency", count()),
        ("running", count()),
        ("queued", count()),
        ("readAhead", count()),
        ("capacity", count()),
        ("groups", count()),
        ("rateLimitPerMinute", maybe_count()),
        ("ordering", one_of(&["batch", "strict", "none"])),
        ("oldestWaitMs", count()),
        ("succeeded", count()),
        ("failed", count()),
        ("retried", count()),
        ("parked", count()),
    ]);
    let group = object([
        ("pool", text()),
        ("group", text()),
        ("queued", count()),
        ("running", count()),
        ("head", text()),
        ("blockedUntil", maybe_time()),
        ("blocked", flag()),
    ]);
    let tenant = object([
        ("id", text()),
        ("weight", count()),
        ("queued", count()),
        ("running", count()),
        ("served", count()),
        ("failed", count()),
        ("rejected", count()),
        ("oldestWaitMs", count()),
    ]);
    let pause = object([("host", text()), ("pool", text()), ("until", time()), ("reason", text())]);
    let breaker = object([
        ("name", text()),
        ("state", one_of(&["closed", "open", "half-open"])),
        ("until", maybe_time()),
        ("calls", count()),
        ("failures", count()),
        ("lastError", last_error()),
    ]);
    let mut all = vec![("Queue", queue), ("Pool", pool), ("Group", group), ("Tenant", tenant)];
    all.extend([
        ("Pause", pause),
        ("Breaker", breaker),
        ("Worker", worker()),
        ("Warning", warning()),
    ]);
    all.push(("Parked", parked()));
    all
}

fn worker() -> Value {
    object([
        ("id", text()),
        ("pid", maybe_count()),
        ("state", text()),
        ("tenant", maybe_text()),
        ("requestId", maybe_text()),
        ("session", maybe_text()),
        ("startedAt", time()),
        ("lastActiveAt", maybe_time()),
        ("requestsProcessed", count()),
        ("errorsEncountered", count()),
        ("memoryBytes", maybe_count()),
    ])
}

fn warning() -> Value {
    object([
        ("id", text()),
        ("code", text()),
        ("severity", one_of(&["INFO", "WARNING", "ERROR", "CRITICAL"])),
        ("subject", text()),
        ("message", text()),
        ("count", count()),
        ("firstSeen", time()),
        ("lastSeen", time()),
        ("acknowledged", flag()),
        ("resolved", flag()),
        ("resolvedAt", maybe_time()),
    ])
}

fn parked() -> Value {
    object([
        ("id", text()),
        ("messageId", maybe_text()),
        ("queue", text()),
        ("pool", maybe_text()),
        ("group", maybe_text()),
        ("code", one_of(&ParkedCode::ALL.map(ParkedCode::label))),
        ("reason", text()),
        ("status", maybe_count()),
        ("attempts", count()),
        ("parkedAt", time()),
        ("place", maybe_count()),
        ("lastError", last_error()),
        ("message", json!({ "oneOf": [{ "type": "object" }, { "type": "string" }] })),
    ])
}

fn replay() -> Value {
    let mut fields = vec![("ids", list(text())), ("all", flag())];
    fields.extend(FILTERS.map(|name| (name, text())));
    fields.extend([("dryRun", flag()), ("rate", count()), ("limit", count()), ("cursor", text())]);
    options(fields)
}

fn replayed() -> Value {
    let refused = object([("id", maybe_text()), ("code", text()), ("detail", text())]);
    object([
        ("replayed", count()),
        ("left", count()),
        ("why", maybe_text()),
        ("refused", list(refused)),
        ("next", maybe_text()),
    ])
}

fn imported() -> Value {
    let errors = list(object([("line", count()), ("message", text())]));
    object([
        ("added", count()),
        ("present", count()),
        ("refused", count()),
        ("errors", errors),
        ("last", text()),
    ])
}

fn requests() -> Vec<Field> {
    let id = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let mut tenant = object([("platform", text()), ("userId", id), ("chatId", maybe_text())]);
    tenant["required"] = json!(["platform", "userId"]);
    let priority = || one_of(&["SYSTEM", "ADMIN", "NORMAL", "LOW"]);
    let mut request = options([
        ("tenant", json!({ "oneOf": [text(), tenant] })),
        ("priority", priority()),
        ("sessionId", json!({ "type": ["string", "null"], "maxLength": 128 })),
        ("message", json!({ "type": "string", "minLength": 1, "maxLength": 1_048_576 })),
        ("timeoutMs", json!({ "type": ["integer", "null"], "minimum": 1 })),
        ("idempotent", flag()),
        ("wait", flag()),
    ]);
    request["required"] = json!(["tenant", "message"]);
    let answer = || {
        [
            ("reply", json!({})),
            ("text", text()),
            ("queueWaitMs", count()),
            ("executionMs", count()),
            ("workerId", text()),
        ]
    };
    let ticket = || [("requestId", text()), ("sessionId", text())];
    let why = object([("reason", one_of(&REASONS)), ("detail", text()), ("until", maybe_time())]);
    let why = json!({ "oneOf": [why, { "type": "null" }] });
    let pending = object(ticket().into_iter().chain([
        ("tenant", text()),
        ("priority", priority()),
        ("state", one_of(&["queued", "running"])),
        ("since", time()),
        ("ageMs", count()),
        ("runningMs", maybe_count()),
        ("workerId", maybe_text()),
        ("why", why.clone()),
    ]));
    let mut state = object(ticket().into_iter().chain([
        ("tenant", text()),
        (
            "state",
            one_of(&["queued", "running", "completed", "failed", "cancelled", "interrupted"]),
        ),
        ("since", time()),
        ("why", why),
    ]));
    for (name, schema) in answer() {
        state["properties"][name] = schema;
    }
    state["properties"]["error"] =
        object([("code", text()), ("status", count()), ("detail", text())]);
    vec![
        ("Request", request),
        ("Ticket", object(ticket())),
        ("Reply", object(ticket().into_iter().chain(answer()))),
        ("RequestState", state),
        ("Pending", pending),
        ("AgentMetrics", json!({ "type": "object", "required": ["timestamp", "workersTotal"] })),
    ]
}

fn others() -> Vec<Field> {
    let labels: Vec<&str> = Code::ALL.iter().map(|code| code.label()).collect();
    let mut problem = object([
        ("type", text()),
        ("title", text()),
        ("status", count()),
        ("detail", text()),
        ("code", one_of(&labels)),
    ]);
    let fault = object([("index", count()), ("field", maybe_text()), ("message", text())]);
    let fault_in_file = object([
        ("line", count()),
        ("column", count()),
        ("key", text()),
        ("message", text()),
        ("help", maybe_text()),
    ]);
    problem["properties"]["field"] = text();
    problem["properties"]["errors"] = list(fault);
    problem["properties"]["problems"] = list(fault_in_file);
    let not_asked = object([("queue", text()), ("why", text())]);
    problem["properties"]["notAsked"] = list(not_asked);
    let names = || list(text());
    let applied = object([
        ("setPools", names()),
        ("removedPools", names()),
        ("addedQueues", names()),
        ("removedQueues", names()),
        ("agents", json!({ "type": "boolean" })),
    ]);
    let health = one_of(&["UP", "DEGRADED", "DOWN"]);
    vec![
        ("Problem", problem),
        ("Health", object([("status", health), ("issues", names())])),
        (
            "PoolChange",
            options([
                ("concurrency", json!({ "type": "integer", "minimum": 1, "maximum": 100_000 })),
                ("rateLimitPerMinute", maybe_count()),
            ]),
        ),
        ("Replay", replay()),
        ("Replayed", replayed()),
        ("ParkedLines", text()),
        ("Imported", imported()),
        (
            "Reloaded",
            object([("applied", applied), ("issues", names()), ("needsRestart", names())]),
        ),
        ("Config", json!({ "type": "object" })),
        ("Cluster", object([("mode", one_of(&["single"])), ("role", one_of(&["primary"]))])),
        ("Login", object([("token", text())])),
        ("Document", json!({ "type": "object", "required": ["openapi", "info", "paths"] })),
    ]
}
