//! What the tests of the embedded queue are written in.

use std::path::PathBuf;
use std::time::Duration;

use sluicegate_dispatch::{
    Delivery, Demand, Publication, Reason, Settle, Settled, Settlement, Source,
};
use sluicegate_sources::sqlite::{SqliteSource, Store, StoreSettings};
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tempfile::TempDir;
use tokio::time::timeout;

pub(crate) const WINDOW: Duration = Duration::from_secs(300);

/// A state file with a queue.
pub(crate) struct Stage {
    pub(crate) store: Store,
    pub(crate) queue: SqliteSource,
    pub(crate) folder: TempDir,
}

pub(crate) fn state(folder: &TempDir) -> PathBuf {
    folder.path().join("state.db")
}

impl Stage {
    pub(crate) async fn open() -> Self {
        Self::open_in(tempfile::tempdir().unwrap()).await
    }

    pub(crate) async fn open_in(folder: TempDir) -> Self {
        Self::open_with(folder, StoreSettings::default()).await
    }

    pub(crate) async fn open_with(folder: TempDir, settings: StoreSettings) -> Self {
        let store = Store::open_with(state(&folder), settings).await.unwrap();
        let queue = store.queue("orders", WINDOW).await.unwrap();
        Self { store, queue, folder }
    }

    /// Drops it without a word and opens the file again.
    pub(crate) async fn crash(self) -> Self {
        let Self { store, queue, folder } = self;
        drop((store, queue));
        Self::open_in(folder).await
    }

    pub(crate) async fn publish(&self, ids: &[&str]) -> u64 {
        let messages = ids.iter().map(|id| publication(id)).collect();
        self.queue.publish(messages).await.unwrap().duplicates
    }

    /// The next messages that come without a wait.
    pub(crate) async fn take(&self, max: usize) -> Vec<Delivery> {
        let mut taken = Vec::new();
        while taken.len() < max {
            let some = timeout(
                Duration::from_millis(300),
                self.queue.receive(Demand::any(max - taken.len())),
            );
            match some.await {
                Ok(some) => taken.extend(some.unwrap()),
                Err(_) => break,
            }
        }
        taken
    }

    pub(crate) async fn take_ids(&self, max: usize) -> Vec<String> {
        ids(&self.take(max).await)
    }

    pub(crate) async fn settle(&self, delivery: &Delivery, settlement: Settlement) -> Settled {
        let settle = Settle { receipt: delivery.receipt.clone(), settlement };
        self.queue.settle(vec![settle]).await.unwrap().remove(0)
    }

    /// Settles all of them at once.
    pub(crate) async fn all_done(&self, deliveries: Vec<Delivery>) {
        let gone =
            |delivery: Delivery| Settle { receipt: delivery.receipt, settlement: Settlement::Ack };
        let settled = self.queue.settle(deliveries.into_iter().map(gone).collect()).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Done));
    }

    pub(crate) async fn done(&self, delivery: &Delivery) {
        assert_eq!(self.settle(delivery, Settlement::Ack).await, Settled::Done);
    }
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery.message.as_ref().unwrap().id.to_string()).collect()
}

pub(crate) fn again(after: Duration, attempts: u32) -> Settlement {
    Settlement::Retry { after, attempts, reason: Reason::Failed }
}

pub(crate) fn strict(id: &str, group: &str) -> Publication {
    publication_in(id, "STRICT", Some(group), false)
}
