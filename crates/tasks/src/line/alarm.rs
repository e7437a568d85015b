//! Asking again at the right moment: one timer for a whole line, set for the next change only.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_schedule::Moment;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The clock of a line, and the moment it is to be asked again.
#[derive(Debug)]
pub(crate) struct Alarm {
    origin: Instant,
    at: AtomicU64,
    changed: Notify,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        let at = AtomicU64::new(Moment::FAR.as_nanos());
        Self { origin: Instant::now(), at, changed: Notify::new() }
    }

    pub(crate) fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    pub(crate) fn moment(&self, at: Instant) -> Moment {
        Moment::ZERO + at.saturating_duration_since(self.origin)
    }

    /// The instant of a moment; `None` for one that never comes.
    pub(crate) fn instant(&self, at: Moment) -> Option<Instant> {
        self.origin.checked_add(at - Moment::ZERO).filter(|_| at < Moment::FAR)
    }

    /// Rings at `at` too. What is set for earlier stays: the words of two changes may arrive here in
    /// any order, and asking the line once too often, it says when to ask again.
    pub(crate) fn set(&self, at: Option<Moment>) {
        if let Some(at) = at
            && self.at.fetch_min(at.as_nanos(), Ordering::AcqRel) > at.as_nanos()
        {
            self.changed.notify_one();
        }
    }

    /// Waits until the moment that is set, also when it is set anew meanwhile.
    pub(crate) async fn rings(&self) {
        loop {
            let at = Moment::from_nanos(self.at.load(Ordering::Acquire));
            let ring = async {
                match self.instant(at) {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ring => {
                    // Spent, unless it was set anew just now: then that stays.
                    let (spent, far) = (at.as_nanos(), Moment::FAR.as_nanos());
                    self.at.compare_exchange(spent, far, Ordering::AcqRel, Ordering::Acquire).ok();
                    return;
                }
                () = self.changed.notified() => {}
            }
        }
    }
}
