//! What a source was asked and has not answered yet: one that leaves a question open for long has stalled,
//! and one that is not asked has not.

use parking_lot::Mutex;
use tokio::time::Instant;

/// The moments of open questions.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: Mutex<Vec<Instant>>,
}

/// A question that is open until this is dropped.
#[must_use = "dropping it says that the answer came"]
pub(super) struct Question<'a> {
    of: &'a Questions,
    asked: Instant,
}

impl Questions {
    pub(super) fn ask(&self) -> Question<'_> {
        let asked = Instant::now();
        self.open.lock().push(asked);
        Question { of: self, asked }
    }

    /// Since when the oldest is open.
    pub(super) fn longest(&self) -> Option<Instant> {
        self.open.lock().iter().min().copied()
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut open = self.of.open.lock();
        if let Some(at) = open.iter().position(|asked| *asked == self.asked) {
            open.swap_remove(at);
        }
    }
}
