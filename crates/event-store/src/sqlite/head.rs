//! How far the log is, for those who wait for more.
//!
//! `docs/rules.md#events-3`.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long somebody waits who is not told. It is the end of a wait that nothing else ends.
const WAIT: Duration = Duration::from_secs(1);

/// The last position that this engine has appended.
#[derive(Debug)]
pub(crate) struct Head {
    position: watch::Sender<i64>,
}

impl Head {
    pub(crate) fn new(position: i64) -> Self {
        Self { position: watch::Sender::new(position) }
    }

    pub(crate) fn moves_to(&self, position: i64) {
        self.position.send_if_modified(|head| {
            let is_further = position > *head;
            *head = position.max(*head);
            is_further
        });
    }

    /// Waits until the log is further than that, or for a while.
    pub(crate) async fn beyond(&self, position: i64) {
        let mut head = self.position.subscribe();
        let further = head.wait_for(|head| *head > position);
        // Whoever waited looks again, whatever ended the wait.
        drop(timeout(WAIT, further).await);
    }
}
