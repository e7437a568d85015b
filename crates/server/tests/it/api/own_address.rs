//! The daemon is no target of its own: a message that calls its API would go round for ever.

use serde_json::{Value, json};
use sluicegate_dispatch::QueueSettings;
use sluicegate_sources::wire;
use sluicegate_testkit::endpoint::Endpoint;

use super::stage::Stage;
use crate::scene::Stock;

fn message(id: &str, target: &str) -> Value {
    json!({ "id": id, "mediationTarget": target })
}

/// Everything that is this daemon, from this machine.
fn own(port: u16) -> [String; 7] {
    [
        format!("http://127.0.0.1:{port}/api/v1/messages"),
        format!("https://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/api/v1/config/reload"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://0x7f000001:{port}/"),
    ]
}

async fn publish(stage: &Stage, targets: &[String]) -> super::stage::Reply {
    let all: Vec<Value> =
        targets.iter().enumerate().map(|(at, url)| message(&at.to_string(), url)).collect();
    stage.post("/api/v1/messages", &json!(all).to_string()).await
}

#[tokio::test]
async fn its_own_address_is_refused_when_it_is_published() {
    let stage = Stage::start("").await;
    let port = stage.address.port();
    let mut targets = own(port).to_vec();
    // Not every resolver knows it so.
    targets.push(format!("http://LocalHost.:{port}/"));
    let problem = publish(&stage, &targets).await.problem(422, "forbidden_target");
    let errors = problem["errors"].as_array().expect("errors");
    assert_eq!(errors.len(), targets.len(), "{problem}");
    for error in errors {
        assert_eq!(error["field"], "mediationTarget", "{error}");
        assert!(error.to_string().contains("this daemon itself listens"), "{error}");
    }
    assert_eq!(stage.get("/api/v1/inflight").await.items(), [] as [Value; 0]);
}

#[tokio::test]
async fn what_listens_on_all_addresses_is_refused_at_all_of_loopback() {
    let stage = Stage::start_at("", "0.0.0.0:0").await;
    let port = stage.address.port();
    let more = [format!("http://127.0.0.2:{port}/"), format!("http://127.255.0.1:{port}/")];
    let targets: Vec<String> = own(port).into_iter().chain(more).collect();
    let problem = publish(&stage, &targets).await.problem(422, "forbidden_target");
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(targets.len()), "{problem}");
}

#[tokio::test]
async fn other_ports_of_this_machine_are_targets_as_before() {
    let (stage, endpoint) = (Stage::start("").await, Endpoint::start().await);
    let port = endpoint.address().port();
    let other_host = format!("http://127.0.0.2:{}/", stage.address.port());
    let targets = [endpoint.url("/in"), format!("http://localhost:{port}/"), other_host];
    assert_eq!(publish(&stage, &targets).await.status, 202);
    endpoint.wait_for(2).await;
}

/// A broker does not ask what it is given: the message is parked, as for every target that is not allowed.
#[tokio::test]
async fn its_own_address_is_not_called_when_it_comes_from_a_broker() {
    let stage = Stage::start("").await;
    let port = stage.address.port();
    let parse = |(at, url): (usize, &String)| {
        let text = message(&format!("m{at}"), url).to_string();
        wire::parse(text.as_bytes()).expect("a message").message
    };
    let targets = own(port);
    assert_eq!(stage.get("/health").await.status, 200, "it is served");
    let broker = Stock::of(targets.iter().enumerate().map(parse));
    let settings = QueueSettings::new(1, 10);
    stage.daemon.router().add_queue("orders", settings, broker).await.expect("a queue");
    let all = |reply: &super::stage::Reply| reply.items().len() == targets.len();
    for parked in stage.until("/api/v1/parked", all).await.items() {
        assert_eq!((&parked["code"], &parked["status"]), (&json!("rejected"), &Value::Null));
        let reason = parked["reason"].as_str().expect("a reason");
        assert!(reason.contains("this daemon itself listens"), "{parked}");
    }
    let warnings = stage.get("/api/v1/warnings?severity=ERROR").await.items();
    assert_eq!(warnings.len(), targets.len());
    assert!(warnings.iter().all(|warning| warning["code"] == "CONFIGURATION"), "{warnings:?}");
    assert!(stage.get("/metrics").await.body.contains("status=\"refused_target\""));
}
