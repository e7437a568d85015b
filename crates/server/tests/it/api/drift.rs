//! What is changed live beside the file: it holds until the file says something else, and is shown.

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::stage::{Ask, Stage};

async fn patch(stage: &Stage, pool: &str, body: &str) {
    let line = &format!("PATCH /api/v1/pools/{pool}");
    let reply = stage.ask(Ask { line, body, ..Ask::default() }).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

async fn reload(stage: &Stage) {
    let reply = stage.post("/api/v1/config/reload", "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

/// A pool as `/config` shows it.
async fn shown(stage: &Stage, code: &str) -> Value {
    let config = stage.get("/api/v1/config").await.json();
    let pools = config["pools"].as_array().expect("a list").clone();
    pools.into_iter().find(|pool| pool["code"] == code).unwrap_or(Value::Null)
}

/// Its limits as `/config` and `/pools` show them, and what `/config` says was patched.
async fn limits(stage: &Stage, code: &str) -> (Value, Value, Value) {
    let (config, pools) = (shown(stage, code).await, stage.get("/api/v1/pools").await.items());
    let pool = pools.iter().find(|pool| pool["code"] == code).expect("the pool");
    for name in ["concurrency", "rateLimitPerMinute"] {
        assert_eq!(config[name], pool[name], "{name}: {config}");
    }
    let (concurrency, rate) = (config["concurrency"].clone(), config["rateLimitPerMinute"].clone());
    (concurrency, rate, json!([config["patched"], config["configured"]]))
}

fn file(concurrency: u32) -> String {
    format!("[[pool]]\ncode = \"P\"\nconcurrency = {concurrency}\n[[pool]]\ncode = \"Q\"\n")
}

#[tokio::test]
async fn a_patch_holds_until_the_file_says_something_else() {
    let none = json!([null, null]);
    let stage = Stage::start(&file(5)).await;
    assert_eq!(limits(&stage, "P").await, (json!(5), json!(null), none.clone()));
    patch(&stage, "P", r#"{"concurrency":7,"rateLimitPerMinute":60}"#).await;
    let patched = json!([
        ["concurrency", "rateLimitPerMinute"], { "concurrency": 5, "rateLimitPerMinute": null }
    ]);
    assert_eq!(limits(&stage, "P").await, (json!(7), json!(60), patched.clone()));
    assert_eq!(limits(&stage, "Q").await.2, none);
    // The same file, and one that says something else of another pool.
    reload(&stage).await;
    assert_eq!(limits(&stage, "P").await, (json!(7), json!(60), patched.clone()));
    stage.rewrite(&format!("{}concurrency = 9\n", file(5)));
    reload(&stage).await;
    assert_eq!(limits(&stage, "P").await, (json!(7), json!(60), patched));
    assert_eq!(limits(&stage, "Q").await, (json!(9), json!(null), none.clone()));
    stage.rewrite(&file(6));
    reload(&stage).await;
    assert_eq!(limits(&stage, "P").await, (json!(6), json!(null), none.clone()));
    // Patched back to what the file says, it is not patched.
    patch(&stage, "P", r#"{"concurrency":7}"#).await;
    patch(&stage, "P", r#"{"concurrency":6}"#).await;
    assert_eq!(limits(&stage, "P").await, (json!(6), json!(null), none.clone()));
    // A pool that went has lost its patch when it comes back.
    patch(&stage, "P", r#"{"concurrency":7}"#).await;
    stage.rewrite("[[pool]]\ncode = \"Q\"\n");
    reload(&stage).await;
    assert_eq!(shown(&stage, "P").await, Value::Null);
    stage.rewrite(&file(6));
    reload(&stage).await;
    assert_eq!(limits(&stage, "P").await, (json!(6), json!(null), none));
}

#[tokio::test]
async fn what_is_synced_is_in_effect_and_overrides_a_patch_when_it_changes() {
    let endpoint = Endpoint::start().await;
    let document = |concurrency: u32| {
        let pools = json!([{ "code": "P", "concurrency": concurrency, "rateLimitPerMinute": 600 }]);
        let queues = json!([{ "queueName": "orders", "queueUri": "sqlite:orders" }]);
        let text = json!({ "processingPools": pools, "queues": queues }).to_string();
        Answer::ok().body(text)
    };
    endpoint.otherwise(document(3));
    let url = endpoint.url("/config");
    let stage = Stage::start(&format!("[router]\nconfig_url = [{url:?}]\n{}", file(5))).await;
    let none = json!([null, null]);
    assert_eq!(limits(&stage, "P").await, (json!(3), json!(600), none.clone()));
    let config = stage.get("/api/v1/config").await.json();
    assert_eq!(config["queues"][0]["name"], "orders", "{config}");
    patch(&stage, "P", r#"{"concurrency":8}"#).await;
    let patched = json!([["concurrency"], { "concurrency": 3 }]);
    stage.daemon.sync().await.expect("a sync");
    assert_eq!(limits(&stage, "P").await, (json!(8), json!(600), patched.clone()));
    // What the file says of it is not in effect.
    let text = format!("[router]\nconfig_url = [{url:?}]\n{}", file(6));
    stage.rewrite(&text);
    reload(&stage).await;
    assert_eq!(limits(&stage, "P").await, (json!(8), json!(600), patched));
    endpoint.otherwise(document(4));
    stage.daemon.sync().await.expect("a sync");
    assert_eq!(limits(&stage, "P").await, (json!(4), json!(600), none));
}

#[tokio::test]
async fn the_default_pool_is_shown_when_it_was_patched() {
    let stage = Stage::start("").await;
    assert_eq!(shown(&stage, "DEFAULT-POOL").await, Value::Null);
    patch(&stage, "DEFAULT-POOL", r#"{"concurrency":3}"#).await;
    let patched = json!([["concurrency"], { "concurrency": 20 }]);
    assert_eq!(limits(&stage, "DEFAULT-POOL").await, (json!(3), json!(null), patched));
}
