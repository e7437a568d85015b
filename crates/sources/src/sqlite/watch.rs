//! Noticing what another process published.
//!
//! The file itself tells whether someone wrote to it. It is asked only while someone waits to receive
//! and nothing comes; what this process publishes wakes the receivers directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use sluicegate_dispatch::SourceError;
use sluicegate_tasks::Context;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::reader::Readers;
use super::store::Queues;

/// How long a message of another process may go unnoticed.
const PERIOD: Duration = Duration::from_millis(150);

/// Those who wait for messages.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    count: AtomicUsize,
    begun: Notify,
}

/// One who waits.
pub(crate) struct IdleGuard<'a> {
    idle: &'a Idle,
}

impl Idle {
    pub(crate) fn begin(&self) -> IdleGuard<'_> {
        if self.count.fetch_add(1, Ordering::AcqRel) == 0 {
            self.begun.notify_one();
        }
        IdleGuard { idle: self }
    }

    async fn someone(&self) {
        while self.count.load(Ordering::Acquire) == 0 {
            self.begun.notified().await;
        }
    }
}

impl Drop for IdleGuard<'_> {
    fn drop(&mut self) {
        self.idle.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Watches the file until the context ends.
pub(crate) async fn watch(
    cx: Context,
    idle: Arc<Idle>,
    readers: Arc<Readers>,
    queues: Arc<Queues>,
) {
    // The number is this connection's own, and tells of the writes of all others.
    let connection = Arc::new(Mutex::new(None));
    let mut seen = None;
    let look = async {
        loop {
            idle.someone().await;
            sleep(PERIOD).await;
            match version(&readers, &connection).await {
                Ok(version) if seen == Some(version) => {}
                Ok(version) => {
                    seen = Some(version);
                    queues.may_have_more();
                }
                // Whoever reads next hears of it. The numbers of another connection are others.
                Err(_) => seen = None,
            }
        }
    };
    // Nothing is left undone wherever it ends.
    tokio::select! {
        _ = cx.cancelled() => {}
        () = look => {}
    }
}

async fn version(
    readers: &Arc<Readers>,
    connection: &Arc<Mutex<Option<Connection>>>,
) -> Result<i64, SourceError> {
    let taken = connection.lock().take();
    let (used, version) = readers
        .read_on(taken, |connection| {
            connection.pragma_query_value(None, "data_version", |row| row.get(0))
        })
        .await?;
    *connection.lock() = Some(used);
    Ok(version)
}
