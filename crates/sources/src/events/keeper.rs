//! The one task of a source: it stores the cursor, for all who settled meanwhile together.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_event_store::EngineError;
use sluicegate_tasks::Context;
use tokio::time::sleep;

use super::shared::{Shared, Stored};

/// Between two stores at least: what is settled meanwhile is stored together. A long text takes longer.
const BETWEEN: Duration = Duration::from_millis(2);
const BETWEEN_FOR_A_KILOBYTE: Duration = Duration::from_millis(1);
const LONGEST_BETWEEN: Duration = Duration::from_millis(500);
/// After an error, and twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Runs until its context ends, or somebody else has taken the cursor.
pub(crate) async fn run(shared: Arc<Shared>, cx: Context) {
    // Ended at any await, the cursor is stored or not; who waits for it is not told that it is.
    let _ended = cx.until_interrupted(keep(&shared)).await;
}

async fn keep(shared: &Shared) {
    let mut pause = FIRST_PAUSE;
    loop {
        shared.touched.notified().await;
        loop {
            match store(shared).await {
                Ok((true, bytes)) => {
                    let kilobytes = u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
                    let longer = BETWEEN_FOR_A_KILOBYTE.saturating_mul(kilobytes);
                    sleep((BETWEEN + longer).min(LONGEST_BETWEEN)).await;
                    pause = FIRST_PAUSE;
                    break;
                }
                Ok((false, _)) => {
                    shared.stored.send_modify(|stored| stored.is_lost = true);
                    return shared.changed.notify_waiters();
                }
                Err(error) => {
                    let failure = Some(format!("the cursor was not stored: {error}"));
                    shared.stored.send_modify(|stored| stored.failure = failure);
                    sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
            }
        }
    }
}

/// Stores what there is; `false` if somebody else has the cursor. Answers how long the text is.
async fn store(shared: &Shared) -> Result<(bool, usize), EngineError> {
    let (kept, version) = shared.shelf.lock().kept(Shared::clock());
    let text = kept.to_text();
    let bytes = text.len();
    let cursors = shared.engine.cursors();
    let cursors = cursors.ok_or_else(|| EngineError::new("this store keeps no cursors"))?;
    let is_ours = cursors.store(&shared.about.queue, shared.turn, text).await?;
    if is_ours {
        let stored = Stored { version, failure: None, is_lost: false };
        shared.stored.send_replace(stored);
    }
    Ok((is_ours, bytes))
}
