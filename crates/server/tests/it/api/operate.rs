//! What operators do.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_dispatch::{Message, Parked, ParkedCode, ParkedStore, Severity, Target};
use sluicegate_server::warnings::Code;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use sluicegate_testkit::scripted::grouped;

use super::schema::Document;
use super::stage::{Ask, Reply, Stage};

async fn patch(stage: &Stage, path: &str, body: &str) -> Reply {
    stage.ask(Ask { line: &format!("PATCH {path}"), body, ..Ask::default() }).await
}

#[tokio::test]
async fn limits_change_live() {
    let toml = "[[pool]]\ncode = \"P\"\nconcurrency = 5\nordering = \"strict\"\n";
    let stage = Stage::start(toml).await;
    let document = Document::of(&stage).await;
    let cases = [
        (r#"{"concurrency":7,"rateLimitPerMinute":60}"#, 7, json!(60)),
        (r#"{"concurrency":3}"#, 3, json!(60)),
        (r#"{"rateLimitPerMinute":null}"#, 3, json!(null)),
        (r#"{"rateLimitPerMinute":120}"#, 3, json!(120)),
        (r#"{"rateLimitPerMinute":0}"#, 3, json!(null)),
        ("{}", 3, json!(null)),
        ("", 3, json!(null)),
    ];
    for (body, concurrency, rate) in cases {
        let reply = patch(&stage, "/api/v1/pools/P", body).await;
        assert_eq!(reply.status, 200, "{body}: {reply:?}");
        document.check("patch", "/api/v1/pools/{code}", &reply);
        let listed = stage.get("/api/v1/pools").await.items();
        let listed = listed.iter().find(|pool| pool["code"] == "P").expect("the pool");
        for pool in [&reply.json(), listed] {
            assert_eq!(pool["concurrency"], concurrency, "{body}");
            assert_eq!(pool["rateLimitPerMinute"], rate, "{body}");
            assert_eq!(pool["ordering"], "strict", "what is not named stays");
        }
    }
}

#[tokio::test]
async fn wrong_limits_change_nothing() {
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 5\n").await;
    let cases = [
        (r#"{"concurrency":0}"#, 422, "invalid_field", Some("concurrency")),
        (r#"{"concurrency":100001}"#, 422, "invalid_field", Some("concurrency")),
        (r#"{"concurrency":"5"}"#, 422, "invalid_field", Some("concurrency")),
        (r#"{"concurrency":null}"#, 422, "invalid_field", Some("concurrency")),
        (r#"{"concurrency":2.5}"#, 422, "invalid_field", Some("concurrency")),
        (r#"{"concurrency":-1}"#, 422, "invalid_field", Some("concurrency")),
        (r#"{"rateLimitPerMinute":"6"}"#, 422, "invalid_field", Some("rateLimitPerMinute")),
        (r#"{"rateLimitPerMinute":-6}"#, 422, "invalid_field", Some("rateLimitPerMinute")),
        (r#"{"rateLimitPerMinute":4294967296}"#, 422, "invalid_field", Some("rateLimitPerMinute")),
        (r#"{"concurrency":9,"ordering":"none"}"#, 422, "invalid_field", Some("ordering")),
        ("[]", 422, "invalid_field", None),
        ("{", 400, "malformed_json", None),
    ];
    for (body, status, code, field) in cases {
        let problem = patch(&stage, "/api/v1/pools/P", body).await.problem(status, code);
        assert_eq!(problem["field"].as_str(), field, "{body}");
    }
    patch(&stage, "/api/v1/pools/NONE", "{}").await.problem(404, "unknown_pool");
    let pools = stage.get("/api/v1/pools").await.items();
    let pool = pools.iter().find(|pool| pool["code"] == "P").expect("the pool");
    assert_eq!((&pool["concurrency"], &pool["rateLimitPerMinute"]), (&json!(5), &json!(null)));
}

#[tokio::test]
async fn a_waiting_message_is_acknowledged_by_hand() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start("").await;
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "mediationTarget": url, "messageGroupId": "g" });
    stage.post("/api/v1/messages", &json!([message("runs"), message("waits")]).to_string()).await;
    endpoint.wait_for(1).await;
    stage.until("/api/v1/messages/waits", |reply| reply.json()["state"] == "waiting").await;
    stage.until("/api/v1/inflight", |reply| reply.items().len() == 2).await;
    stage.post("/api/v1/inflight/runs/ack", "").await.problem(409, "busy");
    stage.post("/api/v1/inflight/none/ack", "").await.problem(404, "not_in_flight");
    let reply = stage.post("/api/v1/inflight/waits/ack", "").await;
    assert_eq!(reply.json(), json!({ "id": "waits", "acked": true }));
    Document::of(&stage).await.check("post", "/api/v1/inflight/{id}/ack", &reply);
    stage.until("/api/v1/messages/waits", |reply| reply.status == 404).await;
    assert_eq!(endpoint.asked().len(), 1);
}

#[tokio::test]
async fn a_breaker_is_reset() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let toml = "[http.breaker]\nvolume = 1\nopen_for = \"10m\"\n";
    let stage = Stage::start(toml).await;
    let body = json!({ "id": "m", "mediationTarget": endpoint.url("/in") });
    stage.post("/api/v1/messages", &body.to_string()).await;
    let open = |reply: &Reply| reply.items().iter().any(|breaker| breaker["state"] == "open");
    let reply = stage.until("/api/v1/breakers", open).await;
    let breaker = &reply.items()[0];
    assert!(breaker["until"].is_string(), "{breaker}");
    let name = breaker["name"].as_str().unwrap().replace(':', "%3A");
    let reply = stage.post(&format!("/api/v1/breakers/{name}/reset"), "").await;
    assert_eq!((reply.status, &reply.json()["state"]), (200, &json!("closed")));
    Document::of(&stage).await.check("post", "/api/v1/breakers/{name}/reset", &reply);
    stage.post("/api/v1/breakers/none/reset", "").await.problem(404, "unknown_breaker");
}

#[tokio::test]
async fn a_pause_is_seen_and_lifted() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(429).header("retry-after", "600")]);
    let stage = Stage::start("").await;
    let body = json!({ "id": "m", "mediationTarget": endpoint.url("/in") });
    stage.post("/api/v1/messages", &body.to_string()).await;
    let reply = stage.until("/api/v1/pauses", |reply| !reply.items().is_empty()).await;
    let pause = &reply.items()[0];
    assert_eq!(pause["host"], json!(endpoint.address().to_string()));
    assert_eq!(pause["pool"], json!("DEFAULT-POOL"));
    assert!(pause["until"].is_string() && pause["reason"].is_string(), "{pause}");
    Document::of(&stage).await.check("get", "/api/v1/pauses", &reply);
    let why = stage.get("/api/v1/messages/m").await.json();
    assert_eq!(why["why"]["reason"], json!("rate_limited"), "{why}");
    let host = endpoint.address().to_string().replace(':', "%3A");
    stage.delete(&format!("/api/v1/pauses/{host}?pool=NONE")).await.problem(404, "unknown_pause");
    assert_eq!(stage.delete(&format!("/api/v1/pauses/{host}")).await.status, 204);
    assert_eq!(stage.get("/api/v1/pauses").await.items().len(), 0);
}

#[tokio::test]
async fn warnings_are_noted_and_removed() {
    let stage = Stage::start("").await;
    let raise = |severity, subject: &'static str| {
        stage.daemon.record().raise(Code::Routing, severity, subject, "words");
    };
    raise(Severity::Warning, "a");
    raise(Severity::Error, "b");
    assert_eq!(stage.get("/api/v1/warnings").await.items().len(), 2);
    let errors = stage.get("/api/v1/warnings?severity=error").await.items();
    assert_eq!((errors.len(), &errors[0]["subject"]), (1, &json!("b")));
    let id = errors[0]["id"].as_str().unwrap();
    let reply = stage.post(&format!("/api/v1/warnings/{id}/acknowledge"), "").await;
    assert_eq!((reply.status, &reply.json()["acknowledged"]), (200, &json!(true)));
    Document::of(&stage).await.check("post", "/api/v1/warnings/{id}/acknowledge", &reply);
    let first = stage.get("/api/v1/warnings?limit=1").await;
    let next = first.json()["next"].as_str().expect("there is one more").to_owned();
    let second = stage.get(&format!("/api/v1/warnings?limit=1&cursor={next}")).await;
    assert_eq!(
        (&first.items()[0]["subject"], &second.items()[0]["subject"]),
        (&json!("b"), &json!("a"))
    );
    let reply = stage.delete(&format!("/api/v1/warnings/{id}")).await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    for path in [format!("/api/v1/warnings/{id}"), "/api/v1/warnings/x".to_owned()] {
        stage.delete(&path).await.problem(404, "unknown_warning");
        let note = stage.post(&format!("{path}/acknowledge"), "").await;
        note.problem(404, "unknown_warning");
    }
    assert_eq!(stage.get("/api/v1/warnings").await.items().len(), 1);
}

/// Parks a message, or what is none, as the router would. All hold the same key.
async fn park(stage: &Stage, at: usize, url: Option<&str>) {
    let message = |url: &str| Message {
        target: Target::parse(url).expect("a target"),
        ..grouped(&format!("m{at}"), "P", "g")
    };
    let parked = Parked {
        queue: "default".into(),
        broker_id: format!("b{at}").into(),
        pool: url.map(|_| "P".into()),
        code: if url.is_some() { ParkedCode::Exhausted } else { ParkedCode::Malformed },
        reason: "words".to_owned(),
        status: None,
        attempts: 3,
        holds_key: url.is_some(),
        last_error: None,
        message: url.map(message).ok_or_else(|| "{\"authToken\":\"tok-secret-1\", 7".to_owned()),
    };
    stage.daemon.store().park(vec![parked]).await.expect("it is parked");
}

fn parked_ids(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_parked_message_is_replayed_or_discarded() {
    let (endpoint, stage) = (Endpoint::start().await, Stage::start("").await);
    let document = Document::of(&stage).await;
    let url = endpoint.url("/in");
    endpoint.then([Answer::status(400)]);
    let body = json!({ "id": "m", "mediationTarget": url, "authToken": "tok-secret-1" });
    stage.post("/api/v1/messages", &body.to_string()).await;
    let id = parked_ids(&stage.until("/api/v1/parked", |reply| !reply.items().is_empty()).await)
        .remove(0);
    let reply = stage.post(&format!("/api/v1/parked/{id}/replay"), "").await;
    let one = json!({ "replayed": 1, "left": 0, "why": null, "refused": [], "next": null });
    assert_eq!((reply.status, reply.json()), (200, one));
    document.check("post", "/api/v1/parked/{id}/replay", &reply);
    endpoint.wait_for(2).await;
    let asked = endpoint.asked();
    assert_eq!(asked[1].headers["authorization"], "Bearer tok-secret-1", "it keeps its token");
    stage.until("/api/v1/messages/m", |reply| reply.status == 404).await;
    stage.post(&format!("/api/v1/parked/{id}/replay"), "").await.problem(404, "unknown_parked");

    park(&stage, 1, Some(&url)).await;
    park(&stage, 2, Some(&url)).await;
    park(&stage, 3, None).await;
    let ids = parked_ids(&stage.get("/api/v1/parked").await);
    let behind = stage.post(&format!("/api/v1/parked/{}/replay", ids[1]), "").await;
    assert_eq!(behind.problem(409, "behind_earlier")["earlier"], json!(ids[0]));
    let malformed = &stage.get("/api/v1/parked").await.items()[2];
    assert_eq!(malformed["messageId"], Value::Null);
    assert_eq!((&malformed["code"], &malformed["pool"]), (&json!("malformed"), &Value::Null));
    assert!(malformed["message"].as_str().is_some_and(|raw| !raw.contains("secret")));
    stage.post(&format!("/api/v1/parked/{}/replay", ids[2]), "").await.problem(422, "malformed");
    let reply = stage.delete(&format!("/api/v1/parked/{}", ids[2])).await;
    assert_eq!((reply.status, reply.body.as_str()), (204, ""));
    stage.delete(&format!("/api/v1/parked/{}", ids[2])).await.problem(404, "unknown_parked");
    stage.delete("/api/v1/parked/x").await.problem(404, "unknown_parked");
    assert_eq!(parked_ids(&stage.get("/api/v1/parked").await), ids[..2]);
}

#[tokio::test]
async fn many_parked_messages_are_replayed_at_once() {
    let (endpoint, stage) = (Endpoint::start().await, Stage::start("").await);
    let document = Document::of(&stage).await;
    let url = endpoint.url("/in");
    let replay = async |body: &str| stage.post("/api/v1/parked/replay", body).await;
    for at in 0..4 {
        park(&stage, at, Some(&url)).await;
    }
    park(&stage, 4, None).await;
    let ids = parked_ids(&stage.get("/api/v1/parked").await);
    let refused = [
        (json!({}), 422, "invalid_field", None),
        (json!({ "all": false }), 422, "invalid_field", Some("all")),
        (json!({ "all": true, "pool": "P" }), 422, "invalid_field", None),
        (json!({ "pool": 7 }), 422, "invalid_field", Some("pool")),
        (json!({ "ids": [7] }), 422, "invalid_field", Some("ids")),
        (json!({ "who": [] }), 422, "invalid_field", Some("who")),
        (json!({ "ids": [ids[0], "999"] }), 404, "unknown_parked", None),
        (json!({ "ids": [ids[0], ids[4]] }), 422, "malformed", None),
        (json!({ "ids": [ids[0], ids[2]] }), 409, "behind_earlier", None),
    ];
    for (body, status, code, field) in refused {
        let problem = replay(&body.to_string()).await.problem(status, code);
        assert_eq!(problem["field"].as_str(), field, "{body}");
    }
    assert_eq!(parked_ids(&stage.get("/api/v1/parked").await), ids, "all or none");
    let cases = [
        (json!({ "ids": [ids[1], ids[0]] }), 2, 0, 3),
        (json!({ "pool": "DEFAULT-POOL" }), 0, 0, 3),
        (json!({ "pool": "P" }), 2, 0, 1),
        (json!({ "all": true }), 0, 1, 1),
    ];
    for (body, replayed, left, stay) in cases {
        let reply = replay(&body.to_string()).await;
        let why = format!("{} is no message, so it would only come back: discard it", ids[4]);
        let refused = json!({ "id": ids[4], "code": "malformed", "detail": why });
        let wanted = json!({
            "replayed": replayed,
            "left": left,
            "why": (left > 0).then_some(why),
            "refused": if left > 0 { json!([refused]) } else { json!([]) },
            "next": null,
        });
        assert_eq!(reply.json(), wanted, "{body}");
        document.check("post", "/api/v1/parked/replay", &reply);
        assert_eq!(parked_ids(&stage.get("/api/v1/parked").await).len(), stay, "{body}");
    }
    endpoint.wait_for(4).await;
    assert_eq!(endpoint.ids_of("/in"), ["m0", "m1", "m2", "m3"], "in order");
}

#[tokio::test]
async fn nothing_is_changed_while_it_ends() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start("[server]\ndrain = \"1s\"\n").await;
    let body = json!({ "id": "m", "mediationTarget": endpoint.url("/in") }).to_string();
    stage.post("/api/v1/messages", &body).await;
    endpoint.wait_for(1).await;
    let asking = async {
        // The daemon ends beside this; whether it has begun to is seen, not timed.
        while !stage.daemon.is_ending() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let lines = [
            "POST /api/v1/messages",
            "PATCH /api/v1/pools/DEFAULT-POOL",
            "POST /api/v1/config/reload",
            "DELETE /api/v1/parked/1",
        ];
        for line in lines {
            let reply = stage.ask(Ask { line, body: &body, ..Ask::default() }).await;
            reply.problem(503, "shutting_down");
        }
        assert_eq!(stage.get("/api/v1/messages/m").await.status, 200);
        assert_eq!(stage.get("/health/live").await.status, 200);
        assert_eq!(stage.get("/health/ready").await.status, 503);
    };
    tokio::join!(stage.daemon.shutdown(), asking);
}
