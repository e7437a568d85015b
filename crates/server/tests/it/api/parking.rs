//! Parked messages: each is replayed once for each time it is asked for, lists of large ones stay small, and what is
//! misspelt does nothing.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_dispatch::{Message, Target};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use sluicegate_testkit::scripted::grouped;

use super::stage::{Reply, Stage};

/// So many messages that are for this endpoint, each by itself, parked as rejected.
async fn rejected(stage: &Stage, count: usize, url: &str, payload: Option<&str>) {
    rejected_from("default", stage, count, url, payload).await;
}

async fn rejected_from(queue: &str, stage: &Stage, count: usize, url: &str, payload: Option<&str>) {
    for at in 1..=count {
        let (id, group) = (format!("m{at}"), format!("g{at}"));
        let target = Target::parse(url).expect("a target");
        let payload = payload.map(Into::into);
        let message = Message { target, payload, ..grouped(&id, "DEFAULT-POOL", &group) };
        stage.park(queue, at, message).await;
    }
}

async fn replay(stage: &Stage, body: &Value) -> Value {
    let reply = stage.post("/api/v1/parked/replay", &body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// What fails again is parked again, under a new number.
#[tokio::test]
async fn a_replay_of_what_fails_again_ends() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(400));
    let stage = Stage::start("").await;
    rejected(&stage, 25, &endpoint.url("/in"), None).await;
    let (mut asked, mut replayed, mut rounds) = (json!({"all": true, "limit": 2}), 0, 0);
    loop {
        let answer = replay(&stage, &asked).await;
        replayed += answer["replayed"].as_u64().expect("a number");
        rounds += 1;
        assert!(rounds <= 20, "it goes on and on: {answer}");
        let Some(next) = answer["next"].as_str() else { break };
        asked["cursor"] = next.into();
        // What was replayed is parked again before it goes on.
        stage.until("/api/v1/parked", |reply| reply.items().len() == 25).await;
    }
    assert_eq!(replayed, 25, "each once");
    stage.until("/api/v1/parked", |reply| reply.items().len() == 25).await;
    assert_eq!(endpoint.count(), 25);
    let pool = replay(&stage, &json!({"pool": "DEFAULT-POOL", "rate": 10})).await;
    assert_eq!((&pool["replayed"], &pool["next"]), (&json!(25), &Value::Null));
    stage.until("/api/v1/parked", |reply| reply.items().len() == 25).await;
    assert_eq!(endpoint.count(), 50);
}

/// A queue that does not answer may have what it was given: it is given that again by the same name, until it is known.
#[tokio::test(start_paused = true)]
async fn what_a_queue_may_have_is_not_left_in_the_list() {
    let stage = Stage::start("").await;
    let slow = crate::scene::Stock::of([]);
    let settings = sluicegate_dispatch::QueueSettings::new(1, 10);
    stage.daemon.router().add_queue("slow", settings, slow.clone()).await.expect("a queue");
    rejected_from("slow", &stage, 1, "http://127.0.0.1:9/", None).await;
    *slow.hangs.lock() = true;
    let replay = stage.post("/api/v1/parked/1/replay", "").await;
    let problem = replay.problem(503, "storage_failed");
    let detail = problem["detail"].as_str().expect("words");
    assert!(detail.contains("is asked again until it does"), "{detail}");
    assert_eq!(stage.get("/api/v1/parked").await.items().len(), 1);
    *slow.hangs.lock() = false;
    // Somebody may be asking right now.
    tokio::time::sleep(Duration::from_secs(45)).await;
    stage.until("/api/v1/parked", |reply| reply.items().is_empty()).await;
    let names = slow.back.lock().clone();
    assert!(names.len() >= 2 && names.iter().all(|name| *name == names[0]), "{names:?}");
}

#[tokio::test]
async fn a_page_of_large_messages_is_a_short_one() {
    let stage = Stage::start("").await;
    let text = format!("\"{}\"", "x".repeat(1_000_000));
    rejected(&stage, 30, "http://127.0.0.1:9/", Some(&text)).await;
    let (mut path, mut ids, mut pages) = ("/api/v1/parked?limit=1000".to_owned(), Vec::new(), 0);
    loop {
        let reply = stage.get(&path).await;
        assert!(reply.body.len() < 12 * 1024 * 1024, "{} bytes", reply.body.len());
        ids.extend(reply.items().iter().map(|item| item["messageId"].clone()));
        pages += 1;
        let json = reply.json();
        let Some(next) = json["next"].as_str() else { break };
        path = format!("/api/v1/parked?limit=1000&cursor={next}");
    }
    let all: Vec<Value> = (1..=30).map(|at| json!(format!("m{at}"))).collect();
    assert_eq!(ids, all);
    assert!(pages > 2, "{pages}");
}

#[tokio::test]
async fn large_messages_are_replayed_together() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::start("").await;
    let text = format!("\"{}\"", "x".repeat(1_000_000));
    rejected(&stage, 20, &endpoint.url("/in"), Some(&text)).await;
    let ids: Vec<String> = (1..=20).map(|id| id.to_string()).collect();
    let answer = replay(&stage, &json!({ "ids": ids })).await;
    assert_eq!((&answer["replayed"], &answer["left"]), (&json!(20), &json!(0)), "{answer}");
    endpoint.wait_for(20).await;
    let too_many: Vec<String> = (1..=10_001).map(|id| id.to_string()).collect();
    let body = json!({ "ids": too_many }).to_string();
    let problem = stage.post("/api/v1/parked/replay", &body).await.problem(422, "invalid_field");
    assert_eq!(problem["field"], "ids");
}

/// A message that is as long as it may be is longer where it is kept.
#[tokio::test]
async fn what_is_exported_is_imported_however_long_it_is() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(400));
    let stage = Stage::start("").await;
    let mut body = json!({ "id": "m1", "mediationTarget": endpoint.url("/in"), "payload": "" });
    let rest = 1024 * 1024 - body.to_string().len();
    body["payload"] = "x".repeat(rest).into();
    let reply = stage.post("/api/v1/messages", &body.to_string()).await;
    assert_eq!(reply.status, 202, "{}", &reply.body[..reply.body.len().min(300)]);
    let parked = stage.until("/api/v1/parked", |reply| reply.items().len() == 1).await;
    let id = parked.items()[0]["id"].as_str().expect("an id").to_owned();
    let lines = stage.get("/api/v1/parked/export").await;
    let line = lines.raw.lines().find(|line| line.starts_with('{')).expect("a line").to_owned();
    assert_eq!(stage.delete(&format!("/api/v1/parked/{id}")).await.status, 204);
    let imported = stage.post("/api/v1/parked/import", &line).await.json();
    assert_eq!((&imported["added"], &imported["refused"]), (&json!(1), &json!(0)), "{imported}");
    // And what is no number of a list is refused by name.
    for number in ["0", "-1", "9223372036854775808", "x"] {
        let mut line: Value = serde_json::from_str(&line).expect("JSON");
        line["id"] = number.into();
        let imported = stage.post("/api/v1/parked/import", &line.to_string()).await.json();
        assert_eq!(imported["refused"], 1, "{number}");
        let why = imported["errors"][0]["message"].as_str().expect("words");
        assert!(why.starts_with("id must be a whole number from 1 to "), "{why}");
    }
}

#[track_caller]
fn is_refused(reply: &Reply, field: &str) {
    let problem = reply.problem(400, "bad_request");
    assert_eq!(problem["field"], field, "{problem}");
    let detail = problem["detail"].as_str().expect("words");
    assert!(detail.contains(field), "{detail}");
}

/// A typo must not mean everything.
#[tokio::test]
async fn what_is_misspelt_or_empty_or_said_twice_is_named_and_does_nothing() {
    let stage = Stage::start("").await;
    rejected(&stage, 2, "http://127.0.0.1:9/", None).await;
    let cases = [
        ("pol=X", "pol"),
        ("pool=", "pool"),
        ("pool=A&pool=DEFAULT-POOL", "pool"),
        ("cursor=18446744073709551615", "cursor"),
        ("cursor=9223372036854775808", "cursor"),
    ];
    for (query, field) in cases {
        is_refused(&stage.get(&format!("/api/v1/parked?{query}")).await, field);
        is_refused(&stage.get(&format!("/api/v1/parked/export?{query}")).await, field);
        let all = if query.starts_with("cursor") { "&all=true" } else { "" };
        let replayed = stage.post(&format!("/api/v1/parked/replay?{query}{all}"), "").await;
        is_refused(&replayed, field);
    }
    is_refused(&stage.post("/api/v1/parked/replay?all=true&pol=X", "").await, "pol");
    for (query, field) in [("pol=X", "pol"), ("pool=", "pool"), ("pool=A&pool=B", "pool")] {
        is_refused(&stage.delete(&format!("/api/v1/pauses/h?{query}")).await, field);
    }
    assert_eq!(stage.get("/api/v1/parked").await.items().len(), 2, "all is as it was");
}

#[tokio::test]
async fn a_delay_that_would_never_end_is_refused() {
    let stage = Stage::start("").await;
    let body = |delay: u64| json!({ "id": "m", "mediationTarget": "http://127.0.0.1:9/", "delaySeconds": delay });
    for delay in [u64::MAX, 315_360_001] {
        let reply = stage.post("/api/v1/messages", &body(delay).to_string()).await;
        assert!(reply.status == 422, "{reply:?}");
        assert!(reply.body.contains("delaySeconds"), "{reply:?}");
        assert!(reply.body.contains("at most 315360000"), "{reply:?}");
    }
    let reply = stage.post("/api/v1/messages", &body(315_360_000).to_string()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}
