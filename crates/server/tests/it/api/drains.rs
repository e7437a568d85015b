//! While something drains: a queue that was removed, or the whole daemon.

use std::time::Duration;

use serde_json::json;
use sluicegate_dispatch::{QueueSettings, Target};
use sluicegate_server::health::Probe;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use sluicegate_testkit::scripted::{ScriptedSource, delivery, message};
use tokio::time::{Instant, sleep};

use super::stage::Stage;

#[tokio::test]
async fn a_removed_queue_that_drains_is_not_in_the_way_of_the_only_one() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start("[[queue]]\nname = \"old\"\nuri = \"sqlite:old\"\n").await;
    let body = json!({ "id": "m", "mediationTarget": endpoint.url("/in") }).to_string();
    assert_eq!(stage.post("/api/v1/messages", &body).await.status, 202);
    endpoint.wait_for(1).await;
    stage.rewrite("[[queue]]\nname = \"new\"\nuri = \"sqlite:new\"\n");
    assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
    let drains = stage.get("/api/v1/queues").await.items();
    assert_eq!(drains.len(), 2, "{drains:?}");
    let reply = stage.post("/api/v1/messages", &body).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    let unknown = stage.post("/api/v1/messages?queue=old", &body).await;
    let detail = unknown.problem(404, "unknown_queue")["detail"].to_string();
    assert!(detail.contains("new") && !detail.contains("there are: new, old"), "{detail}");
}

/// Time is paused: it runs on when everybody waits.
#[tokio::test(start_paused = true)]
async fn a_daemon_lives_for_as_long_as_it_drains() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start("[server]\ndrain = \"10m\"\n[router]\nenabled = false\n").await;
    let source = ScriptedSource::new();
    let settings = QueueSettings::new(1, 10);
    stage.daemon.router().add_queue("q", settings, source.clone()).await.expect("a queue");
    let mut message = message("m", "A");
    message.target = Target::parse(&endpoint.url("/in")).expect("a target");
    source.hand_out(vec![delivery(message)]);
    endpoint.wait_for(1).await;
    let begun = Instant::now();
    let asking = async {
        for _ in 0..9 {
            sleep(Duration::from_secs(60)).await;
            let health = stage.daemon.health(Probe::Live);
            assert!(health.is_ok(), "after {:?}: {health:?}", begun.elapsed());
        }
    };
    tokio::join!(stage.daemon.shutdown(), asking);
    assert!(begun.elapsed() >= Duration::from_secs(540), "it did drain: {:?}", begun.elapsed());
}
