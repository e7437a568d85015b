//! The event store over HTTP: appending, asking, projecting, and what bounds it.

use futures_util::future::join_all;
use serde_json::{Value, json};
use sluicegate_event_store::{Position, Query, fold};

use super::stage::{Ask, Reply, Stage};

const EVENTS: &str = "/api/v1/events";
const LINES: [(&str, &str); 1] = [("accept", "application/x-ndjson")];

pub(super) async fn post(stage: &Stage, path: &str, body: Value) -> Reply {
    stage.post(&format!("{EVENTS}{path}"), &body.to_string()).await
}

/// Appends one event, and answers with its position.
pub(super) async fn append(stage: &Stage, of: &str, tag: &str, data: Value) -> u64 {
    let body = json!({ "events": [{ "type": of, "tags": [tag], "data": data }] });
    let reply = post(stage, "", body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()["position"].as_u64().expect("a position")
}

fn positions(items: &[Value]) -> Vec<u64> {
    items.iter().map(|item| item["position"].as_u64().expect("a position")).collect()
}

#[tokio::test]
async fn what_was_appended_is_found() {
    let stage = Stage::start("").await;
    let body = json!({ "events": [
        { "type": "CourseDefined", "tags": ["course:c1"], "data": { "seats": 2 } },
        { "type": "StudentSubscribed", "tags": ["student:s1", "course:c1"] },
        { "type": "Größe ✓", "tags": ["κλειδί:τιμή, mit Komma"], "data": [1, null] },
    ] });
    let reply = post(&stage, "", body).await;
    assert_eq!((reply.status, reply.json()), (201, json!({ "position": 3 })));
    let found =
        post(&stage, "/query", json!({ "items": [{ "tags": ["course:c1"] }] })).await.json();
    assert_eq!(found["next"], Value::Null);
    let items = found["items"].as_array().unwrap();
    assert_eq!(positions(items), [1, 2]);
    assert_eq!(
        (&items[0]["type"], &items[0]["data"]),
        (&json!("CourseDefined"), &json!({"seats": 2}))
    );
    assert_eq!(
        (&items[1]["tags"], &items[1]["data"]),
        (&json!(["course:c1", "student:s1"]), &json!({}))
    );
    assert!(items[0]["time"].as_str().unwrap().ends_with('Z'));
    let items = json!([{ "types": ["CourseDefined"] }, { "tags": ["κλειδί:τιμή, mit Komma"] }]);
    let found = post(&stage, "/query", json!({ "items": items, "after": 0 })).await;
    assert_eq!(positions(&found.items()), [1, 3]);
    for body in [json!({}), json!({ "items": [] }), json!({ "items": [{}] })] {
        assert_eq!(post(&stage, "/query", body).await.items().len(), 3);
    }
}

#[tokio::test]
async fn a_condition_that_does_not_hold_refuses_all() {
    let stage = Stage::start("").await;
    let at = append(&stage, "Subscribed", "course:c1", json!({})).await;
    let matching = json!({ "items": [{ "types": ["Subscribed"], "tags": ["course:c1"] }] });
    let body = |after: Value| {
        json!({ "events": [{ "type": "Subscribed", "tags": ["course:c1"] }],
            "condition": { "failIfEventsMatch": matching, "after": after } })
    };
    for after in [json!(0), Value::Null] {
        let problem = post(&stage, "", body(after)).await.problem(409, "append_condition_failed");
        assert_eq!(problem["position"], at);
    }
    let reply = post(&stage, "", body(json!(at))).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(post(&stage, "/query", json!({})).await.items().len(), 2);
    let page = stage.get("/metrics").await.body;
    for line in ["sluicegate_events_appended_total 2", "sluicegate_append_conflicts_total 2"] {
        assert!(page.contains(line), "{line}: {page}");
    }
}

#[tokio::test]
async fn a_projection_comes_with_the_condition_to_append_under() {
    let stage = Stage::start("").await;
    append(&stage, "Defined", "course:c1", json!({ "seats": 2, "name": "a" })).await;
    append(&stage, "Renamed", "course:c1", json!({ "name": "b", "big": 1 })).await;
    let items = json!([{ "tags": ["course:c1"] }]);
    let projector = |fold: &str| json!({ "id": fold, "items": items, "fold": fold });
    let all: Value = ["count", "exists", "last", "merge"].map(projector).to_vec().into();
    let none = json!({ "id": "none", "items": [{ "tags": ["course:c2"] }], "fold": "last" });
    let mut projectors = all.as_array().unwrap().clone();
    projectors.push(none);
    let reply = post(&stage, "/project", json!({ "projectors": projectors })).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let projected = reply.json();
    let states = json!({
        "count": 2, "exists": true, "last": { "name": "b", "big": 1 },
        "merge": { "seats": 2, "name": "b", "big": 1 }, "none": null,
    });
    assert_eq!(projected["states"], states);
    assert_eq!(projected["condition"]["after"], 2);
    // It is taken as it came.
    let append = json!({ "events": [{ "type": "Subscribed", "tags": ["course:c1"] }],
        "condition": projected["condition"] });
    assert_eq!(post(&stage, "", append.clone()).await.status, 201);
    post(&stage, "", append).await.problem(409, "append_condition_failed");
}

#[tokio::test]
async fn a_list_comes_in_parts_and_each_event_once() {
    let stage = Stage::start("").await;
    for n in 0..25 {
        append(&stage, if n % 2 == 0 { "Even" } else { "Odd" }, "k:v", json!({ "n": n })).await;
    }
    for size in [1, 4, 13, 14] {
        let (mut seen, mut after) = (Vec::new(), json!(0));
        while !after.is_null() {
            let items = json!([{ "types": ["Even"] }]);
            let body = json!({ "items": items, "after": after, "limit": size });
            let part = post(&stage, "/query", body).await;
            assert!(part.items().len() <= size);
            seen.extend(positions(&part.items()));
            after = part.json()["next"].clone();
        }
        assert_eq!(seen, (1..=25).step_by(2).collect::<Vec<u64>>());
    }
}

/// The lines of an answer, which came whole.
fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.body.ends_with("0\r\n\r\n"), "it is whole: {reply:?}");
    let lines = reply.body.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn all_of_them_come_as_lines() {
    let stage = Stage::start("").await;
    let event = json!({ "type": "A", "tags": ["k:v"], "data": { "n": 1 } });
    for _ in 0..3 {
        let batch: Vec<&Value> = vec![&event; 700];
        assert_eq!(post(&stage, "", json!({ "events": batch })).await.status, 201);
    }
    let ask = async |body: &str| {
        stage.ask(Ask { line: "POST /api/v1/events/query", headers: &LINES, body }).await
    };
    let reply = ask("{}").await;
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(positions(&lines(&reply)), (1..=2_100).collect::<Vec<u64>>());
    let some = lines(&ask(r#"{"after":10,"limit":1500}"#).await);
    assert_eq!(positions(&some), (11..=1_510).collect::<Vec<u64>>());
    ask(r#"{"items":[{"tag":"k:v"}]}"#).await.problem(422, "invalid_field");
    assert_eq!(ask(r#"{"items":[{"types":["B"]}]}"#).await.body, "");
}

#[tokio::test]
async fn what_may_not_be_is_named() {
    let stage = Stage::start("").await;
    let event = |of: Value, tags: Value, data: Value| {
        ("", json!({ "events": [{ "type": of, "tags": tags, "data": data }] }))
    };
    let (a, tags, data) = (|| json!("A"), || json!(["k:v"]), || json!({}));
    let many = vec![json!({ "type": "A", "tags": ["k:v"] }); 1_001];
    let cases = [
        (event(json!("A\u{0}"), tags(), data()), "events[0].type"),
        (event(json!("A".repeat(65)), tags(), data()), "events[0].type"),
        (event(a(), json!([]), data()), "events[0].tags"),
        (event(a(), json!(["k"]), data()), "events[0].tags[0]"),
        (event(a(), json!(["k:v", "k:\u{0}"]), data()), "events[0].tags[1]"),
        (event(a(), tags(), json!({ "a": "\u{0}" })), "events[0].data"),
        (event(a(), tags(), json!("x".repeat(1 << 20))), "events[0].data"),
        (("", json!({ "events": many })), "events"),
        (("", json!({ "events": [] })), "events"),
        (("", json!({ "event": [] })), "event"),
        (("/query", json!({ "items": [{ "tags": ["k:\u{0}"] }] })), "items[0].tags[0]"),
        (("/query", json!({ "limit": 1_001 })), "limit"),
        (
            ("/project", json!({ "projectors": [{ "id": "a", "fold": "sum" }] })),
            "projectors[0].fold",
        ),
    ];
    for ((path, body), field) in cases {
        let problem = post(&stage, path, body).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
    for path in ["", "/query", "/project"] {
        stage.post(&format!("{EVENTS}{path}"), "{").await.problem(400, "malformed_json");
        let path = format!("{EVENTS}{path}?after=1");
        stage.post(&path, "{}").await.problem(400, "bad_request");
    }
    assert!(post(&stage, "/query", json!({})).await.items().is_empty(), "nothing was appended");
    append(&stage, "A", "k:v", json!([1])).await;
    let merge = json!({ "projectors": [{ "id": "a", "fold": "merge" }] });
    let problem = post(&stage, "/project", merge).await.problem(422, "fold_failed");
    assert_eq!(problem["position"], 1);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let stage = Stage::start("").await;
    let body = "x".repeat(17 << 20);
    let problem = stage.post(EVENTS, &body).await.problem(413, "too_large");
    assert_eq!(problem["limit"], 16 << 20);
}

#[tokio::test]
async fn projections_beyond_the_limit_are_refused_with_the_true_counts() {
    const FEW: &str = "[events]\nmax_concurrent_projections = 2\n";
    let stage = Stage::start(FEW).await;
    append(&stage, "A", "k:v", json!({})).await;
    let store = stage.daemon.events().await.unwrap();
    let count = || fold::count(Query::all());
    let first = store.project_stream(count(), Position::START).await.unwrap();
    let second = store.project_stream(count(), Position::START).await.unwrap();
    let body = json!({ "projectors": [{ "id": "a", "fold": "count" }] });
    let refused = post(&stage, "/project", body.clone()).await;
    let problem = refused.problem(429, "too_many_projections");
    assert_eq!((&problem["limit"], &problem["inUse"]), (&json!(2), &json!(2)));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let page = stage.get("/metrics").await.body;
    for line in ["sluicegate_projections_running 2", "sluicegate_projections_rejected_total 1"] {
        assert!(page.contains(line), "{line}: {page}");
    }
    // More are allowed, at once.
    stage.rewrite("[events]\nmax_concurrent_projections = 3\nmax_projection_tasks = 7\n");
    let reloaded = stage.post("/api/v1/config/reload", "").await.json();
    assert_eq!(reloaded["needsRestart"], json!([]), "{reloaded}");
    assert_eq!(post(&stage, "/project", body.clone()).await.status, 200);
    assert_eq!(store.settings().max_projection_tasks, 7);
    let shown = &stage.get("/api/v1/config").await.json()["events"];
    assert_eq!(shown["maxConcurrentProjections"], 3, "{shown}");
    drop((first, second));
    let all = join_all((0..3).map(|_| post(&stage, "/project", body.clone()))).await;
    assert!(all.iter().all(|reply| reply.status == 200));
    assert_eq!(store.stats().projections_running, 0);
}

#[tokio::test]
async fn the_read_token_asks_and_does_not_append() {
    let stage = Stage::start("[server]\ntoken = \"op\"\nread_token = \"look\"\n").await;
    let ask = async |line: &str, token: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        stage.ask(Ask { line, headers: &[("authorization", &bearer)], body }).await
    };
    let event = r#"{"events":[{"type":"A","tags":["k:v"]}]}"#;
    let project = r#"{"projectors":[{"id":"a","fold":"count"}]}"#;
    assert_eq!(ask("POST /api/v1/events", "op", event).await.status, 201);
    ask("POST /api/v1/events", "look", event).await.problem(403, "forbidden");
    assert_eq!(ask("POST /api/v1/events/query", "look", "{}").await.items().len(), 1);
    let projected = ask("POST /api/v1/events/project", "look", project).await;
    assert_eq!(projected.json()["states"]["a"], 1);
    ask("POST /api/v1/events/query", "other", "{}").await.problem(401, "unauthorized");
    stage.get("/api/v1/events/stream").await.problem(401, "unauthorized");
}

#[tokio::test]
async fn nothing_is_appended_while_the_daemon_ends() {
    let stage = Stage::start("").await;
    append(&stage, "A", "k:v", json!({})).await;
    stage.daemon.shutdown().await;
    let body = json!({ "events": [{ "type": "A", "tags": ["k:v"] }] });
    post(&stage, "", body).await.problem(503, "shutting_down");
}

/// Who uses no events pays nothing for them: there is not even a table.
#[tokio::test]
async fn the_store_is_opened_when_it_is_first_used() {
    let stage = Stage::start("").await;
    let tables = || {
        let file = rusqlite::Connection::open(stage.folder.path().join("state.db")).unwrap();
        let names = "SELECT count(*) FROM sqlite_master WHERE name LIKE '%event%'";
        file.query_row(names, [], |row| row.get::<_, u32>(0)).unwrap()
    };
    assert!(stage.get("/metrics").await.body.contains("sluicegate_events_appended_total 0"));
    assert_eq!(tables(), 0);
    append(&stage, "A", "k:v", json!({})).await;
    assert!(tables() > 0);
}
