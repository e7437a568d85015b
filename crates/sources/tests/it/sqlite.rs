//! The embedded queue through the suite of sources.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{BoxFuture, Source};
use sluicegate_sources::sqlite::{Clock, SqliteSource, Store, StoreSettings};
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject, run};
use tempfile::TempDir;

struct Files {
    folder: TempDir,
    made: AtomicUsize,
    window: Duration,
    /// The same before and after a crash, so that a paused clock goes on where it was.
    clock: Clock,
}

impl Files {
    fn new(window: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, made: AtomicUsize::new(0), window, clock: Clock::system() }
    }
}

impl Rig for Files {
    fn abilities(&self) -> Abilities {
        Abilities::all(self.window).selecting().discarding()
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("{number}.db"));
        let clock = self.clock.clone();
        Box::pin(async move { Box::new(File::open(path, visibility, clock).await) as _ })
    }
}

struct File {
    path: PathBuf,
    visibility: Duration,
    clock: Clock,
    source: Option<Arc<SqliteSource>>,
}

impl File {
    async fn open(path: PathBuf, visibility: Duration, clock: Clock) -> Self {
        let mut settings = StoreSettings::default();
        settings.clock = Some(clock.clone());
        let store = Store::open_with(&path, settings).await.unwrap();
        let source = Some(Arc::new(store.queue("orders", visibility).await.unwrap()));
        Self { path, visibility, clock, source }
    }
}

impl Subject for File {
    fn source(&self) -> Arc<dyn Source> {
        Arc::clone(self.source.as_ref().unwrap()) as _
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.source = None;
            *self = Self::open(self.path.clone(), self.visibility, self.clock.clone()).await;
        })
    }
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract() {
    let count = run(&Files::new(Duration::from_secs(30))).await;
    assert!(count > 40, "{count} checks");
}

/// The same with real timers and several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract_in_real_time() {
    run(&Files::new(Duration::from_secs(4))).await;
}
