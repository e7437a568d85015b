//! What time it is, for what is stored: milliseconds since 1970 that never go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The wall clock as it was once, carried on by the steady one: times that were stored can be compared
/// with it even if someone sets the wall clock back. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    wall: i64,
    since: Instant,
    /// How far the wall clock has run ahead, as it does while the machine sleeps.
    ahead: Arc<AtomicI64>,
}

/// How far the wall clock may be ahead before it is followed. Clocks are adjusted by less.
const FOLLOWED: i64 = 60_000;

impl Clock {
    /// The clock of this machine.
    #[must_use]
    pub fn system() -> Self {
        Self { wall: wall(), since: Instant::now(), ahead: Arc::default() }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> i64 {
        let steady = self.wall.saturating_add(millis(self.since.elapsed()));
        let ahead = wall() - steady;
        if ahead - self.ahead.load(Ordering::Relaxed) > FOLLOWED {
            self.ahead.fetch_max(ahead, Ordering::Relaxed);
        }
        steady + self.ahead.load(Ordering::Relaxed)
    }

    /// The first millisecond that is this far away or further.
    #[must_use]
    pub fn after(now: i64, span: Duration) -> i64 {
        now.saturating_add(millis(span)).saturating_add(1)
    }

    /// When a stored time comes.
    #[must_use]
    pub fn instant_of(&self, time: i64) -> Instant {
        let rest =
            Duration::from_millis(u64::try_from(time.saturating_sub(self.now())).unwrap_or(0));
        // Whoever waits that long asks again before.
        Instant::now() + rest.min(Duration::from_secs(86_400))
    }
}

fn wall() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A span in the unit of stored times, the longest one if it is too long for that.
fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
