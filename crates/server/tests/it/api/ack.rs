//! Giving messages up by hand, wherever they wait.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use sluicegate_dispatch::{Message, Target};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use sluicegate_testkit::scripted::{self, ScriptedSource};
use tokio::time::timeout;

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

/// Whoever gives a message up hears of it when its queue has that on the disk, and not before: `kill -9` right after
/// the answer does not bring it back.
#[tokio::test]
async fn an_acknowledgement_is_said_when_it_is_on_the_disk() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(200).body(r#"{"ack":false,"delaySeconds":600}"#));
    let stage = Stage::start(STRICT).await;
    let url = endpoint.url("/in");
    // A head that waits to be tried again, which is here.
    publish(&stage, json!([{ "id": "head", "poolCode": "P", "mediationTarget": url }])).await;
    stage.until("/api/v1/inflight", |reply| reply.body.contains(r#""state":"delayed""#)).await;
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    let mut asked = Box::pin(ack(&stage, "head"));
    let early = timeout(Duration::from_secs(1), &mut asked).await;
    assert!(early.is_err(), "it was said while nothing could be written: {early:?}");
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    let reply = asked.await;
    assert_eq!((reply.status, reply.json()["acked"].clone()), (200, json!(true)), "{reply:?}");
    stage.get("/api/v1/messages/head").await.problem(404, "unknown_message");
}

/// A queue that does not take it is said, with what becomes of the message; who asks again waits for the same.
#[tokio::test]
async fn an_acknowledgement_that_is_not_on_the_disk_is_a_failure() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(200).body(r#"{"ack":false,"delaySeconds":600}"#));
    let stage = Stage::start(STRICT).await;
    let url = endpoint.url("/in");
    publish(&stage, json!([{ "id": "head", "poolCode": "P", "mediationTarget": url }])).await;
    stage.until("/api/v1/inflight", |reply| reply.body.contains(r#""state":"delayed""#)).await;
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    let reply = ack(&stage, "head").await;
    let problem = reply.problem(503, "storage_failed");
    Document::of(&stage).await.check("post", "/api/v1/inflight/{id}/ack", &reply);
    let detail = problem["detail"].as_str().unwrap_or_default();
    for words in ["queue default", "not called any more", "`sluicegate why head`"] {
        assert!(detail.contains(words), "{detail}");
    }
    let mut again = Box::pin(ack(&stage, "head"));
    assert!(timeout(Duration::from_millis(500), &mut again).await.is_err(), "it waits too");
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    assert_eq!(again.await.status, 200);
    stage.get("/api/v1/messages/head").await.problem(404, "unknown_message");
    assert_eq!(endpoint.count(), 1, "it is not called again");
}

/// A head of a strict pool is settled in its turn: where all permits are taken for long, that is what is said, and not
/// that its queue is in trouble.
#[tokio::test]
async fn an_acknowledgement_that_waits_for_a_permit_says_so() {
    let endpoint = Endpoint::start().await;
    endpoint
        .then([Answer::status(200).body(r#"{"ack":false,"delaySeconds":600}"#), Answer::hang()]);
    let stage = Stage::start(STRICT).await;
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "poolCode": "P", "mediationTarget": url, "messageGroupId": id });
    publish(&stage, json!([message("head")])).await;
    stage.until("/api/v1/inflight", |reply| reply.body.contains(r#""state":"delayed""#)).await;
    publish(&stage, json!([message("hangs")])).await;
    endpoint.wait_for(2).await;
    let acked = ack(&stage, "head").await;
    assert_eq!((acked.status, &acked.json()["acked"]), (202, &json!(false)), "{}", acked.body);
    let detail = acked.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("pool P at 1 of 1"), "{detail}");
    let why = stage.get("/api/v1/messages/head").await.json();
    assert_eq!((&why["state"], &why["why"]["reason"]), (&json!("done"), &json!("pool_full")));
    assert!(why["why"]["detail"].as_str().is_some_and(|words| words.contains("1 of 1")), "{why}");
}

/// What waits behind another of its group is not called any more, and settled in its turn: the head is still the head.
#[tokio::test]
async fn an_acknowledgement_behind_another_of_its_group_says_so() {
    let stage = Stage::start(STRICT).await;
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::hang()]);
    let target = Target::parse(&endpoint.url("/in")).expect("a target");
    let message = |id: &str| Message { target: target.clone(), ..scripted::grouped(id, "P", "g") };
    let broker = ScriptedSource::new();
    let settings = sluicegate_dispatch::QueueSettings::new(1, 10);
    stage.daemon.router().add_queue("orders", settings, broker.clone()).await.expect("a queue");
    broker.hand_out(["head", "second"].map(|id| scripted::delivery(message(id))).to_vec());
    endpoint.wait_for(1).await;
    let acked = ack(&stage, "second").await;
    assert_eq!((acked.status, &acked.json()["acked"]), (202, &json!(false)), "{}", acked.body);
    let detail = acked.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("group head head is running"), "{detail}");
    let groups = stage.get("/api/v1/groups?pool=P").await.json();
    assert_eq!(groups["items"][0]["head"], "head", "{groups}");
    let second = stage.get("/api/v1/messages/second").await.json();
    assert_eq!(
        (&second["state"], &second["why"]["reason"]),
        (&json!("done"), &json!("group_busy"))
    );
}

/// A broker that has let a message go does not take its acknowledgement: it delivers it again.
#[tokio::test]
async fn an_acknowledgement_that_comes_too_late_is_a_failure() {
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 1\n").await;
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let target = Target::parse(&endpoint.url("/in")).expect("a target");
    let message = |id: &str| Message { target: target.clone(), ..scripted::grouped(id, "P", id) };
    let broker = ScriptedSource::new();
    let settings = sluicegate_dispatch::QueueSettings::new(1, 10);
    stage.daemon.router().add_queue("orders", settings, broker.clone()).await.expect("a queue");
    let late = scripted::delivery(message("late"));
    broker.expire(late.receipt.clone());
    broker.hand_out(vec![scripted::delivery(message("runs")), late]);
    endpoint.wait_for(1).await;
    let problem = ack(&stage, "late").await.problem(503, "storage_failed");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("queue orders") && detail.contains("delivered again"), "{detail}");
}

/// Wherever `why` finds a message, `ack` knows of it too: it gives it up, or says where it is and what to do.
#[tokio::test]
async fn whatever_can_be_found_is_not_said_to_be_gone() {
    let queue =
        |name: &str, uri: &str| format!("[[queue]]\nname = \"{name}\"\nuri = \"sqlite:{uri}\"\n");
    let stage = Stage::start(&queue("old", "old")).await;
    let late =
        json!([{ "id": "m", "mediationTarget": "http://127.0.0.1:9/", "delaySeconds": 600 }]);
    publish(&stage, late).await;
    // Taken out of the file; and, under the same name, put somewhere else.
    for other in [queue("new", "new"), queue("old", "elsewhere")] {
        stage.rewrite(&queue("old", "old"));
        assert_eq!(stage.post("/api/v1/config/reload", "").await.json()["issues"], json!([]));
        stage.rewrite(&other);
        let reloaded = stage.post("/api/v1/config/reload", "").await.json();
        let issue = reloaded["issues"][0].as_str().unwrap_or_default();
        assert!(issue.contains("1 messages") && issue.contains("sqlite:old"), "{reloaded}");
        let why = stage.get("/api/v1/messages/m").await;
        assert_eq!(why.status, 200, "{why:?}");
        Document::of(&stage).await.check("get", "/api/v1/messages/{id}", &why);
        let problem = ack(&stage, "m").await.problem(404, "not_in_flight");
        for words in [&why.json()["why"]["detail"], &problem["detail"]] {
            let words = words.as_str().unwrap_or_default();
            assert!(words.contains("sqlite:old") && !words.contains("gone"), "{words}");
        }
    }
    // It is as it says: with a queue there, under whatever name, it is there.
    stage.rewrite(&queue("again", "old"));
    assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
    assert_eq!(stage.get("/api/v1/messages/m").await.json()["state"], "delayed");
    assert_eq!(ack(&stage, "m").await.status, 200);
}

/// A parked message says the same to whoever asks why and to whoever would acknowledge it.
#[tokio::test]
async fn a_parked_message_says_what_works() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(400));
    let stage = Stage::start(&format!("{STRICT}on_rejected = \"park\"\n")).await;
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "poolCode": "P", "mediationTarget": url, "messageGroupId": "g" });
    publish(&stage, json!([message("first"), message("behind")])).await;
    stage.until("/api/v1/parked", |reply| reply.items().len() == 2).await;
    let is_parked = |reply: &Reply| reply.json()["state"] == "parked";
    let why = stage.until("/api/v1/messages/behind", is_parked).await.json();
    let hint = why["parked"]["hint"].as_str().expect("a hint");
    let problem = ack(&stage, "behind").await.problem(404, "not_in_flight");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains(hint), "{detail:?} and {hint:?}");
    assert!(detail.contains("`sluicegate discard 2`"), "{detail}");
}
