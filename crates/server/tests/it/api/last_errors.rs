//! How the last attempt failed, and what the endpoint said to it.

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::schema::Document;
use super::stage::{Reply, Stage};

const TOKEN: &str = "tok-secret-1";
const WORDS: &str = r#"{"ack":false,"delaySeconds":600,"error":"card 4711 expired"}"#;

async fn publish(stage: &Stage, id: &str, url: &str) {
    let body = json!({
        "id": id, "mediationTarget": url, "poolCode": "P", "messageGroupId": id, "authToken": TOKEN,
    });
    let reply = stage.post("/api/v1/messages", &body.to_string()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}

#[track_caller]
fn check(last: &Value, status: impl Into<Value>, target: &str, body: &str) {
    assert_eq!(last["status"], status.into(), "{last}");
    assert_eq!(last["target"], target, "{last}");
    assert_eq!(last["body"], body, "{last}");
    assert!(last["at"].as_str().is_some_and(|at| at.parse::<jiff::Timestamp>().is_ok()), "{last}");
    assert!(last["error"].as_str().is_some_and(|error| !error.is_empty()), "{last}");
}

/// Wherever it waits to be tried again: in the daemon (strict), or in its queue.
#[tokio::test]
async fn a_message_that_waits_shows_what_its_endpoint_said() {
    for ordering in ["strict", "batch", "none"] {
        let endpoint = Endpoint::start().await;
        endpoint.otherwise(Answer::ok().body(WORDS));
        let stage =
            Stage::start(&format!("[[pool]]\ncode = \"P\"\nordering = {ordering:?}\n")).await;
        publish(&stage, "m", &endpoint.url("/in?key=secret-2")).await;
        let delayed = |reply: &Reply| reply.json()["state"] == "delayed";
        let reply = stage.until("/api/v1/messages/m", delayed).await;
        Document::of(&stage).await.check("get", "/api/v1/messages/{id}", &reply);
        check(&reply.json()["lastError"], 200, &endpoint.url("/in"), WORDS);
        assert!(!reply.body.contains("secret-2"), "{reply:?}");
    }
}

#[tokio::test]
async fn a_message_that_runs_again_shows_how_it_failed_before() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::ok().body(r#"{"ack":false,"delaySeconds":1}"#)]);
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start("[[pool]]\ncode = \"P\"\n").await;
    publish(&stage, "m", &endpoint.url("/in")).await;
    endpoint.wait_for(2).await;
    let runs = |reply: &Reply| reply.items().iter().any(|one| one["state"] == "running");
    let reply = stage.until("/api/v1/inflight", runs).await;
    let words = r#"{"ack":false,"delaySeconds":1}"#;
    check(&reply.items()[0]["lastError"], 200, &endpoint.url("/in"), words);
}

#[tokio::test]
async fn a_parked_message_shows_what_its_endpoint_said() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(404).body("no such order"));
    let stage = Stage::start("[[pool]]\ncode = \"P\"\n").await;
    publish(&stage, "m", &endpoint.url("/in")).await;
    let parked = stage.until("/api/v1/parked", |reply| !reply.items().is_empty()).await;
    Document::of(&stage).await.check("get", "/api/v1/parked", &parked);
    check(&parked.items()[0]["lastError"], 404, &endpoint.url("/in"), "no such order");
    let shown = stage.get("/api/v1/messages/m").await.json();
    check(&shown["lastError"], 404, &endpoint.url("/in"), "no such order");
}

#[tokio::test]
async fn a_paused_host_shows_what_it_said() {
    let endpoint = Endpoint::start().await;
    let answer = Answer::status(429).header("retry-after", "600").body("quota of today used up");
    endpoint.otherwise(answer);
    let stage = Stage::start("[[pool]]\ncode = \"P\"\n").await;
    publish(&stage, "m", &endpoint.url("/in")).await;
    let delayed = |reply: &Reply| reply.json()["state"] == "delayed";
    let shown = stage.until("/api/v1/messages/m", delayed).await.json();
    check(&shown["lastError"], 429, &endpoint.url("/in"), "quota of today used up");
}

#[tokio::test]
async fn a_breaker_shows_the_last_failure() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(503).body("database is down"));
    let toml = "[http.breaker]\nvolume = 1\nopen_for = \"10m\"\n[[pool]]\ncode = \"P\"\n";
    let stage = Stage::start(toml).await;
    let healthy = Endpoint::start().await;
    publish(&stage, "well", &healthy.url("/in")).await;
    publish(&stage, "m", &endpoint.url("/in?key=secret-2")).await;
    let both = |reply: &Reply| {
        let items = reply.items();
        items.len() == 2 && items.iter().any(|one| one["state"] == "open")
    };
    let reply = stage.until("/api/v1/breakers", both).await;
    Document::of(&stage).await.check("get", "/api/v1/breakers", &reply);
    let of = |endpoint: &Endpoint| {
        let name = json!(endpoint.address().to_string());
        reply.items().into_iter().find(|one| one["name"] == name).expect("a breaker")
    };
    check(&of(&endpoint)["lastError"], 503, &endpoint.url("/in"), "database is down");
    assert_eq!(of(&healthy)["lastError"], Value::Null);
    // A message that no call was made for keeps what was said to the calls before.
    let shown = stage.get("/api/v1/messages/m").await.json();
    check(&shown["lastError"], 503, &endpoint.url("/in"), "database is down");
}

/// Whatever an endpoint says is cut, is text, and has no token in it.
#[tokio::test]
async fn what_is_shown_of_a_reply_is_short_plain_and_without_secrets() {
    let echo = format!("{}{TOKEN} is no token, {TOKEN}", "x".repeat(1_020));
    let cases: [(Vec<u8>, String); 6] = [
        (Vec::new(), String::new()),
        ("ü".repeat(2_000).into(), "ü".repeat(512)),
        (format!("x{}", "ü".repeat(2_000)).into(), format!("x{}", "ü".repeat(511))),
        (b"\x00\x1b[2J\xff\xfe ok\n".to_vec(), "\u{fffd}\u{fffd}[2J\u{fffd}\u{fffd} ok\n".into()),
        (vec![0xff; 5_000], "\u{fffd}".repeat(341)),
        (echo.into(), format!("{}*** ", "x".repeat(1_020))),
    ];
    for (said, shown) in cases {
        let endpoint = Endpoint::start().await;
        endpoint.otherwise(Answer::status(400).body(said));
        let stage = Stage::start("[[pool]]\ncode = \"P\"\n").await;
        publish(&stage, "m", &endpoint.url("/in")).await;
        let parked = stage.until("/api/v1/parked", |reply| !reply.items().is_empty()).await;
        let last = &parked.items()[0]["lastError"];
        let body = last["body"].as_str().unwrap_or_default();
        assert_eq!(body, shown.get(..body.len()).unwrap_or(&shown), "{last}");
        assert!(body.len() <= 1_024 && body.len() + 3 >= shown.len().min(1_024), "{}", body.len());
        assert!(!parked.body.contains(TOKEN) && !body.contains("tok-"), "{parked:?}");
    }
}
