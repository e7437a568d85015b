//! `/openapi.json`: made from the table of routes, so that it has all of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::LazyLock;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::problem::{CONTENT, Code};
use super::reply::typed;
use super::routes::{Answer, Route, What, routes};
use super::schemas::schemas;

/// `GET /openapi.json`
pub(crate) async fn show() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());
    typed(StatusCode::OK, "application/json", DOCUMENT.as_str())
}

/// The whole document.
fn document() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes() {
        let operation = operation(&route);
        paths.entry(route.path).or_default().insert(route.method.to_lowercase(), operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Bounded, fair, ordered dispatch of work",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, { "login": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "parameters": parameters(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "server.token, or server.read_token to look only; needed when set",
                },
                "login": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "sluicegate_PORT",
                    "description": "What POST /login sets; its name ends with the server's port",
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = in_path(route.path)
        .map(|name| {
            let schema = json!({ "type": "string" });
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    // Where events are followed, what comes after is no time.
    let key = |name: &'static str| {
        if route.path == EVENT_STREAM && name == "after" { "position" } else { name }
    };
    let named =
        |name: &&'static str| json!({ "$ref": format!("#/components/parameters/{}", key(name)) });
    parameters.extend(route.query.iter().map(named));
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(route),
    });
    if let Some(schema) = route.body {
        let media = if schema == "Login" { FORM } else { "application/json" };
        operation["requestBody"] =
            json!({ "required": true, "content": { media: { "schema": reference(schema) } } });
    }
    if route.open {
        operation["security"] = json!([]);
    }
    operation
}

const EVENT_STREAM: &str = "/api/v1/events/stream";
const FORM: &str = "application/x-www-form-urlencoded";

/// The names between braces.
fn in_path(path: &str) -> impl Iterator<Item = &str> {
    let segments = path.split('/');
    segments.filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

/// A name that no other has: the method and the words of the path.
fn operation_id(route: &Route) -> String {
    let path = route.path.strip_prefix("/api/v1").unwrap_or(route.path);
    let words = path.split(['/', '.', '{', '}']).filter(|word| !word.is_empty());
    let mut id = route.method.to_lowercase();
    for word in words {
        id.push('_');
        id.push_str(word);
    }
    id
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn responses(route: &Route) -> Value {
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for answer in &route.answers {
        let new = answered(route, *answer);
        match responses.entry(answer.status.to_string()) {
            Entry::Vacant(empty) => {
                empty.insert(new);
            }
            Entry::Occupied(mut other_form) => {
                merge(&mut other_form.get_mut()["content"], &new["content"])
            }
        }
    }
    let mut codes: BTreeMap<String, Vec<Code>> = BTreeMap::new();
    for code in codes_of(route) {
        let codes = codes.entry(code.status().as_u16().to_string()).or_default();
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    for (status, codes) in codes {
        responses.entry(status).or_insert_with(|| problem(&codes));
    }
    responses.entry("default".to_owned()).or_insert_with(|| problem(&[]));
    json!(responses)
}

/// Adds media types to others.
fn merge(content: &mut Value, more: &Value) {
    for (media, schema) in more.as_object().into_iter().flatten() {
        content[media] = schema.clone();
    }
}

/// The codes of a route: its own, those of its body, and what every request may meet with.
fn codes_of(route: &Route) -> impl Iterator<Item = Code> {
    const OF_BODIES: &[Code] = &[Code::SlowRequest, Code::TooLarge];
    const GUARDED: &[Code] = &[Code::Unauthorized, Code::Forbidden];
    const ANYWHERE: &[Code] = &[
        Code::BadRequest,
        Code::ForeignHost,
        Code::ForeignOrigin,
        Code::HeadTooLarge,
        Code::Internal,
        Code::Overloaded,
        Code::TimedOut,
    ];
    let if_so = |is_so: bool, codes: &'static [Code]| if is_so { codes } else { &[] };
    let changes = !route.open && route.method != "GET";
    [
        route.problems,
        if_so(route.body.is_some(), OF_BODIES),
        if_so(!route.open, GUARDED),
        if_so(changes, &[Code::ShuttingDown]),
        ANYWHERE,
    ]
    .into_iter()
    .flatten()
    .copied()
}

fn answered(route: &Route, answer: Answer) -> Value {
    let text = json!({ "type": "string" });
    let (media, schema) = match answer.what {
        What::Nothing => return json!({ "description": route.summary }),
        What::Json(schema) => ("application/json", reference(schema)),
        What::List(schema) => ("application/json", list_of(schema)),
        What::Text(media) => (media, text),
    };
    json!({ "description": route.summary, "content": { media: { "schema": schema } } })
}

fn list_of(schema: &str) -> Value {
    json!({
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": { "type": "array", "items": reference(schema) },
            "next": { "type": ["string", "null"], "description": "The cursor of the next part" },
        },
    })
}

fn problem(codes: &[Code]) -> Value {
    let says = |code: &Code| format!("`{}`: {}", code.label(), code.help());
    let words: Vec<String> = codes.iter().map(says).collect();
    let description = if words.is_empty() { "A problem".to_owned() } else { words.join(" ") };
    let schema = match codes {
        [] => reference("Problem"),
        codes => {
            let labels: Vec<&str> = codes.iter().map(|code| code.label()).collect();
            let narrowed = json!({ "properties": { "code": { "enum": labels } } });
            json!({ "allOf": [reference("Problem"), narrowed] })
        }
    };
    json!({ "description": description, "content": { CONTENT: { "schema": schema } } })
}

fn parameters() -> Value {
    let parameter = |name: &str, schema: Value, description: &str| json!({ "name": name, "in": "query", "schema": schema, "description": description });
    let text = json!({ "type": "string" });
    let many = json!({ "type": "array", "items": { "type": "string" } });
    let count = json!({ "type": "integer", "minimum": 0, "default": 0 });
    let severities = json!({ "type": "string", "enum": ["INFO", "WARNING", "ERROR", "CRITICAL"] });
    let states = json!({ "type": "string", "enum": ["queued", "running"] });
    let limit = json!({
        "type": "integer",
        "minimum": 1,
        "maximum": super::page::MOST,
        "default": super::page::USUAL,
    });
    json!({
        "limit": parameter("limit", limit, "How many items the part has at most"),
        "cursor": parameter("cursor", text.clone(), "The `next` of the part before"),
        "pool": parameter("pool", text.clone(), "Only those of this pool"),
        "group": parameter("group", text.clone(), "Only those of this group"),
        "code": parameter("code", text.clone(), "Only those that are parked for this"),
        "host": parameter("host", text.clone(), "Only those for this host, with or without its port"),
        "after": parameter("after", text.clone(), "Only from this time on: RFC 3339, or as long ago as 2h"),
        "position": parameter("after", count, "Only events after this position"),
        "type": parameter("type", many.clone(), "Only events of these types"),
        "tag": parameter("tag", many, "Only events with all of these tags"),
        "before": parameter("before", text.clone(), "Only before this time"),
        "ids": parameter("ids", text.clone(), "These, with commas between them: all or none"),
        "all": parameter("all", text.clone(), "`true` for all there are"),
        "dryRun": parameter("dryRun", text.clone(), "`true` to say what would be done, and do nothing"),
        "rate": parameter("rate", text.clone(), "At most so many a second"),
        "withSecrets": parameter("withSecrets", text.clone(), "`true` for tokens of messages too"),
        "behind": parameter("behind", text.clone(), "The `last` of the import before"),
        "state": parameter("state", states, "Only those that wait, or only those that run"),
        "tenant": parameter("tenant", text.clone(), "Only those of this tenant: platform:userId"),
        "severity": parameter("severity", severities, "Only those of this severity"),
        "queue": parameter(
            "queue",
            text,
            "The queue; without it the only one, or the one called `default`",
        ),
    })
}
