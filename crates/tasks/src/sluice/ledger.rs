//! What a sluice counts while it holds its lock anyway.

use std::time::Duration;

use sluicegate_schedule::Moment;

use crate::HistogramSnapshot;
use crate::histogram::Recent;

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(super) admitted: u64,
    pub(super) started: u64,
    pub(super) queue_timeouts: u64,
    wait_time: HistogramSnapshot,
    run_time: HistogramSnapshot,
    /// The same over the last minute, where that was asked for.
    recent: Option<Box<RecentTimes>>,
}

#[derive(Debug, Default)]
pub(crate) struct RecentTimes {
    wait: Recent,
    run: Recent,
}

/// How long items waited and ran within the last 60 seconds.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Entry, Sluice};
/// use std::time::Duration;
///
/// let sluice = Sluice::<&str>::builder("agents", 1, 10).recent_times().build()?;
/// sluice.admit(Entry::of("alice"), "ask")?;
/// sluice.try_next().ok_or("nothing")?.finish();
/// let recent = sluice.recent_times().ok_or("not asked for")?;
/// assert_eq!(recent.run_time.count(), 1);
/// assert!(recent.wait_time.quantile(0.95) < Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastMinute {
    /// From being let in, or put back, to the start.
    pub wait_time: HistogramSnapshot,
    /// From the start to the end.
    pub run_time: HistogramSnapshot,
}

impl Ledger {
    pub(super) fn new(recent: bool) -> Self {
        Self { recent: recent.then(Box::default), ..Self::default() }
    }

    pub(super) fn started(&mut self, now: Moment, waited: Duration) {
        self.started += 1;
        self.wait_time.record(waited);
        if let Some(recent) = &mut self.recent {
            recent.wait.record(now, waited);
        }
    }

    /// What started as soon as it came in was given up before it ran.
    pub(super) fn not_started(&mut self, at: Moment) {
        self.started -= 1;
        self.wait_time.forget(Duration::ZERO);
        if let Some(recent) = &mut self.recent {
            recent.wait.forget(at, Duration::ZERO);
        }
    }

    pub(super) fn ran(&mut self, now: Moment, ran: Duration) {
        self.run_time.record(ran);
        if let Some(recent) = &mut self.recent {
            recent.run.record(now, ran);
        }
    }

    /// Without the last minute, which is large.
    pub(super) fn counts(&self) -> Self {
        let Self { wait_time, run_time, .. } = self;
        Self { wait_time: wait_time.clone(), run_time: run_time.clone(), recent: None, ..*self }
    }

    pub(super) fn completed(&self) -> u64 {
        self.run_time.count()
    }

    pub(super) fn times(self) -> (HistogramSnapshot, HistogramSnapshot) {
        (self.wait_time, self.run_time)
    }

    pub(super) fn last_minute(&self, now: Moment) -> Option<LastMinute> {
        let RecentTimes { wait, run } = self.recent.as_deref()?;
        Some(LastMinute { wait_time: wait.snapshot(now), run_time: run.snapshot(now) })
    }
}
