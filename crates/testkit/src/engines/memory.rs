//! The engine in memory.

use std::sync::Arc;

use sluicegate_event_store::{BoxFuture, Engine, MemoryEngine};

use crate::conformance::events::{Rig, Subject};

pub(super) struct Memory;

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
