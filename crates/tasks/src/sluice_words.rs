//! Why an item waits, in an operator's words.
//!
//! `docs/rules.md#schedule-6`.

use std::fmt;

use sluicegate_schedule::Why;
use tokio::time::Instant;

use crate::WhyNot;

/// The words of its [`Why`], with how long from now where that is known.
impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.until.map(FromNow);
        match (self.why, until) {
            (Why::RateLimited { .. }, Some(until)) => write!(f, "the rate lets it go {until}"),
            (Why::KeyRetrying { .. }, Some(until)) => write!(f, "its key comes again {until}"),
            (why, _) => why.fmt(f),
        }
    }
}

struct FromNow(Instant);

impl fmt::Display for FromNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { f.write_str("now") } else { write!(f, "in {left:.1?}") }
    }
}

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use std::time::Duration;

    use sluicegate_schedule::{ItemId, Moment};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_an_end_says_how_long_from_now() {
        let (soon, late) = (Duration::from_millis(1_240), Duration::from_millis(3_400));
        let (now, until) = (Instant::now(), Moment::from_nanos(1));
        let retrying = Why::KeyRetrying { head: ItemId::from_parts(0, 1), until };
        let words = |why, until| WhyNot { why, until }.to_string();
        assert_eq!(
            words(Why::RateLimited { until }, Some(now + soon)),
            "the rate lets it go in 1.2s"
        );
        assert_eq!(words(retrying, Some(now + late)), "its key comes again in 3.4s");
        tokio::time::advance(late).await;
        assert_eq!(words(Why::RateLimited { until }, Some(now + soon)), "the rate lets it go now");
    }

    #[test]
    fn what_has_no_end_has_the_words_of_its_reason() {
        let forever = Why::KeyRetrying { head: ItemId::from_parts(0, 1), until: Moment::FAR };
        for why in [Why::NoWorker, Why::AtLimit { running: 8, limit: 8 }, forever] {
            assert_eq!(WhyNot { why, until: None }.to_string(), why.to_string());
        }
    }
}
