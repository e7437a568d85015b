//! The embedded queue through the suite of sources.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{BoxFuture, Publication, PublishError, Published, Source};
use sluicegate_sources::sqlite::{SqliteSource, Store};
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject, publication, run};
use tempfile::TempDir;

struct Files {
    folder: TempDir,
    made: AtomicUsize,
}

impl Rig for Files {
    fn abilities(&self) -> Abilities {
        Abilities::all(Duration::from_secs(2))
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("{number}.db"));
        Box::pin(async move { Box::new(File::open(path, visibility).await) as _ })
    }
}

struct File {
    path: PathBuf,
    visibility: Duration,
    source: Option<Arc<SqliteSource>>,
}

impl File {
    async fn open(path: PathBuf, visibility: Duration) -> Self {
        let store = Store::open_serving(&path).await.unwrap();
        let source = Some(Arc::new(store.queue("orders", visibility).await.unwrap()));
        Self { path, visibility, source }
    }
}

impl Subject for File {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(self.source.as_ref().unwrap()) as _
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        self.source.as_ref().unwrap().publish(messages)
    }

    fn publish_raw(&self, body: &str) -> BoxFuture<'_, ()> {
        let raw = Publication { body: body.into(), ..publication("raw") };
        Box::pin(async {
            self.publish(vec![raw]).await.unwrap();
        })
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.source = None;
            *self = Self::open(self.path.clone(), self.visibility).await;
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let files = Files { folder: tempfile::tempdir().unwrap(), made: AtomicUsize::new(0) };
    let count = run(&files).await;
    assert!(count > 40, "{count} checks");
}
