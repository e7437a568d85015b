//! What the tests look through: futures polled by hand, wakeups counted, drops recorded.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as Poller, Poll, Wake, Waker};
use std::time::Duration;

use sluicegate_tasks::{Context, Task, TaskGroup};

/// A future that is polled only when the test says so.
pub(crate) struct ByHand<F: Future> {
    future: Pin<Box<F>>,
    wakes: Arc<Count>,
}

impl<F: Future> ByHand<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Box::pin(future), wakes: Arc::default() }
    }

    /// Polls until it is over, without a runtime.
    pub(crate) fn wait(future: F) -> F::Output {
        let mut by_hand = Self::new(future);
        loop {
            match by_hand.poll() {
                Some(output) => return output,
                None => std::thread::yield_now(),
            }
        }
    }

    /// Polls once. Nothing while it is pending.
    pub(crate) fn poll(&mut self) -> Option<F::Output> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        match self.future.as_mut().poll(&mut Poller::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// How often it was woken so far.
    pub(crate) fn wakes(&self) -> u32 {
        self.wakes.get()
    }
}

/// A number that many hold. As a waker it counts wakeups.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    pub(crate) fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn sub(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.add();
    }
}

/// A waker that panics when the last of it is dropped.
pub(crate) struct PanicsWhenDropped(());

impl PanicsWhenDropped {
    pub(crate) fn waker() -> Waker {
        Waker::from(Arc::new(Self(())))
    }
}

impl Wake for PanicsWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a waker that panics when it is dropped");
    }
}

/// A waker that panics when it is called.
pub(crate) struct PanicsWhenWoken(());

impl PanicsWhenWoken {
    pub(crate) fn waker() -> Waker {
        Waker::from(Arc::new(Self(())))
    }
}

impl Wake for PanicsWhenWoken {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics when it is called");
    }
}

/// Something that must come back, such as a message to be settled: records its drop.
#[derive(Debug)]
pub(crate) struct Guard(Arc<Count>);

impl Guard {
    /// A guard, and the count of guards dropped.
    pub(crate) fn new() -> (Self, Arc<Count>) {
        let dropped = Arc::<Count>::default();
        (Self(Arc::clone(&dropped)), dropped)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// Tasks that take every permit of a group until they are ended.
pub(crate) struct Busy {
    tasks: Vec<Task<()>>,
    end: Context,
}

impl Busy {
    pub(crate) async fn all_of(group: &TaskGroup) -> Self {
        let (mut tasks, end) = (Vec::new(), Context::new());
        for _ in 0..group.stats().gauges.limit {
            let ended = end.clone();
            let work = |cx: Context| async move {
                drop(cx);
                ended.cancelled().await;
            };
            tasks.push(group.submit(Context::new(), work).await.unwrap());
        }
        settle().await;
        Self { tasks, end }
    }

    pub(crate) async fn end(self) {
        self.end.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Lets everything else on a current-thread runtime go as far as it can.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Numbers by chance that are the same in every run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) const fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % bound as u64) as u32
    }
}

/// A message from a broker: acknowledged once, or handed back when it is dropped.
#[derive(Debug)]
pub(crate) struct Delivery {
    settled: bool,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) acked: Count,
    pub(crate) handed_back: Count,
}

impl Delivery {
    pub(crate) fn of(tally: &Arc<Tally>) -> Self {
        Self { settled: false, tally: Arc::clone(tally) }
    }

    pub(crate) fn ack(mut self) {
        self.settled = true;
        self.tally.acked.add();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.settled {
            self.tally.handed_back.add();
        }
    }
}
