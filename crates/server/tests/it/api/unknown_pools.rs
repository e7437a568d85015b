//! Messages for pools that do not exist, where that is not wanted.

use serde_json::json;
use sluicegate_testkit::endpoint::Endpoint;

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
