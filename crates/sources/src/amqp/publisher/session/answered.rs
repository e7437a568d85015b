//! All that is answered by now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// Takes all that is done. A set of futures may have nothing to give though it knows of more that is done,
/// and then wakes who asked: that is asked again.
pub(super) fn answered<F: Future>(of: &mut FuturesUnordered<F>) -> Vec<F::Output> {
    let more = Arc::new(More::default());
    let waker = Waker::from(Arc::clone(&more));
    let mut done = Vec::new();
    loop {
        match of.poll_next_unpin(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(one)) => done.push(one),
            Poll::Pending if more.0.swap(false, Ordering::AcqRel) => std::thread::yield_now(),
            Poll::Ready(None) | Poll::Pending => return done,
        }
    }
}

#[derive(Default)]
struct More(AtomicBool);

impl Wake for More {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answered while it is asked, as often as that is said.
    fn answered_meanwhile(number: u32, times: u32) -> impl Future<Output = u32> {
        let mut left = times;
        std::future::poll_fn(move |cx| {
            if left == 0 {
                return Poll::Ready(number);
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn nothing_that_is_done_is_left_behind() {
        let mut all: FuturesUnordered<_> =
            (0..5).map(|number| answered_meanwhile(number, 3 - number.min(3))).collect();
        let mut done = answered(&mut all);
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4]);
        assert!(answered(&mut all).is_empty());
        all.push(answered_meanwhile(5, 0));
        assert_eq!(answered(&mut all), [5]);
    }

    #[test]
    fn what_is_not_done_is_not_waited_for() {
        let mut all = FuturesUnordered::new();
        all.push(std::future::pending::<u32>());
        assert!(answered(&mut all).is_empty());
        assert_eq!(all.len(), 1);
    }
}
