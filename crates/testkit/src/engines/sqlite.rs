//! The embedded engine, each store in a folder of its own.

use std::sync::Arc;

use sluicegate_event_store::{BoxFuture, Engine, SqliteEngine};
use tempfile::TempDir;

use crate::conformance::events::{Rig, Subject};

pub(super) struct Sqlite;

struct InFile {
    engine: SqliteEngine,
    /// Dropped after the engine.
    _folder: TempDir,
}

impl Rig for Sqlite {
    fn store(&self) -> BoxFuture<'_, Box<dyn Subject>> {
        Box::pin(async {
            let folder = tempfile::tempdir().expect("there is room for a folder");
            let engine = SqliteEngine::open(folder.path().join("events.db")).await;
            let engine = engine.expect("it can be opened");
            Box::new(InFile { engine, _folder: folder }) as _
        })
    }
}

impl Subject for InFile {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.engine.clone())
    }

    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn Engine>>> {
        // One process serves a file: another engine is one on the same.
        Box::pin(async {
            let another = SqliteEngine::within(self.engine.file().clone()).await;
            Some(Arc::new(another.expect("it is served already")) as _)
        })
    }
}
