//! Hearing of a context's end many times over, for the price of waiting for it once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Poller, Poll, Waker};

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
    ended: Pin<Box<dyn Future<Output = Interrupt> + Send>>,
    /// Whom the context's end wakes.
    waker: Option<Waker>,
}

impl Hearing {
    pub(crate) fn new(cx: &Context) -> Self {
        let (cx, own) = (cx.clone(), cx.clone());
        Self { cx, ended: Box::pin(async move { own.cancelled().await }), waker: None }
    }
}

impl Future for Hearing {
    type Output = Interrupt;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Interrupt> {
        // The flag is raised before anybody is woken, so who was woken finds it raised.
        if let Err(why) = self.cx.check() {
            return Poll::Ready(why);
        }
        let waker = poller.waker();
        if self.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return Poll::Pending;
        }
        self.waker = Some(waker.clone());
        self.ended.as_mut().poll(poller)
    }
}

impl fmt::Debug for Hearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearing").field("cx", &self.cx).finish_non_exhaustive()
    }
}
