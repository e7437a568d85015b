//! What the views show.

use super::stage::Stage;

#[tokio::test]
async fn health_is_asked_without_more() {
    let stage = Stage::open("").await;
    let cases =
        [("/health", 503), ("/health/live", 200), ("/health/ready", 503), ("/health/startup", 503)];
    for (path, status) in cases {
        let reply = stage.get(path).await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert!(reply.json()["issues"].is_array(), "{reply:?}");
    }
    stage.daemon.begin().await.unwrap();
    for (path, _) in cases {
        // An empty queue is connected once its first receive has come back.
        let up = stage.until(path, |reply| reply.json()["status"] == "UP").await;
        assert_eq!(up.status, 200, "{path}");
    }
}
