//! A scrape when a broker does not answer.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Profile, QueueSettings, Receipt, Settle, Settled, Source,
    SourceError,
};
use tokio::time::Instant;

use super::stage::Stage;

/// A source that never says how much it holds.
struct Hung;

impl Source for Hung {
    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(30), 10)
    }

    fn receive(&self, _: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(std::future::pending())
    }

    fn settle(&self, _: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(std::future::pending())
    }

    fn extend(&self, _: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(std::future::pending())
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(std::future::pending())
    }

    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// The limit is for all of them, not for each.
#[tokio::test]
async fn queues_that_do_not_answer_do_not_fail_the_scrape() {
    let stage = Stage::start("").await;
    for name in ["a", "b", "c"] {
        let settings = QueueSettings::new(1, 10);
        stage.daemon.router().add_queue(name, settings, Arc::new(Hung)).await.expect("a queue");
    }
    let begun = Instant::now();
    let page = stage.get("/metrics").await;
    let took = begun.elapsed();
    assert_eq!(page.status, 200, "{page:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(page.body.contains("sluicegate_queue_depth{queue=\"default\"} 0"), "{}", page.body);
    assert!(!page.body.contains("sluicegate_queue_depth{queue=\"a\"}"), "{}", page.body);
    assert!(page.body.contains("sluicegate_inflight{queue=\"a\"} 0"), "{}", page.body);
    assert!(page.body.ends_with("# EOF\n"), "{}", page.body);
}
