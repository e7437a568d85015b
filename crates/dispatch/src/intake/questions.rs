//! What a source was asked and has not answered yet: one that leaves a question open for too long has stalled,
//! and one that is not asked has not.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The open questions, by when they should be answered at the latest.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: Mutex<Vec<Instant>>,
}

/// A question that is open until this is dropped.
#[must_use = "dropping it says that the answer came"]
pub(super) struct Question<'a> {
    of: &'a Questions,
    answer_by: Instant,
}

impl Questions {
    pub(super) fn ask(&self, patience: Duration) -> Question<'_> {
        let answer_by = Instant::now() + patience;
        self.open.lock().push(answer_by);
        Question { of: self, answer_by }
    }

    /// Whether one is open for too long.
    pub(super) fn is_late(&self) -> bool {
        let now = Instant::now();
        self.open.lock().iter().any(|answer_by| *answer_by <= now)
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        if let Some(at) = open.iter().position(|answer_by| *answer_by == self.answer_by) {
            open.swap_remove(at);
        }
    }
}
