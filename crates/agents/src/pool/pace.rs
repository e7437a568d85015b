//! How many prompts may be handed over in a second, counted where they are.
//!
//! The queue lets out no more turns than that, but a turn may wait for a place after it was let out, or for its program to
//! start, and then go together with later ones. So it is counted right before the prompt goes out.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

const SECOND: Duration = Duration::from_secs(1);

/// When prompts were handed over in the last second, and are about to be.
#[derive(Debug, Default)]
pub(super) struct Pace {
    handed: Mutex<VecDeque<Instant>>,
}

impl Pace {
    /// Waits until one more of so many in any second may be handed over. Cancel safe.
    pub(super) async fn wait(&self, most: u32) {
        while let Some(at) = self.at(Instant::now(), most as usize) {
            sleep_until(at).await;
        }
    }

    /// Counts one more, or says when to ask again.
    fn at(&self, now: Instant, most: usize) -> Option<Instant> {
        let mut handed = self.handed.lock();
        while handed.front().is_some_and(|at| *at + SECOND <= now) {
            handed.pop_front();
        }
        // There may be more of them than may be now.
        if let Some(beyond) = handed.len().checked_sub(most.max(1)) {
            return Some(handed[beyond] + SECOND);
        }
        handed.push_back(now);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_so_many_in_any_second() {
        let (pace, now) = (Pace::default(), Instant::now());
        let later = now + SECOND / 2;
        assert_eq!([pace.at(now, 2), pace.at(later, 2)], [None, None]);
        assert_eq!(pace.at(later, 2), Some(now + SECOND));
        assert_eq!(pace.at(now + SECOND, 2), None);
        assert_eq!(pace.at(now + SECOND, 1), Some(now + 2 * SECOND));
        assert_eq!(pace.at(now + SECOND, 3), None);
    }
}
