//! The engine in memory keeps the contract.

use std::sync::Arc;

use sluicegate_event_store::{BoxFuture, Engine, MemoryEngine};
use sluicegate_testkit::conformance::events::{Rig, Subject, run};

struct Memory;

struct InMemory(MemoryEngine);

impl Rig for Memory {
    fn store(&self) -> BoxFuture<'_, Box<dyn Subject>> {
        Box::pin(async { Box::new(InMemory(MemoryEngine::new())) as _ })
    }
}

impl Subject for InMemory {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.0.clone())
    }

    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn Engine>>> {
        Box::pin(async { Some(self.engine()) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_keeps_the_contract() {
    let count = run(&Memory).await;
    assert!(count >= 30, "{count} checks");
}
