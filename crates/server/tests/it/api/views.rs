//! What the views show.

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::schema::Document;
use super::stage::{Ask, Reply, Stage, names};

const LISTS: &[&str] = &[
    "queues", "pools", "groups", "inflight", "tenants", "workers", "breakers", "warnings", "parked",
];

#[tokio::test]
async fn health_is_asked_without_more() {
    let stage = Stage::open("").await;
    let document = Document::of(&stage).await;
    let cases =
        [("/health", 503), ("/health/live", 200), ("/health/ready", 503), ("/health/startup", 503)];
    for (path, status) in cases {
        let reply = stage.get(path).await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        document.check("get", path, &reply);
    }
    stage.daemon.begin().await.unwrap();
    for (path, _) in cases {
        // An empty queue is connected once its first receive has come back.
        let up = stage.until(path, |reply| reply.json()["status"] == "UP").await;
        assert_eq!(up.status, 200, "{path}");
    }
}

/// A daemon at work: a message that runs, one behind it, one that waits for its time, one that is
/// parked, and one whose endpoint is not there.
async fn at_work() -> (Stage, Endpoint) {
    let endpoint = Endpoint::start().await;
    let stage =
        Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 5\nrate_limit_per_minute = 600\n")
            .await;
    let url = endpoint.url("/in");
    let message = |id: &str, target: &str| {
        json!({
            "id": id, "mediationTarget": target, "poolCode": "P", "messageGroupId": "g",
            "tenant": "alice", "authToken": "tok-secret-1",
        })
    };
    endpoint.then([Answer::status(400)]);
    stage.post("/api/v1/messages", &message("rejected", &url).to_string()).await;
    stage.until("/api/v1/parked", |reply| !reply.items().is_empty()).await;
    endpoint.otherwise(Answer::hang());
    let mut later = message("later", &url);
    later["delaySeconds"] = 600.into();
    let body = json!([message("runs", &url), message("waits", &url), later]);
    stage.post("/api/v1/messages", &body.to_string()).await;
    endpoint.wait_for(2).await;
    stage.until("/api/v1/inflight", |reply| reply.items().len() == 2).await;
    (stage, endpoint)
}

#[tokio::test]
async fn every_view_fits_its_schema() {
    let (stage, _endpoint) = at_work().await;
    let document = Document::of(&stage).await;
    for list in LISTS {
        let path = format!("/api/v1/{list}");
        let reply = stage.get(&path).await;
        assert_eq!(reply.items().is_empty(), *list == "workers", "{list}: {reply:?}");
        document.check("get", &path, &reply);
    }
    for path in ["/api/v1/config", "/api/v1/cluster", "/metrics", "/openapi.json", "/"] {
        document.check("get", path, &stage.get(path).await);
    }
    for id in ["runs", "waits", "later", "rejected"] {
        let reply = stage.get(&format!("/api/v1/messages/{id}")).await;
        document.check("get", "/api/v1/messages/{id}", &reply);
    }
}

#[tokio::test]
async fn every_view_has_what_was_promised() {
    let (stage, endpoint) = at_work().await;
    let cases: [(&str, &str); 8] = [
        ("queues", "name uri phase healthy depth inflight received acked retried lastPollAt"),
        (
            "pools",
            "code phase concurrency running queued capacity groups rateLimitPerMinute ordering \
             oldestWaitMs succeeded failed retried parked",
        ),
        ("groups", "pool group queued running head blockedUntil"),
        (
            "inflight",
            "id queue pool group tenant priority state attempt since visibleAt why runningMs",
        ),
        ("tenants", "id weight queued running served rejected oldestWaitMs"),
        ("breakers", "name state until calls failures"),
        ("warnings", "id code severity subject message count firstSeen lastSeen acknowledged"),
        (
            "parked",
            "id messageId queue pool group code reason status attempts parkedAt place lastError message",
        ),
    ];
    for (list, promised) in cases {
        let item = stage.get(&format!("/api/v1/{list}")).await.items().remove(0);
        for name in promised.split_whitespace() {
            assert!(names(&item).contains(&name), "{list} has no {name}: {item}");
        }
    }
    let queue = stage.get("/api/v1/queues").await.items().remove(0);
    let wanted = json!({
        "name": "default", "uri": "sqlite:default", "phase": "running", "healthy": true,
        "depth": 1, "inflight": 2, "received": 3, "acked": 1, "retried": 0, "trouble": null,
    });
    same(&queue, &wanted);
    let pools = stage.get("/api/v1/pools").await.items();
    let pool = pools.iter().find(|pool| pool["code"] == "P").expect("the pool");
    let wanted = json!({
        "phase": "running", "concurrency": 5, "running": 1, "queued": 1, "capacity": 100,
        "groups": 1, "rateLimitPerMinute": 600, "ordering": "batch", "succeeded": 0, "failed": 1,
        "parked": 1,
    });
    same(pool, &wanted);
    let group = stage.get("/api/v1/groups").await.items().remove(0);
    same(
        &group,
        &json!({
            "pool": "P", "group": "g", "queued": 1, "running": 1, "head": "runs",
            "blockedUntil": null,
        }),
    );
    let tenant = stage.get("/api/v1/tenants").await.items().remove(0);
    same(&tenant, &json!({ "id": "alice", "weight": 1, "queued": 1, "running": 1 }));
    let breaker = stage.get("/api/v1/breakers").await.items().remove(0);
    same(
        &breaker,
        &json!({ "name": endpoint.address().to_string(), "state": "closed", "until": null }),
    );
    let parked = stage.get("/api/v1/parked?pool=P").await.items().remove(0);
    same(
        &parked,
        &json!({
            "messageId": "rejected", "queue": "default", "pool": "P", "group": "g",
            "code": "rejected", "status": 400,
        }),
    );
    assert!(parked["message"].get("authToken").is_none(), "{parked}");
    assert!(stage.get("/api/v1/parked?pool=DEFAULT-POOL").await.items().is_empty());
    let running = stage.get("/api/v1/inflight").await.items();
    let running = running.iter().find(|item| item["id"] == "runs").expect("it runs");
    same(running, &json!({ "state": "running", "attempt": 1, "why": null, "tenant": "alice" }));
    assert!(running["runningMs"].is_u64(), "{running}");
}

fn same(given: &Value, wanted: &Value) {
    for (name, value) in wanted.as_object().expect("an object") {
        assert_eq!(&given[name], value, "{name}: {given}");
    }
}

#[tokio::test]
async fn a_parked_message_says_where_it_is() {
    let (stage, _endpoint) = at_work().await;
    let shown = stage.get("/api/v1/messages/rejected").await.json();
    same(&shown, &json!({ "state": "parked", "pool": "P", "group": "g", "tenant": "alice" }));
    let parked = stage.get("/api/v1/parked").await.items().remove(0);
    assert_eq!(shown["parked"]["id"], parked["id"]);
    assert_eq!(shown["since"], parked["parkedAt"]);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem() {
    let stage = Stage::start("").await;
    let cases = [
        ("GET /nothing", 404, "not_found"),
        ("GET /api/v1", 404, "not_found"),
        ("GET /api/v1/messages/", 404, "not_found"),
        ("GET /api/v1/messages/none", 404, "unknown_message"),
        ("GET /api/v1/messages/%FF", 400, "bad_request"),
        ("PUT /api/v1/pools", 405, "method_not_allowed"),
        ("DELETE /api/v1/messages/m", 405, "method_not_allowed"),
        ("POST /health", 405, "method_not_allowed"),
        ("DELETE /api/v1/workers/w1", 404, "unknown_worker"),
        ("BREW /", 405, "method_not_allowed"),
    ];
    for (line, status, code) in cases {
        let reply = stage.ask(Ask { line, ..Ask::default() }).await;
        reply.problem(status, code);
        assert_eq!(reply.header("allow").is_some(), status == 405, "{line}: {reply:?}");
    }
    let head = stage.ask(Ask { line: "HEAD /health/live", ..Ask::default() }).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let stage = Stage::start("").await;
    let reply = stage.get("/metrics").await;
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((reply.status, reply.header("content-type")), (200, Some(media)));
    assert!(reply.body.contains("sluicegate_queue_depth{queue=\"default\"} 0"), "{}", reply.body);
    assert!(reply.body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let stage = Stage::start("").await;
    let page = stage.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for outside in ["http://", "https://", "//", "<script src", "@import", "url("] {
        let code = page.body.lines().filter(|line| !line.trim_start().starts_with("// "));
        assert!(!code.into_iter().any(|line| line.contains(outside)), "{outside}");
    }
    assert!(!page.body.contains("innerHTML"), "texts go in as texts");
}

#[tokio::test]
async fn who_runs_does_not_wait() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start("").await;
    let body = json!({ "id": "m", "mediationTarget": endpoint.url("/in"), "tenant": "bob" });
    stage.post("/api/v1/messages", &body.to_string()).await;
    endpoint.wait_for(1).await;
    let old = |reply: &Reply| reply.items()[0]["runningMs"].as_u64().is_some_and(|ms| ms > 5);
    stage.until("/api/v1/inflight", old).await;
    let tenant = stage.get("/api/v1/tenants").await.items().remove(0);
    same(&tenant, &json!({ "id": "bob", "queued": 0, "running": 1, "oldestWaitMs": 0 }));
}
