//! What bounds a store, checked once.

use std::time::Duration;

use crate::{Invalid, MAX_BATCH};

/// What bounds an [`EventStore`](crate::EventStore). Plain values, checked when they are given to it.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_event_store::{EventStore, MemoryEngine, Settings};
///
/// let few = Settings { max_concurrent_projections: 10, ..Settings::default() };
/// let store = EventStore::with_settings(MemoryEngine::new(), few)?;
/// assert_eq!(store.settings().query_timeout, Duration::from_secs(10));
///
/// let none = Settings { max_concurrent_projections: 0, ..Settings::default() };
/// let invalid = store.change(none).unwrap_err();
/// assert_eq!(invalid.to_string(), "max_concurrent_projections: 0: must be at least 1");
/// # Ok::<(), sluicegate_event_store::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many projections, and streams of them, there may be at once: 100.
    pub max_concurrent_projections: u32,
    /// On how many tasks one projection folds at most: 50. With 1 it spawns none.
    pub max_projection_tasks: u32,
    /// How long a query or a projection may take as a whole, and each page of a stream: 10 s.
    pub query_timeout: Duration,
    /// How long appending may take: 5 s.
    pub append_timeout: Duration,
    /// How many events may be appended together: 1,000, which is the most.
    pub max_batch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_concurrent_projections: 100,
            max_projection_tasks: 50,
            query_timeout: Duration::from_secs(10),
            append_timeout: Duration::from_secs(5),
            max_batch: MAX_BATCH,
        }
    }
}

impl Settings {
    /// Names the first field that cannot work.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let counts = [
            ("max_concurrent_projections", self.max_concurrent_projections),
            ("max_projection_tasks", self.max_projection_tasks),
        ];
        for (field, count) in counts {
            let most = sluicegate_tasks::Permits::MAX;
            in_bounds(field, u64::from(count), u64::from(most))?;
        }
        in_bounds("max_batch", self.max_batch as u64, MAX_BATCH as u64)?;
        let timeouts =
            [("query_timeout", self.query_timeout), ("append_timeout", self.append_timeout)];
        for (field, timeout) in timeouts {
            if timeout.is_zero() {
                return Err(Invalid::new(field, "0s: must be longer than that"));
            }
        }
        Ok(())
    }
}

fn in_bounds(field: &str, count: u64, most: u64) -> Result<(), Invalid> {
    match count {
        0 => Err(Invalid::new(field, "0: must be at least 1")),
        _ if count > most => Err(Invalid::new(field, format!("{count}: must be at most {most}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named() {
        let good = Settings::default;
        assert_eq!(good().check(), Ok(()));
        let cases = [
            (
                Settings { max_concurrent_projections: 0, ..good() },
                "max_concurrent_projections: 0: must be at least 1",
            ),
            (
                Settings { max_projection_tasks: 0, ..good() },
                "max_projection_tasks: 0: must be at least 1",
            ),
            (
                Settings { query_timeout: Duration::ZERO, ..good() },
                "query_timeout: 0s: must be longer than that",
            ),
            (
                Settings { append_timeout: Duration::ZERO, ..good() },
                "append_timeout: 0s: must be longer than that",
            ),
            (Settings { max_batch: 0, ..good() }, "max_batch: 0: must be at least 1"),
            (Settings { max_batch: 1_001, ..good() }, "max_batch: 1001: must be at most 1000"),
        ];
        for (settings, message) in cases {
            assert_eq!(settings.check().unwrap_err().to_string(), message);
        }
        let many = Settings { max_concurrent_projections: u32::MAX, ..good() };
        assert!(many.check().unwrap_err().message.contains("must be at most"));
    }
}
