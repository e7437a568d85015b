//! What is misspelt is said so, and not passed over.

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::Endpoint;

use super::stage::{Ask, Stage};

const POOLS: &str = "[[pool]]\ncode = \"ORDERS\"\nconcurrency = 5\n\
                     [[pool]]\ncode = \"MAIL\"\nconcurrency = 5\n";

#[tokio::test]
async fn a_filter_that_names_no_pool_is_not_found() {
    let stage = Stage::start(POOLS).await;
    for list in ["groups", "inflight", "parked"] {
        let path = |pool: &str| format!("/api/v1/{list}?pool={pool}");
        for known in ["ORDERS", "DEFAULT-POOL"] {
            assert_eq!(stage.get(&path(known)).await.items(), Vec::<Value>::new(), "{list}");
        }
        let problem = stage.get(&path("ODRERS")).await.problem(404, "unknown_pool");
        assert_eq!(problem["field"], "pool");
        assert_eq!(problem["detail"], "there is no pool `ODRERS`; did you mean `ORDERS`?");
        let problem = stage.get(&path("x%0Ay")).await.problem(404, "unknown_pool");
        let wanted = "there is no pool `x y`; there are: DEFAULT-POOL, MAIL, ORDERS";
        assert_eq!(problem["detail"], wanted);
    }
    let replay = stage.post("/api/v1/parked/replay", r#"{"pool":"ODRERS"}"#).await;
    assert_eq!(replay.problem(404, "unknown_pool")["field"], "pool");
    let line = "PATCH /api/v1/pools/ODRERS";
    let patch = stage.ask(Ask { line, body: "{}", ..Ask::default() }).await;
    let detail = &patch.problem(404, "unknown_pool")["detail"];
    assert_eq!(detail, "there is no pool `ODRERS`; did you mean `ORDERS`?");
}

async fn warnings(stage: &Stage, code: &str) -> Vec<Value> {
    let all = stage.get("/api/v1/warnings").await.items();
    all.into_iter().filter(|warning| warning["code"] == code).collect()
}

#[tokio::test]
async fn unknown_fields_of_messages_are_named_once() {
    let (stage, endpoint) = (Stage::start("").await, Endpoint::start().await);
    let message = |id: usize, field: &str| json!({ "id": format!("m{id}"), "mediationTarget": endpoint.url("/in"), field: "ORDERS" });
    let body = json!([message(0, "poolcode"), message(1, "poolcode"), message(2, "colour")]);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", parent)];
    let ask = Ask { line: "POST /api/v1/messages", headers: &headers, body: &body.to_string() };
    assert_eq!(stage.ask(ask).await.json(), json!({ "accepted": 3 }));
    endpoint.wait_for(3).await;
    assert_eq!(endpoint.asked()[0].headers["traceparent"].to_str().unwrap()[..35], parent[..35]);
    let raised = warnings(&stage, "UNKNOWN_FIELD").await;
    let facts = |at: usize| (&raised[at]["subject"], &raised[at]["count"], &raised[at]["severity"]);
    assert_eq!(raised.len(), 2, "{raised:?}");
    assert_eq!(facts(1), (&json!("default/poolcode"), &json!(2), &json!("INFO")));
    assert_eq!(facts(0), (&json!("default/colour"), &json!(1), &json!("INFO")));
    let words = raised[1]["message"].as_str().unwrap();
    assert!(words.contains("did you mean `poolCode`?"), "{words}");
}

/// Whoever writes messages cannot fill the list of warnings.
#[tokio::test]
async fn unknown_fields_of_a_queue_are_bounded_in_number_and_length() {
    let (stage, endpoint) = (Stage::start("").await, Endpoint::start().await);
    let long = "x".repeat(100_000);
    let mut message = json!({ "id": "long", "mediationTarget": endpoint.url("/in"), long: 1 });
    for at in 0..200 {
        message[format!("f{at}")] = json!(at);
    }
    stage.post("/api/v1/messages", &message.to_string()).await;
    for at in 0..100 {
        let field = format!("g{at}");
        let body = json!({ "id": field, "mediationTarget": endpoint.url("/in"), field.clone(): 1 });
        stage.post("/api/v1/messages", &body.to_string()).await;
    }
    endpoint.wait_for(101).await;
    let raised = warnings(&stage, "UNKNOWN_FIELD").await;
    assert!(raised.len() <= 33, "{}", raised.len());
    let others = raised.iter().find(|warning| warning["subject"] == "default/…");
    assert!(others.is_some_and(|others| others["count"].as_u64() > Some(50)), "{others:?}");
    let longest =
        raised.iter().filter_map(|warning| warning["subject"].as_str()).map(str::len).max();
    assert!(longest < Some(200), "{longest:?}");
}

#[tokio::test]
async fn a_pool_that_does_not_exist_is_warned_of_once() {
    let (stage, endpoint) = (Stage::start(POOLS).await, Endpoint::start().await);
    let message = |id: usize, pool: &str| json!({ "id": format!("m{id}"), "mediationTarget": endpoint.url("/in"), "poolCode": pool });
    let body = json!([message(0, "ODRERS"), message(1, "ODRERS"), message(2, "MAIL")]);
    stage.post("/api/v1/messages", &body.to_string()).await;
    endpoint.wait_for(3).await;
    let raised = warnings(&stage, "ROUTING").await;
    assert_eq!(raised.len(), 1, "{raised:?}");
    assert_eq!((&raised[0]["subject"], &raised[0]["count"]), (&json!("ODRERS"), &json!(2)));
}
