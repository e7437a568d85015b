//! Hearing of a context's end many times over, for the price of waiting for it once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::flag::Registration;
use crate::{Context, Interrupt};

/// Waits for a context's end beside whatever else is polled.
///
/// Waiting for a context is a place in a list behind a lock. Work that comes back to it at every poll,
/// or for every one of a thousand messages, keeps one of these instead: it takes its place once, and
/// after that a poll is a look at a flag, for as long as the same task polls it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, Interrupt};
///
/// let cx = Context::new();
/// let mut hearing = cx.hearing();
/// for _ in 0..3 {
///     tokio::select! {
///         biased;
///         _ = &mut hearing => unreachable!("it goes on"),
///         () = tokio::task::yield_now() => {}
///     }
/// }
/// cx.cancel();
/// assert_eq!(hearing.await, Interrupt::Cancelled);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "it hears nothing unless it is polled"]
pub struct Hearing {
    cx: Context,
    registration: Registration,
    /// Its deadline, once it was waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Hearing {
    pub(crate) fn new(cx: &Context) -> Self {
        Self { cx: cx.clone(), registration: Registration::new(), deadline: None }
    }
}

impl Future for Hearing {
    type Output = Interrupt;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Interrupt> {
        let Self { cx, registration, deadline } = &mut *self;
        let is_known = registration.knows(poller.waker());
        if registration.poll(cx.flags(), poller).is_ready() {
            return Poll::Ready(Interrupt::Cancelled);
        }
        let Some(at) = cx.deadline() else { return Poll::Pending };
        if is_known && Instant::now() < at {
            return Poll::Pending;
        }
        let sleep = deadline.get_or_insert_with(|| Box::pin(sleep_until(at)));
        sleep.as_mut().poll(poller).map(|()| Interrupt::TimedOut)
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.registration.leave(self.cx.flags());
    }
}

impl fmt::Debug for Hearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearing").field("cx", &self.cx).finish_non_exhaustive()
    }
}
