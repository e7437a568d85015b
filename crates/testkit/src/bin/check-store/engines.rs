//! The engines that can be raced on. A new one is a name and an arm of [`rig`].

use std::sync::Arc;

use sluicegate_event_store::{BoxFuture, Engine, MemoryEngine};
use sluicegate_testkit::conformance::events::{Rig, Subject};

pub(crate) const NAMES: [&str; 1] = ["memory"];

/// Makes stores of an engine, or says why it cannot be had.
pub(crate) async fn rig(name: &str) -> Result<Box<dyn Rig>, String> {
    match name {
        "memory" => Ok(Box::new(Memory)),
        _ => Err("there is no such engine".to_owned()),
    }
}

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
