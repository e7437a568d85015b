//! The document that describes the API.

use std::collections::BTreeSet;

use serde_json::Value;

use super::schema::Document;
use super::stage::{Ask, Reply, Stage};

/// Every route that users hold on to.
const SURFACE: &[&str] = &[
    "GET /",
    "POST /login",
    "GET /health",
    "GET /health/live",
    "GET /health/ready",
    "GET /health/startup",
    "GET /metrics",
    "GET /openapi.json",
    "POST /api/v1/messages",
    "GET /api/v1/messages/{id}",
    "GET /api/v1/queues",
    "GET /api/v1/pools",
    "PATCH /api/v1/pools/{code}",
    "GET /api/v1/groups",
    "GET /api/v1/inflight",
    "POST /api/v1/inflight/{id}/ack",
    "GET /api/v1/tenants",
    "GET /api/v1/workers",
    "DELETE /api/v1/workers/{id}",
    "GET /api/v1/pauses",
    "DELETE /api/v1/pauses/{host}",
    "GET /api/v1/breakers",
    "POST /api/v1/breakers/{name}/reset",
    "GET /api/v1/warnings",
    "POST /api/v1/warnings/{id}/acknowledge",
    "DELETE /api/v1/warnings/{id}",
    "GET /api/v1/parked",
    "GET /api/v1/parked/export",
    "POST /api/v1/parked/import",
    "POST /api/v1/parked/replay",
    "POST /api/v1/parked/{id}/replay",
    "DELETE /api/v1/parked/{id}",
    "GET /api/v1/config",
    "POST /api/v1/config/reload",
    "GET /api/v1/cluster",
    "GET /api/v1/stream",
    "POST /api/v1/requests",
    "GET /api/v1/requests",
    "GET /api/v1/requests/{id}",
    "DELETE /api/v1/requests/{id}",
    "GET /api/v1/requests/{id}/stream",
    "GET /api/v1/agents/metrics",
    "POST /api/v1/events",
    "POST /api/v1/events/query",
    "POST /api/v1/events/project",
    "GET /api/v1/events/stream",
];

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let mut all = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().expect("methods") {
            all.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    all
}

#[tokio::test]
async fn every_route_is_described() {
    let stage = Stage::start("").await;
    let document = Document::of(&stage).await;
    let known: BTreeSet<String> = operations(&document.0)
        .iter()
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    for line in SURFACE {
        assert!(known.contains(*line), "{line} is not described");
    }
    for (method, path, _) in operations(&document.0) {
        if path.ends_with("/stream") {
            continue;
        }
        let path = path
            .replace("{id}", "none")
            .replace("{code}", "none")
            .replace("{name}", "none")
            .replace("{host}", "none");
        let line = format!("{method} {path}");
        let reply = stage.ask(Ask { line: &line, ..Ask::default() }).await;
        let code = if reply.status >= 400 { reply.json()["code"].clone() } else { Value::Null };
        assert!(code != "not_found" && code != "method_not_allowed", "{line}: {reply:?}");
    }
}

#[tokio::test]
async fn the_document_is_sound() {
    let stage = Stage::start("").await;
    let document = Document::of(&stage).await;
    assert_eq!(document.0["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&document.0) {
        let line = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        assert!(!id.is_empty() && ids.insert(id), "{line}");
        assert!(operation["summary"].is_string(), "{line}");
        let parameters = operation["parameters"].as_array().expect("parameters");
        let parameters: Vec<&Value> = parameters.iter().map(|one| document.resolve(one)).collect();
        let in_path = |one: &&&Value| one["in"] == "path";
        let wanted = path.matches('{').count();
        assert_eq!(parameters.iter().filter(in_path).count(), wanted, "{line}");
        for parameter in parameters.iter().filter(in_path) {
            assert_eq!(parameter["required"], true, "{line}");
            let name = parameter["name"].as_str().expect("a name");
            assert!(path.contains(&format!("{{{name}}}")), "{line}");
        }
        for (status, response) in operation["responses"].as_object().expect("responses") {
            assert!(status == "default" || status.parse::<u16>().is_ok(), "{line}");
            assert!(response["description"].is_string(), "{line} {status}");
        }
    }
    references(&document, &document.0);
}

/// Checks that every reference points somewhere.
fn references(document: &Document, value: &Value) {
    match value {
        Value::Object(fields) => {
            document.resolve(value);
            fields.values().for_each(|value| references(document, value));
        }
        Value::Array(items) => items.iter().for_each(|value| references(document, value)),
        _ => {}
    }
}

/// A request to every route, by what is wrong with it.
async fn wrong(stage: &Stage, method: &str, path: &str) -> Vec<Reply> {
    let mut replies = Vec::new();
    let large = "x".repeat(1024 * 1024 + 1);
    let bodies = ["{", "[]", "7", r#"{"zqzq":1}"#, &large];
    for (query, body) in ["", "?zqzq=1", "?limit=x", "?cursor=%00", "?pool=zqzq", "?queue=zqzq"]
        .map(|query| (query, ""))
        .into_iter()
        .chain(bodies.map(|body| ("", body)))
    {
        let line = format!("{method} {path}{query}");
        replies.push(stage.ask(Ask { line: &line, body, ..Ask::default() }).await);
    }
    let line = format!("{method} {path}");
    for header in [("host", "a.example"), ("origin", "http://a.example")] {
        replies.push(stage.ask(Ask { line: &line, headers: &[header], ..Ask::default() }).await);
    }
    replies.push(
        stage
            .ask(Ask { line: &line, headers: &[("x", &"x".repeat(66_000))], ..Ask::default() })
            .await,
    );
    replies
}

/// What a route answers when something is wrong is what the document says of it, with its code.
#[tokio::test]
async fn every_problem_is_described() {
    let stage = Stage::start("").await;
    let document = Document::of(&stage).await;
    let mut met = BTreeSet::new();
    for (method, path, _) in operations(&document.0) {
        if path.ends_with("/stream") {
            continue;
        }
        let named = path.replace("{id}", "none").replace("{code}", "none");
        let named = named.replace("{name}", "none").replace("{host}", "%ff");
        for reply in wrong(&stage, &method, &named).await {
            if reply.header("content-type") == Some("application/problem+json") {
                met.insert(reply.json()["code"].as_str().unwrap_or_default().to_owned());
                document.check(&method.to_lowercase(), &path, &reply);
            }
        }
    }
    let wanted = [
        "bad_request",
        "malformed_json",
        "foreign_host",
        "foreign_origin",
        "head_too_large",
        "too_large",
    ];
    for code in wanted {
        assert!(met.contains(code), "{code} was not met: {met:?}");
    }
    // While it ends, and with a token.
    let guarded = Stage::start("[server]\ntoken = \"t\"\nread_token = \"r\"\n").await;
    for (method, path, _) in operations(&document.0) {
        let headers: [&[(&str, &str)]; 2] = [&[], &[("authorization", "Bearer r")]];
        for headers in headers {
            if path.ends_with("/stream") {
                continue;
            }
            let line = format!("{method} {}", path.replace(['{', '}'], ""));
            let reply = guarded.ask(Ask { line: &line, headers, ..Ask::default() }).await;
            if reply.header("content-type") == Some("application/problem+json") {
                document.check(&method.to_lowercase(), &path, &reply);
            }
        }
    }
    stage.daemon.shutdown().await;
    for (method, path, _) in operations(&document.0) {
        if method == "GET" {
            continue;
        }
        let line = format!("{method} {}", path.replace(['{', '}'], ""));
        let reply = stage.ask(Ask { line: &line, ..Ask::default() }).await;
        if reply.header("content-type") == Some("application/problem+json") {
            document.check(&method.to_lowercase(), &path, &reply);
        }
    }
}
