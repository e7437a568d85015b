//! Asking again at the right moment: one timer for a whole sluice, set for the next change only.
//!
//! Invariant: whoever sets an earlier moment wakes the one that waits, after the moment is stored; and
//! that one leaves its waker before it looks at the moment. So no moment is missed.

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

use sluicegate_schedule::Moment;
use tokio::time::{Instant, sleep_until};

use crate::panic::wake_all;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The clock of a sluice, and the moment it is to be asked again.
#[derive(Debug)]
pub(crate) struct Alarm {
    origin: Instant,
    next: NextMoment,
}

/// The moment for which the alarm is set, and who waits for it.
#[derive(Debug)]
pub(crate) struct NextMoment {
    at: AtomicU64,
    waits: Mutex<Option<Waker>>,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), next: NextMoment::new() }
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
    /// any order, and asking the sluice once too often, it says when to ask again.
    #[inline]
    pub(crate) fn set(&self, at: Option<Moment>) {
        if let Some(at) = at {
            self.next.set(at);
        }
    }

    /// Waits until the moment that is set, also when it is set anew meanwhile.
    pub(crate) async fn rings(&self) {
        let mut sleep = pin!(sleep_until(Instant::now()));
        let mut set_for = None;
        poll_fn(|poller| {
            let at = self.next.wait(poller.waker());
            let Some(instant) = self.instant(at) else { return Poll::Pending };
            if set_for != Some(at) {
                set_for = Some(at);
                sleep.as_mut().reset(instant);
            }
            let rung = sleep.as_mut().poll(poller);
            if rung.is_ready() {
                self.next.spend(at);
            }
            rung
        })
        .await;
    }
}

impl NextMoment {
    pub(crate) fn new() -> Self {
        Self { at: AtomicU64::new(Moment::FAR.as_nanos()), waits: Mutex::new(None) }
    }

    pub(crate) fn set(&self, at: Moment) {
        let at = at.as_nanos();
        // Mostly it is set for as early already: a look shares the line, a write takes it away.
        if self.at.load(Ordering::SeqCst) <= at {
            return;
        }
        if self.at.fetch_min(at, Ordering::SeqCst) > at {
            let waker = self.waits.lock().take();
            wake_all(waker);
        }
    }

    /// The moment that is set; the waker hears when an earlier one is.
    pub(crate) fn wait(&self, waker: &Waker) -> Moment {
        let waker = waker.clone();
        let displaced = self.waits.lock().replace(waker);
        drop(displaced);
        Moment::from_nanos(self.at.load(Ordering::SeqCst))
    }

    /// The moment has come. If an earlier one was set just now, that stays.
    pub(crate) fn spend(&self, at: Moment) {
        let (spent, far) = (at.as_nanos(), Moment::FAR.as_nanos());
        self.at.compare_exchange(spent, far, Ordering::SeqCst, Ordering::SeqCst).ok();
    }
}
