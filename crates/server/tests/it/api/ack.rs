//! Giving messages up by hand, wherever they wait.

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::schema::Document;
use super::stage::{Reply, Stage};

const STRICT: &str = "[[pool]]\ncode = \"P\"\nconcurrency = 1\nordering = \"strict\"\n";

async fn publish(stage: &Stage, messages: Value) {
    let reply = stage.post("/api/v1/messages", &messages.to_string()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}

async fn ack(stage: &Stage, id: &str) -> Reply {
    stage.post(&format!("/api/v1/inflight/{id}/ack"), "").await
}

/// A message that `why` can name can be acknowledged: behind another of its group, delayed, or not read yet.
#[tokio::test]
async fn a_message_that_waits_in_its_queue_is_acknowledged() {
    let endpoint = Endpoint::start().await;
    let hanging = endpoint.url("/hang");
    endpoint.then([Answer::hang()]);
    let stage = Stage::start(STRICT).await;
    let message = |id: &str, group: &str| json!({ "id": id, "poolCode": "P", "mediationTarget": hanging, "messageGroupId": group });
    let mut late = message("late", "other");
    late["delaySeconds"] = json!(600);
    publish(&stage, json!([message("runs", "g")])).await;
    endpoint.wait_for(1).await;
    publish(&stage, json!([message("behind", "g"), message("next", "g"), late])).await;
    let many: Vec<Value> =
        (0..200).map(|at| message(&format!("m{at}"), &format!("g{at}"))).collect();
    publish(&stage, json!(many)).await;
    let document = Document::of(&stage).await;
    for id in ["behind", "late", "m199"] {
        let why = stage.get(&format!("/api/v1/messages/{id}")).await;
        assert_eq!(why.status, 200, "{why:?}");
        let reply = ack(&stage, id).await;
        assert_eq!((reply.status, reply.json()), (200, json!({ "id": id, "acked": true })), "{id}");
        document.check("post", "/api/v1/inflight/{id}/ack", &reply);
        stage.get(&format!("/api/v1/messages/{id}")).await.problem(404, "unknown_message");
        ack(&stage, id).await.problem(404, "not_in_flight");
    }
    assert_eq!(stage.get("/api/v1/messages/next").await.status, 200, "the others stay");
    assert_eq!(stage.get("/api/v1/messages/m198").await.status, 200, "the others stay");
}

/// What was given up is never called, and what comes after it is.
#[tokio::test]
async fn what_was_acknowledged_in_its_queue_is_never_called() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(429).header("retry-after", "600")]);
    let stage = Stage::start(STRICT).await;
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "poolCode": "P", "mediationTarget": url, "messageGroupId": "g" });
    publish(&stage, json!([message("head"), message("given-up"), message("next")])).await;
    endpoint.wait_for(1).await;
    stage.until("/api/v1/pauses", |reply| !reply.items().is_empty()).await;
    assert_eq!(ack(&stage, "given-up").await.status, 200);
    let host = endpoint.address().to_string().replace(':', "%3A");
    assert_eq!(stage.delete(&format!("/api/v1/pauses/{host}")).await.status, 204);
    endpoint.wait_for(3).await;
    stage.until("/api/v1/messages/next", |reply| reply.status == 404).await;
    assert_eq!(endpoint.ids_of("/in"), ["head", "head", "next"]);
}

/// What cannot be acknowledged says what to do instead.
#[tokio::test]
async fn what_cannot_be_acknowledged_says_what_to_do() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(400), Answer::hang()]);
    let stage = Stage::start("").await;
    let url = endpoint.url("/in");
    publish(&stage, json!([{ "id": "parked", "mediationTarget": url }])).await;
    let parked = stage.until("/api/v1/parked", |reply| !reply.items().is_empty()).await.items();
    stage.until("/api/v1/messages/parked", |reply| reply.json()["state"] == "parked").await;
    publish(&stage, json!([{ "id": "runs", "mediationTarget": url }])).await;
    endpoint.wait_for(2).await;
    let number = parked[0]["id"].as_str().expect("an id");
    let cases = [
        ("parked", 404, "not_in_flight", format!("sluicegate discard {number}")),
        ("runs", 409, "busy", "try again".to_owned()),
        ("none", 404, "not_in_flight", "sluicegate why none".to_owned()),
    ];
    for (id, status, code, hint) in cases {
        let problem = ack(&stage, id).await.problem(status, code);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(&hint), "{id}: {detail}");
    }
}
