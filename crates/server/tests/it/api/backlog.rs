//! How many messages wait for a pool in the daemon, and for how long the oldest has.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_dispatch::QueueSettings;
use sluicegate_sources::wire;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::sleep;

use super::schema::Document;
use super::stage::{Reply, Stage};
use crate::scene::Stock;

fn pool(reply: &Reply) -> Value {
    reply.items().into_iter().find(|pool| pool["code"] == "P").expect("a pool")
}

fn series(page: &str, name: &str) -> Option<f64> {
    let name = format!("sluicegate_{name}{{pool=\"P\"}}");
    page.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok())
}

#[tokio::test]
async fn what_waits_for_a_pool_is_counted_and_so_is_the_age_of_the_oldest() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage =
        Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 1\nordering = \"none\"\n").await;
    let message = |at: usize| {
        let text = json!({ "id": format!("m{at}"), "mediationTarget": endpoint.url("/"), "poolCode": "P" });
        wire::parse(text.to_string().as_bytes()).expect("a message").message
    };
    let broker = Stock::of([message(0)]);
    let (router, settings) = (stage.daemon.router(), QueueSettings::new(1, 10));
    router.add_queue("orders", settings, broker.clone()).await.expect("a queue");
    endpoint.wait_for(1).await;
    sleep(Duration::from_millis(100)).await;
    // It runs: it has been here for a while, but nobody waits.
    let running = pool(&stage.get("/api/v1/pools").await);
    assert_eq!((&running["queued"], &running["readAhead"]), (&json!(0), &json!(0)), "{running}");
    assert_eq!(running["oldestWaitMs"], 0, "{running}");
    // As many as have places, and some that were read ahead.
    broker.add((1..=200).map(message));
    let count = |pool: &Value, name: &str| pool[name].as_u64().unwrap_or_default();
    let waiting = |reply: &Reply| {
        let pool = pool(reply);
        count(&pool, "queued") + count(&pool, "readAhead")
    };
    let reply = stage.until("/api/v1/pools", |reply| waiting(reply) == 200).await;
    Document::of(&stage).await.check("get", "/api/v1/pools", &reply);
    let full = pool(&reply);
    assert_eq!(full["queued"], full["capacity"], "{full}");
    assert!(count(&full, "readAhead") > 0, "{full}");
    sleep(Duration::from_millis(1_100)).await;
    let waited = count(&pool(&stage.get("/api/v1/pools").await), "oldestWaitMs");
    assert!((1_000..30_000).contains(&waited), "{waited}");
    let page = stage.get("/metrics").await.body;
    let wanted = full["readAhead"].as_f64();
    assert_eq!(series(&page, "pool_read_ahead"), wanted, "{page}");
    let oldest = series(&page, "pool_oldest_wait_seconds");
    assert!(oldest.is_some_and(|oldest| (1.0..30.0).contains(&oldest)), "{oldest:?}");
    endpoint.otherwise(Answer::ok());
}
