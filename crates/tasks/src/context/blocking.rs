//! Waiting for a context on a thread that may block.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::flag::Registration;
use crate::{Context, Interrupt};

/// Wakes a thread that parks.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker for the thread that calls.
fn own_waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

impl Context {
    /// Blocks the thread for so long, or until the context ends, whichever is sooner.
    ///
    /// ```
    /// use sluicegate_tasks::{Context, Interrupt};
    /// use std::time::Duration;
    ///
    /// let cx = Context::new();
    /// assert_eq!(cx.wait_timeout(Duration::from_millis(1)), Ok(()));
    /// cx.cancel();
    /// assert_eq!(cx.wait_timeout(Duration::from_secs(60)), Err(Interrupt::Cancelled)); // at once
    /// ```
    ///
    /// # Errors
    /// Why the context ended.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), Interrupt> {
        self.park_until(Instant::now().checked_add(timeout))
    }

    /// [`Context::cancelled`] for a thread that may block.
    ///
    /// ```
    /// use sluicegate_tasks::{Context, Interrupt};
    /// use std::time::Duration;
    ///
    /// let cx = Context::new().with_timeout(Duration::from_millis(1));
    /// assert_eq!(cx.cancelled_blocking(), Interrupt::TimedOut);
    /// ```
    #[must_use]
    pub fn cancelled_blocking(&self) -> Interrupt {
        loop {
            if let Err(why) = self.park_until(None) {
                return why;
            }
        }
    }

    fn park_until(&self, until: Option<Instant>) -> Result<(), Interrupt> {
        let waker = own_waker();
        let mut registration = Registration::new();
        let ended = loop {
            if registration.poll(self.flags(), &Poller::from_waker(&waker)).is_ready() {
                break self.check();
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if let Err(why) = self.check() {
                break Err(why);
            }
            match (left, self.remaining()) {
                (Some(Duration::ZERO), _) => break Ok(()),
                (Some(left), Some(remaining)) => thread::park_timeout(left.min(remaining)),
                (Some(left), None) | (None, Some(left)) => thread::park_timeout(left),
                (None, None) => thread::park(),
            }
        };
        registration.leave(self.flags());
        ended
    }
}

/// Waits for a future on a thread that may block.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = own_waker();
    loop {
        match future.as_mut().poll(&mut Poller::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
