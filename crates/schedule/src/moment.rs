//! Time as the schedule sees it: a number its owner hands in.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, counted from an origin of the owner's choosing.
///
/// The schedule has no clock. Its owner passes `now` to every call that depends on time, be it the
/// offset of a monotonic clock, a paused clock in a test or a simulated one.
///
/// ```
/// use sluicegate_schedule::Moment;
/// use std::time::Duration;
///
/// let start = Moment::ZERO;
/// let later = start + Duration::from_millis(250);
/// assert_eq!(later - start, Duration::from_millis(250));
/// assert_eq!(start - later, Duration::ZERO); // saturates, never panics
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other moment: what waits for it waits until it is told otherwise.
    pub const FAR: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    ///
    /// ```
    /// use sluicegate_schedule::Moment;
    /// use std::time::Duration;
    ///
    /// assert_eq!(Moment::from_nanos(1_000), Moment::ZERO + Duration::from_micros(1));
    /// ```
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    ///
    /// ```
    /// use sluicegate_schedule::Moment;
    /// use std::time::Duration;
    ///
    /// assert_eq!((Moment::ZERO + Duration::from_micros(1)).as_nanos(), 1_000);
    /// ```
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
