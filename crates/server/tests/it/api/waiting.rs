//! What a message waits for that is still in its queue.

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::stage::{Reply, Stage};

struct Scene {
    stage: Stage,
    endpoint: Endpoint,
}

impl Scene {
    /// A daemon whose endpoint never answers.
    async fn new(toml: &str) -> Self {
        let endpoint = Endpoint::start().await;
        endpoint.otherwise(Answer::hang());
        Self { stage: Stage::start(toml).await, endpoint }
    }

    /// Publishes messages `NAME-0`, `NAME-1`, … with these fields.
    async fn publish(&self, name: &str, count: usize, fields: Value) {
        let message = |number: usize| {
            let mut message = fields.clone();
            message["id"] = format!("{name}-{number}").into();
            message["mediationTarget"] = self.endpoint.url("/in").into();
            message
        };
        let all: Vec<Value> = (0..count).map(message).collect();
        let reply = self.stage.post("/api/v1/messages", &json!(all).to_string()).await;
        assert_eq!(reply.status, 202, "{reply:?}");
    }

    /// Waits until so many run.
    async fn run(&self, count: usize) {
        self.endpoint.wait_for(count).await;
        // And until the pool has as many as it takes.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }

    async fn why(&self, id: &str) -> (String, String) {
        let shown = self.stage.get(&format!("/api/v1/messages/{id}")).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        let why = &shown.json()["why"];
        let text = |name: &str| why[name].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("detail"))
    }

    #[track_caller]
    fn check(why: &(String, String), reason: &str, words: &[&str]) {
        assert_eq!(why.0, reason, "{why:?}");
        for words in words {
            assert!(why.1.contains(words), "{words:?} is not in {why:?}");
        }
    }
}

#[tokio::test]
async fn a_full_pool_is_named_with_how_full_it_is() {
    let scene = Scene::new("[[pool]]\ncode = \"P\"\nconcurrency = 2\nordering = \"none\"\n").await;
    scene.publish("m", 200, json!({ "poolCode": "P" })).await;
    scene.run(2).await;
    let why = scene.why("m-199").await;
    Scene::check(&why, "pool_full", &["pool P", "2 of 2"]);
}

#[tokio::test]
async fn a_pool_that_does_not_exist_is_named_with_the_one_in_its_place() {
    let toml = "[[pool]]\ncode = \"DEFAULT-POOL\"\nconcurrency = 2\nordering = \"none\"\n";
    let scene = Scene::new(toml).await;
    scene.publish("m", 200, json!({ "poolCode": "NOPE" })).await;
    scene.run(2).await;
    let why = scene.why("m-199").await;
    Scene::check(&why, "pool_full", &["NOPE", "DEFAULT-POOL", "2 of 2"]);
}

#[tokio::test]
async fn a_tenant_behind_others_hears_that_they_run() {
    let scene = Scene::new("[[pool]]\ncode = \"P\"\nconcurrency = 2\nordering = \"none\"\n").await;
    scene.publish("a", 200, json!({ "poolCode": "P", "tenant": "loud" })).await;
    scene.run(2).await;
    scene.publish("b", 1, json!({ "poolCode": "P", "tenant": "quiet" })).await;
    let why = scene.why("b-0").await;
    Scene::check(&why, "pool_full", &["pool P", "2 of 2", "2 of other tenants", "quiet"]);
    let own = scene.why("a-199").await;
    Scene::check(&own, "pool_full", &["2 of tenant loud"]);
}

#[tokio::test]
async fn a_rate_that_holds_a_pool_up_is_named() {
    let toml =
        "[[pool]]\ncode = \"P\"\nconcurrency = 5\nordering = \"none\"\nrate_limit_per_minute = 1\n";
    let scene = Scene::new(toml).await;
    scene.publish("m", 200, json!({ "poolCode": "P" })).await;
    scene.run(1).await;
    let why = scene.why("m-199").await;
    Scene::check(&why, "rate_limited", &["pool P", "1 a minute"]);
}

#[tokio::test]
async fn a_group_that_is_parked_is_named() {
    let toml = "[[pool]]\ncode = \"P\"\nconcurrency = 2\nordering = \"strict\"\nmax_attempts = 1\n\
                ungrouped = \"parallel\"\n";
    let scene = Scene::new(toml).await;
    scene.endpoint.then([Answer::ok().body(r#"{"ack":false}"#)]);
    scene.publish("head", 1, json!({ "poolCode": "P", "messageGroupId": "g" })).await;
    let one = |reply: &Reply| reply.items().len() == 1;
    scene.stage.until("/api/v1/parked", one).await;
    scene.publish("m", 200, json!({ "poolCode": "P" })).await;
    scene.run(3).await;
    scene.publish("next", 1, json!({ "poolCode": "P", "messageGroupId": "g" })).await;
    let why = scene.why("next-0").await;
    Scene::check(&why, "group_blocked", &["parked", "g"]);
}
