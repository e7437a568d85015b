//! A state file that another process holds: who publishes hears of it soon, and nothing is stored behind their back.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rusqlite::Connection;
use serde_json::json;
use sluicegate_testkit::endpoint::Endpoint;

use super::stage::{Reply, Stage};

/// Longer than any of them may wait, on a busy machine too.
const SOON: Duration = Duration::from_millis(7_500);

#[tokio::test]
async fn whoever_publishes_to_a_locked_file_is_told_within_seconds() {
    let (endpoint, stage) = (Endpoint::start().await, Stage::start("").await);
    let file = Connection::open(stage.folder.path().join("state.db")).expect("the file");
    file.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    let (stage, url) = (&stage, endpoint.url("/in"));
    // Some at once, and some while the first wait.
    let publishing = (0..12_u64).map(|at| {
        let body = json!({ "id": format!("m{at}"), "mediationTarget": url }).to_string();
        async move {
            tokio::time::sleep(Duration::from_millis(at / 4 * 2_000)).await;
            let begun = Instant::now();
            (stage.post("/api/v1/messages", &body).await, begun.elapsed())
        }
    });
    let replies: Vec<(Reply, Duration)> = join_all(publishing).await;
    file.execute_batch("ROLLBACK").expect("the lock is given back");
    for (reply, took) in &replies {
        assert!(*took < SOON, "it took {took:?}: {reply:?}");
        let problem = reply.problem(503, "storage_failed");
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("another process holds the state file"), "{detail}");
        assert!(detail.contains("nothing was written"), "{detail}");
    }
    // What was refused is not stored later; what is published now is, with the same ids too.
    let body = json!({ "id": "m0", "mediationTarget": url }).to_string();
    assert_eq!(stage.post("/api/v1/messages", &body).await.status, 202);
    endpoint.wait_for(1).await;
    stage.until("/api/v1/messages/m0", |reply| reply.status == 404).await;
    assert_eq!(endpoint.ids_of("/in"), ["m0"]);
}
