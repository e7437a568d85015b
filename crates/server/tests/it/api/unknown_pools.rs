//! Messages for pools that do not exist, where that is not wanted.

use serde_json::json;
use sluicegate_dispatch::{Message, Target};
use sluicegate_testkit::endpoint::Endpoint;
use sluicegate_testkit::scripted::grouped;

use super::schema::Document;
use super::stage::Stage;

const POOLS: &str = "[[pool]]\ncode = \"ORDERS\"\n[[pool]]\ncode = \"MAIL\"\n";

#[tokio::test]
async fn refused_they_are_named_with_the_pool_that_was_probably_meant() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::start(&format!("[router]\nunknown_pool = \"refuse\"\n{POOLS}")).await;
    let message = |id: &str, pool: Option<&str>| json!({ "id": id, "mediationTarget": endpoint.url("/in"), "poolCode": pool });
    let body = json!([
        message("m0", Some("ORDERS")),
        message("m1", Some("ODRERS")),
        message("m2", Some("x")),
        message("m3", Some("DEFAULT-POOL")),
        message("m4", None),
    ]);
    let reply = stage.post("/api/v1/messages", &body.to_string()).await;
    let problem = reply.problem(422, "unknown_pool");
    Document::of(&stage).await.check("post", "/api/v1/messages", &reply);
    let near = "poolCode of m1: there is no pool `ODRERS`; did you mean `ORDERS`?";
    let none = "poolCode of m2: there is no pool `x`; there are: DEFAULT-POOL, MAIL, ORDERS";
    let errors = json!([
        { "index": 1, "field": "poolCode", "message": near },
        { "index": 2, "field": "poolCode", "message": none },
    ]);
    assert_eq!(problem["errors"], errors);
    let good = json!([message("m0", Some("MAIL")), message("m3", None)]);
    assert_eq!(stage.post("/api/v1/messages", &good.to_string()).await.status, 202);
    endpoint.wait_for(2).await;
    assert_eq!(endpoint.count(), 2, "all or none");
    // It changes live, and what was accepted before is the default.
    stage.rewrite(POOLS);
    assert_eq!(stage.post("/api/v1/config/reload", "").await.json()["needsRestart"], json!([]));
    let reply = stage.post("/api/v1/messages", &message("m5", Some("x")).to_string()).await;
    assert_eq!(reply.status, 202);
    assert_eq!(stage.get("/api/v1/config").await.json()["router"]["unknownPool"], "default");
}

/// What is in a queue already, or comes from a broker, is parked where it would be refused.
#[tokio::test]
async fn parked_they_wait_for_a_person() {
    for unknown in ["park", "refuse"] {
        let endpoint = Endpoint::start().await;
        let stage = Stage::start(POOLS).await;
        let body = json!({
            "id": "m1", "mediationTarget": endpoint.url("/in"), "poolCode": "ODRERS",
            "delaySeconds": 1,
        });
        assert_eq!(stage.post("/api/v1/messages", &body.to_string()).await.status, 202);
        stage.rewrite(&format!("[router]\nunknown_pool = {unknown:?}\n{POOLS}"));
        assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
        let parked = stage.until("/api/v1/parked", |reply| !reply.items().is_empty()).await;
        Document::of(&stage).await.check("get", "/api/v1/parked", &parked);
        let item = &parked.items()[0];
        assert_eq!((&item["messageId"], &item["code"]), (&json!("m1"), &json!("unknown_pool")));
        assert_eq!(endpoint.count(), 0);
    }
}

/// With `on_rejected = "park"` a message that its endpoint rejects keeps its group behind it.
#[tokio::test]
async fn a_rejected_head_is_parked_with_its_group_where_that_is_wanted() {
    let pool = "[[pool]]\ncode = \"P\"\nordering = \"strict\"\n";
    for (on_rejected, called) in [("skip", vec!["m1", "m2"]), ("park", vec!["m1"])] {
        let endpoint = Endpoint::start().await;
        endpoint.then([sluicegate_testkit::endpoint::Answer::status(404)]);
        let stage = Stage::start(&format!("{pool}on_rejected = {on_rejected:?}\n")).await;
        let message = |id: &str| {
            let (target, pool) = (endpoint.url("/in"), "P");
            json!({ "id": id, "mediationTarget": target, "poolCode": pool, "messageGroupId": "g" })
        };
        let body = json!([message("m1"), message("m2")]).to_string();
        assert_eq!(stage.post("/api/v1/messages", &body).await.status, 202);
        let count = 3 - called.len();
        stage.until("/api/v1/parked", |reply| reply.items().len() == count).await;
        endpoint.wait_for(called.len()).await;
        assert_eq!(endpoint.ids_of("/in"), called, "{on_rejected}");
    }
}

/// A message whose pool does not exist would be parked again at once: its replay says so, and what helps.
#[tokio::test]
async fn parked_they_are_not_replayed_before_there_is_their_pool() {
    for unknown in ["park", "refuse"] {
        let endpoint = Endpoint::start().await;
        let router = format!("[router]\nunknown_pool = {unknown:?}\n");
        let stage = Stage::start(&format!("{router}{POOLS}")).await;
        let target = Target::parse(&endpoint.url("/in")).expect("a target");
        let message = |id, pool| Message { target: target.clone(), ..grouped(id, pool, "g") };
        stage.park("default", 1, message("m1", "BILLS")).await;
        stage.park("default", 2, message("m2", "MAIL")).await;
        let document = Document::of(&stage).await;
        let ids = [r#"{"ids":["1","2"]}"#, r#"{"ids":["1"],"dryRun":true}"#];
        for (path, body) in [
            ("/api/v1/parked/1/replay", ""),
            ("/api/v1/parked/replay", ids[0]),
            ("/api/v1/parked/replay", ids[1]),
        ] {
            let reply = stage.post(path, body).await;
            let problem = reply.problem(409, "no_pool");
            document.check("post", "/api/v1/parked/replay", &reply);
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("BILLS") && detail.contains("unknown_pool"), "{detail}");
            assert_eq!((&problem["id"], &problem["pool"]), (&json!("1"), &json!("BILLS")));
        }
        let why = stage.get("/api/v1/messages/m1").await.json();
        let hint = why["parked"]["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("there is no pool BILLS"), "{why}");
        // Of several, those that can be are replayed; the others are counted and named.
        for (body, count) in
            [(r#"{"all":true,"dryRun":true}"#, "wouldReplay"), (r#"{"all":true}"#, "replayed")]
        {
            let answer = stage.post("/api/v1/parked/replay", body).await.json();
            assert_eq!((&answer[count], &answer["left"]), (&json!(1), &json!(1)), "{answer}");
            assert_eq!(answer["refused"][0]["code"], "no_pool", "{answer}");
        }
        endpoint.wait_for(1).await;
        let left = stage.get("/api/v1/parked").await.items();
        assert_eq!((left.len(), &left[0]["id"]), (1, &json!("1")), "it was not parked anew");
        // It is as it says.
        stage.rewrite(&format!("{router}{POOLS}[[pool]]\ncode = \"BILLS\"\n"));
        assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
        assert_eq!(stage.post("/api/v1/parked/1/replay", "").await.status, 200);
        endpoint.wait_for(2).await;
    }
}

/// What waits for its time is parked before what came after it: their group goes back in its order.
#[tokio::test]
async fn parked_they_stay_in_order_though_the_first_was_delayed() {
    let stage = Stage::start(&format!("[router]\nunknown_pool = \"park\"\n{POOLS}")).await;
    let endpoint = Endpoint::start().await;
    let url = endpoint.url("/in");
    let message = |id: &str, delay: u32| json!({ "id": id, "poolCode": "GHOST", "mediationTarget": url, "messageGroupId": "g", "delaySeconds": delay });
    let all = json!([message("m1", 1), message("m2", 0), message("m3", 0)]);
    assert_eq!(stage.post("/api/v1/messages", &all.to_string()).await.status, 202);
    let parked = stage.until("/api/v1/parked", |reply| reply.items().len() == 3).await.items();
    let ids: Vec<&str> = parked.iter().filter_map(|item| item["messageId"].as_str()).collect();
    assert_eq!(ids, ["m1", "m2", "m3"]);
}
