//! What fails for ever is told, whatever the order of its pool and however seldom it is called.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::{Instant, sleep};

use super::schema::Document;
use super::stage::{Reply, Stage};

const PATIENCE: Duration = Duration::from_secs(40);

/// A daemon with a pool `P`, and the webhook that hears of its warnings.
async fn stage(toml: &str) -> (Stage, Endpoint) {
    let webhook = Endpoint::start().await;
    let toml =
        format!("{toml}\n[[pool]]\ncode = \"P\"\n[alerts]\nwebhook = {:?}\n", webhook.url("/"));
    (Stage::start(&toml).await, webhook)
}

async fn publish(stage: &Stage, ids: impl IntoIterator<Item = String>, url: &str) {
    let message = |id: String| json!({ "id": id, "mediationTarget": url, "poolCode": "P", "messageGroupId": id });
    let all: Vec<Value> = ids.into_iter().map(message).collect();
    let reply = stage.post("/api/v1/messages", &json!(all).to_string()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}

/// Waits until the webhook has heard of a code, and whether it is over; answers that notice.
async fn told(webhook: &Endpoint, code: &str, is_over: bool) -> Value {
    let by = Instant::now() + PATIENCE;
    loop {
        let all: Vec<Value> = webhook.asked().iter().map(|asked| asked.json()).collect();
        let fits = |one: &&Value| one["code"] == code && one["resolved"] == is_over;
        if let Some(notice) = all.iter().find(fits) {
            return notice.clone();
        }
        assert!(Instant::now() < by, "no {code} among {all:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn open(stage: &Stage, code: &str) -> Option<Value> {
    let reply: Reply = stage.get("/api/v1/warnings").await;
    Document::of(stage).await.check("get", "/api/v1/warnings", &reply);
    reply.items().into_iter().find(|one| one["code"] == code && one["resolved"] == false)
}

/// Many messages, and an endpoint that answers 500 to all: its breaker says so, for as long as that lasts.
#[tokio::test]
async fn a_host_that_fails_every_call_is_told_until_it_works() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let (stage, webhook) = stage("[http.breaker]\nopen_for = \"1s\"\nclose_after = 1\n").await;
    publish(&stage, (0..30).map(|at| format!("m{at}")), &endpoint.url("/in")).await;
    let notice = told(&webhook, "BREAKER_OPEN", false).await;
    let host = endpoint.address().to_string();
    assert_eq!((&notice["severity"], &notice["subject"]), (&json!("WARNING"), &json!(host)));
    assert_eq!(stage.get("/health").await.json()["status"], "DEGRADED");
    // It is tried again now and then, and that is not its end.
    let again = async |count: u64| {
        let by = Instant::now() + PATIENCE;
        while open(&stage, "BREAKER_OPEN").await.expect("it is open")["count"].as_u64()
            < Some(count)
        {
            assert!(Instant::now() < by, "it opens {count} times");
            sleep(Duration::from_millis(50)).await;
        }
    };
    again(3).await;
    assert!(webhook.asked().iter().all(|asked| asked.json()["resolved"] == false));
    endpoint.otherwise(Answer::ok());
    told(&webhook, "BREAKER_OPEN", true).await;
}

/// Too few calls for a breaker to judge, and answers that it does not take for failures.
#[tokio::test]
async fn messages_of_a_batch_pool_that_fail_again_and_again_are_told_until_they_are_done() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().body(r#"{"ack":false,"delaySeconds":1}"#));
    let (stage, webhook) = stage("").await;
    publish(&stage, ["a".to_owned(), "b".to_owned()], &endpoint.url("/in")).await;
    endpoint.wait_for(6).await;
    assert_eq!(stage.get("/health").await.json()["status"], "UP", "that may happen");
    let notice = told(&webhook, "MESSAGES_FAILING", false).await;
    assert_eq!((&notice["severity"], &notice["subject"]), (&json!("WARNING"), &json!("P")));
    let message = notice["message"].as_str().expect("words");
    for words in ["pool P", "10 attempts", "since 20", "answered 200 with ack=false"] {
        assert!(message.contains(words), "{words:?} is not in {message:?}");
    }
    let health = stage.get("/health").await.json();
    assert_eq!(health["status"], "DEGRADED", "{health}");
    assert!(health["issues"].to_string().contains("pool P"), "{health}");
    endpoint.otherwise(Answer::ok());
    let over = told(&webhook, "MESSAGES_FAILING", true).await;
    assert_eq!(over["id"], notice["id"]);
    assert_eq!(stage.get("/health").await.json()["status"], "UP");
    assert!(open(&stage, "GROUP_STUCK").await.is_none());
}

/// One message every half a minute opens no breaker. Time is paused: it runs on when everybody waits.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_seldom_called_and_always_fails_is_told_within_minutes() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let (stage, webhook) = stage("").await;
    publish(&stage, ["m".to_owned()], &endpoint.url("/in")).await;
    sleep(Duration::from_secs(8 * 60)).await;
    let told: Vec<Value> = webhook.asked().iter().map(|asked| asked.json()).collect();
    assert!(told.iter().any(|one| one["subject"] == "P"), "{told:?} {}", endpoint.count());
}
