//! Detects a pool that has work and makes no progress.
//!
//! What runs ends within its execution timeout and grace, and what waits starts or is refused within the queue timeout:
//! where neither happens for longer, something is wrong with the pool itself.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How much longer it may take than it should.
const STILL_FOR: Duration = Duration::from_secs(60);

/// A pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// How many requests wait or run.
    pub(super) requests: u64,
    /// How many have started or ended so far.
    pub(super) moved: u64,
    /// How long one may wait or run.
    pub(super) longest: Duration,
}

/// Remembers since when nothing has moved.
#[derive(Debug, Default)]
pub(super) struct StallDetector {
    since: Mutex<Option<(u64, Instant)>>,
}

impl StallDetector {
    /// Looks at a pool. Says for how long it has made no progress, if that is too long.
    pub(super) fn sample(&self, now: Instant, work: Work) -> Option<Duration> {
        let mut known = self.since.lock();
        if work.requests == 0 {
            *known = None;
            return None;
        }
        let same = known.filter(|(moved, _)| *moved == work.moved);
        let (_, since) = *known.insert(same.unwrap_or((work.moved, now)));
        let still = now - since;
        (still > work.longest + STILL_FOR).then_some(still)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_that_does_not_move_is_a_stall() {
        let (detector, begun) = (StallDetector::default(), Instant::now());
        let longest = Duration::from_secs(180);
        let at = |secs: u64, requests: u64, moved: u64| {
            let work = Work { requests, moved, longest };
            detector.sample(begun + Duration::from_secs(secs), work).map(|still| still.as_secs())
        };
        assert_eq!(at(0, 0, 7), None);
        assert_eq!(at(1_000, 3, 7), None, "it came only now");
        assert_eq!(at(1_240, 3, 7), None);
        assert_eq!(at(1_241, 3, 7), Some(241));
        assert_eq!(at(1_242, 3, 8), None, "one moved");
        assert_eq!(at(1_483, 3, 8), Some(241));
        assert_eq!(at(1_484, 0, 8), None, "there is nothing to do");
        assert_eq!(at(1_500, 1, 8), None);
    }
}
